"""What tests on real nodes stand on: extender and kube-scheduler as shipped, and no other nodes."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.ground import Ground, T
from tests.e2e.plane import Plane
from tests.support.patience import LONGEST


class NodeGround(Ground):
    """As `Ground`, without its nodes and its stand-in for kubelet."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane)
        self.nodes = ()

    async def _set_up_nodes(self) -> None:
        """Kubelets register theirs."""

    def eventually(self, look: Callable[[], T], what: str = "", seconds: float = LONGEST) -> T:
        """As in `Ground`. The error has the errors of kubelets, too."""
        try:
            return super().eventually(look, what, seconds)
        except AssertionError as problem:
            for name, component in self.plane.components.items():
                if name.startswith("kubelet"):
                    errors = [line for line in component.log_tail(500).splitlines() if line.startswith("E")]
                    problem.add_note(f"--- {name}:\n" + "\n".join(errors[-10:]))
            raise
