"""Claims whose devices preemption can free: every pod that uses them can be evicted, or is terminating.

Promises: pure. A claim is freed as a whole, with all pods that use it, on whichever node they run.
- A claim is not preemptible when it belongs to the preemptor, a write to it is in flight, it cannot be decoded, a pod
  that is being bound is about to use it, or it has no consumer or one that is not a pod.
- A consumer that is finished, being deleted or gone counts as terminating, unless it is stuck.
- Every other consumer must be evictable: bound, of lower priority, and of an allowed scheduler. Its annotations do
  not count: users write them, and static pods, which have mirror pods, cannot use claims.
- Pods that are disrupted together are evicted together: a claim of one of them is freed when all of them are evicted.
  Pods that cannot be evicted are left out, unless their PodGroup demands all or none. Stuck pods do not count.
- A claim whose consumers are all terminating needs no eviction: it becomes free by itself.
- Results with admin access use up nothing, so a claim that has only such results is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.groups import group_of
from dra_extender.api.meta import parse_time
from dra_extender.api.resource import DeviceID, ResourceClaim
from dra_extender.devices.usage import PoolID
from dra_extender.limits import SHARES_OF_DEVICE
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.gangs.gang import disrupted_together
from dra_extender.scheduling.preemption.terms import PreemptionTerms
from dra_extender.scheduling.view import View

PER_CLAIM: Final = 5
"""Units of work for examining a claim and its first pod."""
PER_POD: Final = 2
"""Units of work for examining a further pod."""
CONSUMERS: Final = 4
"""Consumers that are looked up per unit of work, when their pods are examined already."""
PARTS: Final = 2
"""Parts of the selectors of budgets that are compared with a pod per unit of work."""


class PreemptibleClaim(msgspec.Struct, frozen=True):
    """A claim that becomes free when `pods`, at least one, are evicted. The most important one stands for pods that are
    evicted together.
    """

    claim: ResourceClaim
    pods: tuple[Pod, ...]
    devices: tuple[DeviceID, ...]

    @property
    def priority(self) -> int:
        """The highest of its pods."""
        return max(pod.spec.priority for pod in self.pods)


class PreemptibleClaims(msgspec.Struct, frozen=True):
    """The preemptible claims of some pools. `terminating`: claims that become free without an eviction. `together`: by
    UID of the most important one, pods that are evicted together.
    """

    terminating: tuple[ResourceClaim, ...]
    evictable: tuple[PreemptibleClaim, ...]
    together: Mapping[str, tuple[Pod, ...]] = {}

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods that may be evicted, each once, the most important first; one of several that go together."""
        pods = {pod.metadata.uid: pod for each in self.evictable for pod in each.pods}
        return tuple(sorted(pods.values(), key=importance))

    def with_all(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """These pods, and the pods that are evicted together with them."""
        if not self.together:
            return pods
        return [each for pod in pods for each in self.together.get(pod.metadata.uid, (pod,))]

    def freed_by(self, evicted: Collection[str]) -> tuple[ResourceClaim, ...]:
        """The claims that are free once the pods with these UIDs are gone. Linear in the consumers of all claims."""
        freed = (each.claim for each in self.evictable if all(pod.metadata.uid in evicted for pod in each.pods))
        return (*self.terminating, *freed)


def importance(pod: Pod) -> tuple[int, bool, str, str]:
    """A sort key that puts the most important pod first: higher priority, then earlier start, then name. A pod that has
    not started counts as started last. Rule: MoreImportantPod of pkg/scheduler/util.
    """
    started = pod.status.start_time
    return -pod.spec.priority, started is None, started or "", pod.metadata.key


def preemptible_claims(
    view: View,
    terms: PreemptionTerms,
    pools: Iterable[PoolID] = (),
    *,
    uids: Sequence[str] = (),
    divisible: bool = False,
) -> PreemptibleClaims:
    """The preemptible claims with devices in these pools, and of these UIDs. Linear in the devices of the pools that
    are in use, and in the pods that are being bound and their claims. `divisible`: when a turn does not suffice, the
    caller asks about fewer pools. Otherwise all consumers together take at most a quarter of a turn, so that a decision
    always fits into the rest. Raises TurnSpent and Deferred.
    """
    users = uids or _users(view, pools)
    charge(view, PER_CLAIM * len(users))
    if divisible:  # the turn ends before the claims are examined, not afterwards
        view.decisions.budget.settle()
        charge(view, 0)
    joined = _about_to_be_used(view)
    consumers = _Consumers(view, terms, sys.maxsize if divisible else view.config.turn_work // 4)
    terminating: list[ResourceClaim] = []
    evictable: list[PreemptibleClaim] = []
    for uid in users:
        claim = view.ledger.by_uid(uid)
        if claim is None or uid in terms.own or uid in joined or claim.allocation is None:
            continue
        if view.in_flight(claim) or view.is_unreadable(claim):
            continue
        pods = consumers.evictable(claim)
        if pods:
            devices = tuple(dict.fromkeys(device for device, _ in view.ledger.uses(uid)))
            evictable.append(PreemptibleClaim(claim, pods, devices))
        elif pods is not None:
            terminating.append(claim)
    return PreemptibleClaims(tuple(terminating), tuple(evictable), consumers.together)


def charge(view: View, units: int, most: int = sys.maxsize) -> None:
    """Count work that cannot be interrupted. A single charge takes at most an eighth of a turn and `most` units, so
    that a decision always fits into the rest. What exceeds that is owed. Raises TurnSpent and Deferred.
    """
    at_once = min(units, most, view.config.turn_work // 8)
    view.decisions.budget.spend(at_once, owed=units - at_once)


def charge_budgets(view: View, terms: PreemptionTerms, pod: Pod) -> None:
    """Evaluate the budgets of the pod's namespace for the pod, unless a turn has. Raises TurnSpent and Deferred."""
    charge(view, terms.budgets.parts(pod) // PARTS)
    terms.budgets.covering(pod)


def _users(view: View, pools: Iterable[PoolID]) -> list[str]:
    """The UIDs of claims with devices in the pools, sorted; without shares of devices that have too many."""
    found: set[str] = set()
    for pool in pools:
        for use in view.ledger.in_use(pool).values():
            found.update(use.owners)
            found.update(uid for uid, _ in (use.shares if len(use.shares) <= SHARES_OF_DEVICE else ()))
    return sorted(found)


def _about_to_be_used(view: View) -> frozenset[str]:
    """The UIDs of claims that pods being bound name. The pods may not be in `reservedFor` yet. Charges each claim."""
    found: set[str] = set()
    for uid in view.binding:
        pod = view.pods.get(uid)
        if pod is not None and not pod.spec.node_name:
            charge(view, len(pod.spec.resource_claims))
            found.update(claim.metadata.uid for claim in known_claims(pod, view.ledger))
    return frozenset(found)


class _Consumers:
    """The pods that use claims. Each is examined once, however many claims it uses. Charges `most` units in all."""

    def __init__(self, view: View, terms: PreemptionTerms, most: int) -> None:
        self._view, self._terms, self._most = view, terms, most
        self._examined: dict[str, Pod | Literal["terminating", "stays"]] = {}
        self.together: dict[str, tuple[Pod, ...]] = {}

    def evictable(self, claim: ResourceClaim) -> tuple[Pod, ...] | None:
        """The pods to evict for the claim; empty when all are terminating; None when one of them cannot be evicted."""
        consumers = claim.status.reserved_for
        if not consumers:
            return None
        self._charge(len(consumers) // CONSUMERS)
        found: list[Pod] = []
        for consumer in consumers:
            if consumer.api_group or consumer.resource != "pods":
                return None
            known = self._examined.get(consumer.uid)
            if known is None:
                self._charge(PER_POD if found else 0)
                known = self._examined[consumer.uid] = self._leader(consumer.uid)
            if isinstance(known, Pod):
                found.append(known)
            elif known == "stays":
                return None
        return tuple({pod.metadata.uid: pod for pod in found}.values() if self.together else found)

    def _leader(self, uid: str) -> Pod | Literal["terminating", "stays"]:
        """The pod that stands for an evictable one: the most important of its gang."""
        pod = self._examine(uid)
        if not isinstance(pod, Pod) or group_of(pod) is None:
            return pod
        members, strict = disrupted_together(self._view, pod)
        running = [
            each.metadata.uid
            for each in members
            if each.spec.node_name and not each.finished and not is_stuck(self._view, self._terms, each)
        ]
        self._charge(PER_POD * (len(running) - 1))
        examined = [self._examine(each) for each in running]
        if "stays" in examined and (strict or self._terms.node):
            return "stays"
        evicted = tuple(sorted((each for each in examined if isinstance(each, Pod)), key=importance))
        if len(evicted) > 1:
            self.together[evicted[0].metadata.uid] = evicted
        self._examined.update((each.metadata.uid, evicted[0]) for each in evicted)
        return evicted[0]

    def _charge(self, units: int) -> None:
        if units:
            charge(self._view, units, self._most)
            self._most -= min(units, self._most)

    def _examine(self, uid: str) -> Pod | Literal["terminating", "stays"]:
        pod, examined = self._view.pods.get(uid), self._terms.examined
        known = examined.get(uid)
        if known is None or known[0] is not pod:
            view, terms = self._view, self._terms
            leaves = view.pods.is_terminating(uid) and (pod is None or not is_stuck(view, terms, pod))
            if leaves or uid in terms.terminating:
                return "terminating"
            if pod is None:
                return "stays"
            known = examined[uid] = pod, _is_evictable(self._view, self._terms, pod)
        return known[0] if known[1] else "stays"


def is_stuck(view: View, terms: PreemptionTerms, pod: Pod) -> bool:
    """True when the pod is still there well after its grace period, for example because its node is down. Preemption
    does not wait for such a pod. A finished pod is never stuck: it uses no devices.
    """
    if pod.finished:
        return False
    if pod.metadata.uid in terms.stuck:
        return True
    due = parse_time(pod.metadata.deletion_timestamp or "")  # the end of its grace period
    if due is None:
        return False
    config, period = view.config, pod.metadata.deletion_grace_period_seconds or 0
    longest = config.grace_seconds(period) + config.preemption_margin_seconds
    return (view.clock.wall() - due).total_seconds() + period > longest


def _is_evictable(view: View, terms: PreemptionTerms, pod: Pod) -> bool:
    """True when a pod that is not terminating may be a victim."""
    stuck = pod.metadata.deletion_timestamp or pod.metadata.uid in terms.stuck
    if stuck or pod.metadata.uid in terms.spared or not pod.spec.node_name:
        return False
    if not terms.may_evict(pod) or terms.node not in ("", pod.spec.node_name):
        return False
    charge_budgets(view, terms, pod)
    return terms.violate_budgets or not terms.budgets.forbid(pod)
