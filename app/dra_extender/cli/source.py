"""Where a command reads the state that it is asked about: a cluster, or a file that `snapshot` wrote."""

from __future__ import annotations

import msgspec

from dra_extender.kube.credentials import DEFAULT, namespace_of


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster of a kubeconfig, as the flags of a command name it, or the `file`, seen with these feature gates."""

    gates: str = ""
    kubeconfig: str = ""
    context: str = ""
    server: str = ""
    file: str = ""

    def namespace(self) -> str:
        """Where objects are that are named without one."""
        return DEFAULT if self.file else namespace_of(self.kubeconfig, self.context)
