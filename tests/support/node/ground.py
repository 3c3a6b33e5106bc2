"""What tests on real nodes stand on: extender and kube-scheduler as shipped, and no other nodes."""

from __future__ import annotations

from tests.e2e.ground import Ground
from tests.e2e.plane import Plane


class NodeGround(Ground):
    """As `Ground`, without its nodes and its stand-in for kubelet."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(plane)
        self.nodes = ()

    async def _set_up_nodes(self) -> None:
        """Kubelets register theirs."""

    def state(self) -> str:
        errors = [super().state()]
        for name, component in self.plane.components.items():
            if name.startswith("kubelet"):
                lines = [line for line in component.log_tail(500).splitlines() if line.startswith("E")]
                errors += [f"--- {name}:", *lines[-10:]]
        return "\n".join(errors)


class BareGround(NodeGround):
    """Without extender and kube-scheduler: they run in pods."""

    def _set_up(self) -> None:
        self.run(self._start_actors())

    def state(self) -> str:
        return self.plane.kubectl("get", "pods,events", "--all-namespaces", "--output=wide")
