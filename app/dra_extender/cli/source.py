"""Where a command reads the cluster."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import typer

from dra_extender.kube.credentials import DEFAULT, namespace_of

WHERE: Final = "Which cluster"
"""The heading of the options that name the cluster."""


def _where(*flags: str, metavar: str, help: str) -> Any:
    return typer.Option(*flags, metavar=metavar, help=help, show_default=False, rich_help_panel=WHERE)


Kubeconfig = Annotated[str, _where(metavar="FILE", help="kubeconfig file")]
Context = Annotated[str, _where(metavar="NAME", help="context of the kubeconfig")]
Server = Annotated[str, _where("--server", "-s", metavar="URL", help="API server, instead of the kubeconfig's")]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command reads the cluster: the API server of a kubeconfig, or a file that `snapshot` wrote."""

    feature_gates: Annotated[str, _where(metavar="GATES", help="as for serve: Name=true,Other=false")] = ""
    from_file: Annotated[
        str, _where("--from", metavar="FILE", help="a file that snapshot wrote, instead of a cluster")
    ] = ""
    kubeconfig: Kubeconfig = ""
    context: Context = ""
    server: Server = ""

    def default_namespace(self) -> str:
        """The namespace of objects that are named without one."""
        return DEFAULT if self.from_file else namespace_of(self.kubeconfig, self.context)
