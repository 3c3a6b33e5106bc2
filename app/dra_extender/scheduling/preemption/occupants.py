"""What stands in a pod's way and may be taken away: claims all of whose consumers may be evicted.

Promises: pure. A claim goes as a whole, with all its consumers, wherever they are. It stays, whatever its consumers
are, when it is the preemptor's own, in flight, cannot be read, is about to be used by a pod that is being bound, or is
reserved for nobody or for something that is not a pod. Of its consumers those that are finished, being deleted or gone
are going already, unless they are stuck; the others must be bound, not deleted, no mirrors of static pods, of lower
priority, and of an allowed scheduler.
A claim whose consumers are all going is free soon; nobody has to be evicted for it. Results with admin access use
nothing, so a claim with no others frees nothing and is not here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceID, ResourceClaim, ResourceClaimConsumerReference
from dra_extender.api.times import parse_time
from dra_extender.devices.uses import PoolID
from dra_extender.scheduling.claims import Unschedulable, named_claims
from dra_extender.scheduling.preemption.budgets import Grouped
from dra_extender.scheduling.preemption.state import spend
from dra_extender.scheduling.preemption.terms import Terms
from dra_extender.scheduling.view import View

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of the pods that stand for static pods: evicting them ends nothing."""

PER_USER = 5
"""Units of work that looking at a claim and its consumers costs."""


class Occupant(msgspec.Struct, frozen=True):
    """A claim that would be free if these pods, at least one, were gone."""

    claim: ResourceClaim
    pods: tuple[Pod, ...]
    devices: tuple[DeviceID, ...]

    @property
    def priority(self) -> int:
        """The highest of its pods."""
        return max(pod.spec.priority for pod in self.pods)


class Occupants(msgspec.Struct, frozen=True):
    """Of some pools: the claims that are `going` in any case, and those that are `evictable` besides."""

    going: tuple[ResourceClaim, ...]
    evictable: tuple[Occupant, ...]

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All that may be evicted, each once, the most important first."""
        pods = {pod.metadata.uid: pod for occupant in self.evictable for pod in occupant.pods}
        return tuple(sorted(pods.values(), key=importance))

    def without(self, gone: Collection[str]) -> tuple[ResourceClaim, ...]:
        """The claims that are free when the pods with these UIDs are gone."""
        freed = (o.claim for o in self.evictable if all(pod.metadata.uid in gone for pod in o.pods))
        return (*self.going, *freed)


def importance(pod: Pod) -> tuple[int, bool, str, str]:
    """Sorts the most important pod first: the higher priority, then the earlier start, as MoreImportantPod of
    pkg/scheduler/util has it, then the name. A pod that has not started would start now.
    """
    started = pod.status.start_time
    return -pod.spec.priority, started is None, started or "", pod.metadata.key


def occupants_of(view: View, terms: Terms, pools: Iterable[PoolID]) -> Occupants:
    """What has devices in these pools and may be taken away. Raises TurnSpent and Deferred."""
    users = _users(view, pools)
    spend(view, PER_USER * len(users))
    joined, budgets = _joined(view), Grouped(terms.budgets)
    going: list[ResourceClaim] = []
    occupants: list[Occupant] = []
    for uid in users:
        claim = view.ledger.by_uid(uid)
        if claim is None or uid in terms.own or uid in joined or not _is_settled(view, claim):
            continue
        pods = _evicted(view, terms, budgets, claim)
        if pods:
            devices = tuple(dict.fromkeys(device for device, _ in view.ledger.uses(uid)))
            occupants.append(Occupant(claim, pods, devices))
        elif pods is not None:
            going.append(claim)
    return Occupants(tuple(going), tuple(occupants))


def _users(view: View, pools: Iterable[PoolID]) -> list[str]:
    """The UIDs of claims with devices in the pools, in an order that is always the same."""
    found: set[str] = set()
    for pool in pools:
        for use in view.ledger.in_use(pool).values():
            found.update(use.owners)
            found.update(uid for uid, _ in use.shares)
    return sorted(found)


def _joined(view: View) -> frozenset[str]:
    """The UIDs of claims that a bind under way is about to use: it may be in none of them yet."""
    found: set[str] = set()
    for uid in view.binding:
        pod = view.pods.get(uid)
        names = named_claims(pod) if pod is not None and not pod.spec.node_name else ()
        if pod is None or isinstance(names, Unschedulable):
            continue
        claims = (view.ledger.get(pod.metadata.namespace, name) for name, _ in names)
        found.update(claim.metadata.uid for claim in claims if claim is not None)
    return frozenset(found)


def _is_settled(view: View, claim: ResourceClaim) -> bool:
    """True when the claim is as the API server has it, and nothing of ours is changing it."""
    return claim.allocation is not None and not view.in_flight(claim) and not view.is_unreadable(claim)


def _evicted(view: View, terms: Terms, budgets: Grouped, claim: ResourceClaim) -> tuple[Pod, ...] | None:
    """Who would have to be evicted for the claim; nobody when all are going; None when somebody stays."""
    if not claim.status.reserved_for:
        return None
    found: list[Pod] = []
    for consumer in claim.status.reserved_for:
        if consumer.api_group or consumer.resource != "pods":
            return None
        if _is_going(view, terms, consumer):
            continue
        pod = view.pods.get(consumer.uid)
        if pod is None or not _may_go(terms, budgets, pod):
            return None
        found.append(pod)
    return tuple(found)


def _is_going(view: View, terms: Terms, consumer: ResourceClaimConsumerReference) -> bool:
    uid = consumer.uid
    if uid in terms.leaving:
        return True
    pod = view.pods.get(uid)
    return view.pods.leaving(uid) and not (pod is not None and is_stuck(view, terms, pod))


def is_stuck(view: View, terms: Terms, pod: Pod) -> bool:
    """True when the pod should be gone for long, and is not: on a node that is down, for example. Nothing is expected
    of it any more. A finished pod needs no devices, even if it stays.
    """
    if pod.finished:
        return False
    if pod.metadata.uid in terms.stuck:
        return True
    due = parse_time(pod.metadata.deletion_timestamp or "")  # the end of its grace period
    if due is None:
        return False
    return (view.clock.wall() - due).total_seconds() > view.config.preemption_margin_seconds


def _may_go(terms: Terms, budgets: Grouped, pod: Pod) -> bool:
    """Of a pod that is not going."""
    told = pod.metadata.deletion_timestamp or pod.metadata.uid in terms.stuck
    if told or pod.metadata.uid in terms.spared or not pod.spec.node_name or MIRROR in pod.metadata.annotations:
        return False
    if not terms.rules.violate_budgets and budgets.forbid(pod):
        return False
    return terms.may_evict(pod) and terms.node in ("", pod.spec.node_name)
