"""The terms on which a pod may preempt others; and the result: the victims on one node, or why no pod is preempted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, Literal

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceID, ResourceClaim
from dra_extender.devices.overlay import Planned
from dra_extender.scheduling.gangs.decision import GangState
from dra_extender.scheduling.gangs.gang import Gang
from dra_extender.scheduling.noderules import ResourcesInUse
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace
from dra_extender.scheduling.reader import Reader, listed
from dra_extender.scheduling.view import View

NEVER: Final = "Never"


class PreemptionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration together with the state of the moment. The view knows what is kept for other pods.

    - `scheduler_names`: victims belong to one of these schedulers; empty: to the preemptor's scheduler.
    - `violate_budgets`: True, as in kube-scheduler: violate a budget when no other node and no other pod will do.
      False: never violate one, because the Eviction API would refuse.
    - `state_of`: what decisions about the gang of the preemptor have to know besides the view.
    - `usage`: what the pods of a node use; None: the caller names only nodes that suit the preemptor.

    All sets hold UIDs. `terminating`: pods that terminate in any case. `stuck`: pods that were evicted long ago and are
    still there; preemption does not wait for them. `spared`: pods that must not be victims for now. `own`: the
    preemptor's claims. `node`: victims must run on this node; empty: on any node. `examined`: by UID, the pods that do
    not terminate, and whether these terms let them be evicted; other terms need another one.
    """

    preemptor: Pod
    scheduler_names: frozenset[str] = frozenset()
    violate_budgets: bool = True
    state_of: Callable[[View, Gang, Pod], GangState] = lambda view, *_: GangState(free=view, used=ResourcesInUse().used)
    usage: ResourcesInUse | None = None
    budgets: BudgetsByNamespace = msgspec.field(default_factory=BudgetsByNamespace)
    terminating: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    spared: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    node: str = ""
    examined: dict[str, tuple[Pod, bool]] = msgspec.field(default_factory=dict)

    def with_claims(self, claims: Iterable[ResourceClaim]) -> PreemptionTerms:
        """The same terms with the preemptor's claims."""
        return msgspec.structs.replace(self, own=frozenset(claim.metadata.uid for claim in claims))

    @property
    def may_preempt(self) -> bool:
        """False for a pod with `preemptionPolicy: Never`."""
        return self.preemptor.spec.preemption_policy != NEVER

    def may_evict(self, pod: Pod) -> bool:
        """True when priority and scheduler of the pod allow it to be a victim."""
        schedulers = self.scheduler_names or (self.preemptor.spec.scheduler_name,)
        return pod.spec.priority < self.preemptor.spec.priority and pod.spec.scheduler_name in schedulers


class Victim(msgspec.Struct, frozen=True):
    """A pod to evict. `claims`: the claims that it uses and that are free once all victims are gone; `devices`: their
    devices. `violates_budget`: evicting it after the victims before it violates a PodDisruptionBudget.
    """

    pod: Pod
    claims: tuple[ResourceClaim, ...] = ()
    devices: tuple[DeviceID, ...] = ()
    violates_budget: bool = False


class Preemption(msgspec.Struct, frozen=True):
    """`victims`: at least one, the most important first. `plans`: the allocations that the preemptor's claims then get
    on the node. `nodes`: if a gang preempts, by UID of each of its pods that then fits, the node; `plans` are for all.
    """

    preemptor: Pod
    node: str
    victims: tuple[Victim, ...]
    plans: tuple[Planned, ...]
    nodes: Mapping[str, str] = {}

    def needed(self) -> Mapping[str, tuple[DeviceID, ...]]:
        """By UID of a victim: its devices that the preemptor gets. All of them, when the preemptor gets none directly
        but needs them to be unused, for example because they share counters. Linear in all devices.
        """
        got = {result.id for _, allocation in self.plans for result in allocation.devices.results}
        return {
            victim.pod.metadata.uid: tuple(device for device in victim.devices if device in got) or victim.devices
            for victim in self.victims
        }

    def text(self, reader: Reader) -> str:
        """Victims, their nodes and devices as the end of a sentence."""
        pods = reader.listed("pod", (victim.pod.metadata.key for victim in self.victims))
        there = dict.fromkeys(victim.pod.spec.node_name for victim in self.victims)
        nodes = listed("node", there if self.nodes else (self.node,))
        return f"{pods} on {nodes}{for_devices(self.devices())}"

    def devices(self) -> tuple[str, ...]:
        """The devices of victims that the preemptor gets (driver/pool/device), each once."""
        return tuple(dict.fromkeys(map("/".join, chain.from_iterable(self.needed().values()))))


def known_to(reader: Reader, pod: Pod) -> str:
    """The name of the pod in an event on another pod: its UID for a pod of another namespace, as in kube-scheduler."""
    return f"pod {pod.metadata.key if reader.sees(pod.metadata.key) else pod.metadata.uid}"


def for_devices(devices: Sequence[str]) -> str:
    """The devices as the end of a sentence; empty when they are unknown."""
    if not devices:
        return ""
    return f" for {'device' if len(devices) == 1 else 'devices'} {', '.join(devices)}"


Why = Literal["never", "nominated", "refused", "fits", "waits", "hopeless", "unknown"]
"""Why no pod is preempted:
- never: the pod must not preempt, or no pod has a lower priority;
- nominated: victims of an earlier preemption are terminating;
- refused: the pod's claims cannot be decided on;
- fits: the pod fits without an eviction;
- waits: the pod fits once pods that are terminating are gone;
- hopeless: no eviction helps;
- unknown: not everything could be decided now.
"""


class NoPreemption(msgspec.Struct, frozen=True):
    """No preemption. `reason` is for people; it is constant except for names of claims. `node`: where the pod fits, or
    will fit.
    """

    why: Why
    reason: str
    node: str = ""


FITS: Final = "the devices fit already"
WAITS: Final = "the devices fit once terminating pods are gone"
HOPELESS: Final = NoPreemption("hopeless", "evicting pods of lower priority does not free the devices")
UNKNOWN: Final = NoPreemption("unknown", "the evaluation is not complete yet")
