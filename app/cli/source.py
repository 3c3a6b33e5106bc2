"""Where a command reads the state that it is asked about: a cluster, or a file that `snapshot` wrote."""

from __future__ import annotations

from pathlib import Path

import msgspec

from app.api.features import FeatureGates
from app.cli.cluster import Snapshot, read_cluster, restored
from app.cli.snapshotfile import load
from app.kube.contexts import DEFAULT, namespace_of


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster of a kubeconfig, as the flags of a command name it, or the `file`, seen with these feature gates."""

    gates: str = ""
    kubeconfig: str = ""
    context: str = ""
    file: str = ""

    async def read(self, *, evictions: bool = False) -> Snapshot:
        """See `read_cluster`. Raises ApiError, CredentialsError, and ValueError for a file that cannot be used."""
        features = FeatureGates.parse(self.gates)
        if not self.file:
            return await read_cluster(self.kubeconfig, self.context, features, evictions=evictions)
        if self.kubeconfig or self.context:
            raise ValueError("--from is a file, --kubeconfig and --context name a cluster: give one of them")
        try:
            return restored(load(Path(self.file).read_bytes()), features)  # noqa: ASYNC240  # nobody else waits
        except (OSError, ValueError) as problem:
            raise ValueError(f"{self.file}: {problem}") from None

    def namespace(self) -> str:
        """Where objects are that are named without one."""
        return DEFAULT if self.file else namespace_of(self.kubeconfig, self.context)
