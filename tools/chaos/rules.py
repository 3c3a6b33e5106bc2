"""What must hold at every write and every decision, besides what `Api` checks by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dra_extender.allocation.allocator import PlanChooser
from dra_extender.allocation.decisions import Decisions
from dra_extender.allocation.plan import Failure, Plan, Unfit
from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.scheduling.claims import all_claim_names
from tests.support.simulation.api import Api
from tests.support.simulation.objects import KubernetesObject
from tests.support.simulation.world import Service, World
from tools.chaos.hardware import Hardware, offered

MOST_RESULTS = 32


class _Overseen(Decisions):
    """Decisions whose plans are looked at, those on hypothetical states and in budgets as well, which are copies."""

    look: Callable[[Plan, str], None]

    def plan(
        self, claims: Sequence[ResourceClaim], node: str, chooser: PlanChooser | None = None, *, once: bool = False
    ) -> Plan | Unfit | Failure:
        made = super().plan(claims, node, chooser, once=once)
        if isinstance(made, Plan):
            self.look(made, node)
        return made


class Rules:
    """`judge` looks at writes, `oversee` makes it look at what a service decides."""

    def __init__(self, world: World, hardware: Hardware) -> None:
        self._api: Api = world.api
        self._hardware = hardware

    def judge(self, operation: str, before: KubernetesObject | None, after: KubernetesObject) -> str:
        written = operation in ("write_status", "deallocate")
        if written and isinstance(after, ResourceClaim) and isinstance(before, ResourceClaim):
            return self._judge_write(before, after)
        if isinstance(after, Pod) and operation == "bind":
            return self._judge_binding(after)
        return ""

    def oversee(self, service: Service) -> None:
        """Compare each plan with what the service's watch has brought at that moment."""

        def look(made: Plan, node: str) -> None:
            watch = service.watch
            known = offered(watch.seen(DeviceClass), watch.seen(ResourceSlice))
            used = [result.id for allocation in made.allocations for result in allocation.devices.results]
            wrong = [device for device in used if device not in known or device[1] != node]
            if wrong:
                self._api.violations.append(f"planned {wrong} for {node}, which is not offered there")

        service.decisions.__class__ = _Overseen
        service.decisions.__dict__["look"] = look

    def _judge_write(self, before: ResourceClaim, after: ResourceClaim) -> str:
        name, running = after.metadata.name, self._api.running(before)
        lost = {entry.uid for entry in before.status.reserved_for} - {entry.uid for entry in after.status.reserved_for}
        if lost & running:
            return f"{name}: reservation of bound pods removed: {lost & running}"
        if before.allocation is not None or after.allocation is None:
            return ""
        results = after.allocation.devices.results
        asked = [request.name for request in after.spec.devices.requests]
        order = [asked.index(result.request) for result in results]
        if order != sorted(order) or len(results) > MOST_RESULTS:
            return f"{name}: results {order}"
        stale = [result.id for result in results if not self._hardware.was_offered(result.id)]
        return f"{name}: got {stale}, which nobody offers" if stale else ""

    def _judge_binding(self, pod: Pod) -> str:
        """The pod need not wait for a claim that its status named before, and that a controller has made once more."""
        wrong = self._hardware.overdrawn(lambda claim: bool(self._api.running(claim)))
        names = all_claim_names(pod)
        for claim in self._api.all(ResourceClaim):
            if claim.metadata.name in names and claim.reserved_for(pod.metadata.uid) and not _ready(claim):
                wrong.append(f"bound before the devices of {claim.metadata.name} were ready")
        return f"{pod.metadata.name}: {'; '.join(wrong)}" if wrong else ""


def _ready(claim: ResourceClaim) -> bool:
    told = {
        (entry.driver, entry.pool, entry.device, condition.type)
        for entry in claim.status.devices
        for condition in entry.conditions
        if condition.status == "True"
    }
    results = claim.allocation.devices.results if claim.allocation is not None else ()
    return all((*result.id, kind) in told for result in results for kind in result.binding_conditions)
