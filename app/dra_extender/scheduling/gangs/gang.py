"""What is known of the gang of a pod: its members, how many have to run, and why it cannot be placed.

Promises: pure. Linear in the pods of the group, of which at most `PODS_OF_GANG` are looked at. A group without a
minimum number of pods, such as a PodGroup with policy `basic`, is not a gang. Finished pods do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.groups import MOST_SHOWN, SIZES, GroupKey, group_of
from dra_extender.api.scheduling import PodGroup
from dra_extender.limits import PARTS_OF_GANG, PODS_OF_GANG
from dra_extender.scheduling.gangs.attributes import SAME, attributes_of, problem_of
from dra_extender.scheduling.gangs.topology import ANNOTATIONS, ANYWHERE, Level, levels
from dra_extender.scheduling.noderules import parts_of
from dra_extender.scheduling.view import View

API_GROUPS: Final = {"PodGroup": "scheduling.k8s.io", "coscheduling": "scheduling.x-k8s.io"}


class Gang(msgspec.Struct, frozen=True):
    """`placed`: members that have a node, or are being bound. `waiting`: members that may get one now, in
    kube-scheduler's order. `size`: how many members have to run.
    """

    key: GroupKey
    size: int
    placed: Sequence[Pod] = ()
    waiting: Sequence[Pod] = ()
    problem: str = ""
    """Why no member may get a node; empty when they may."""
    levels: Sequence[Level] = (ANYWHERE,)
    """See `topology.levels`."""
    attributes: Sequence[str] = ()
    """Device attributes that must have one value for all members."""

    @property
    def needed(self) -> int:
        """How many of the waiting members have to be placed together."""
        return max(0, self.size - len(self.placed))


def gang_of(view: View, pod: Pod) -> Gang | None:
    """The gang of the pod; None for a pod without one."""
    key = group_of(pod)
    if key is None:
        return None
    members = [each for each in view.pods.members(key) if each.metadata.uid != pod.metadata.uid]
    members = [each for each in (*members, pod) if not each.metadata.deletion_timestamp]
    if len(members) > PODS_OF_GANG:
        return Gang(
            key, len(members), problem=f"{key} has {len(members)} pods; at most {PODS_OF_GANG} are placed together"
        )
    if _have_too_many_parts(members):
        parts = "claims, containers, tolerations and node requirements"
        return Gang(key, len(members), problem=f"{key}: its pods have more than {PARTS_OF_GANG:,} {parts} together")
    group, size = _group(view, key, members)
    if size is None:
        return None
    if isinstance(size, str):
        return Gang(key, 0, problem=size)
    binding = {each.metadata.uid for each in members if each.metadata.uid in view.binding} - {pod.metadata.uid}
    # A bind without a plan, after a change of leader, does not count: the gang is planned first.
    begun = set(filter(view.is_planned, binding))
    placed = [each for each in members if each.spec.node_name or each.metadata.uid in begun]
    taken = {each.metadata.uid for each in placed}
    waiting = [each for each in members if each.metadata.uid not in taken and not each.finished]
    waiting = [each for each in waiting if not each.spec.scheduling_gates]
    waiting.sort(key=lambda each: (-each.spec.priority, each.metadata.creation_timestamp or "", each.metadata.name))
    written = {**(group.metadata.annotations if group is not None else {}), **pod.metadata.annotations}
    attributes, required = attributes_of(written), group.topology_key if group is not None else ""
    problem = _problem(key, size, len(placed), waiting, attributes)
    return Gang(key, size, placed, waiting, problem, levels(written, required), attributes)


def _have_too_many_parts(pods: Sequence[Pod]) -> bool:
    """One turn plans all claims of a gang, some 20 microseconds for each, so they count twice more."""
    if any(parts > PARTS_OF_GANG for parts in accumulate(map(parts_of, pods))):
        return True
    used = ((pod.metadata.uid, each) for pod in pods for each in pod.spec.resource_claims)
    claims = {each.resource_claim_name or (uid, each.name) for uid, each in used}
    return sum(map(parts_of, pods)) + 2 * len(claims) > PARTS_OF_GANG


def gang_with_devices(view: View, pod: Pod) -> Gang | None:
    """The gang of the pod; None for a pod without one, and for a gang that uses no devices."""
    gang = gang_of(view, pod)
    return gang if gang is not None and any(map(view.uses_devices, (pod, *gang.waiting))) else None


def has_enough(view: View, key: GroupKey, places: Container[str]) -> bool:
    """Whether the gang may run with the members that have a node and those with these UIDs. True for other groups."""
    members = [each for each in view.pods.members(key) if not each.metadata.deletion_timestamp]
    _, size = _group(view, key, members)
    placed = sum(bool(each.spec.node_name) or each.metadata.uid in places for each in members)
    return size is None or (isinstance(size, int) and placed >= size)


def disrupted_together(view: View, pod: Pod) -> tuple[Sequence[Pod], bool]:
    """The pods that are evicted together: of a PodGroup with `disruptionMode: all`, or of a gang that no PodGroup of
    Kubernetes describes; else the pod alone. True for such a PodGroup: one pod that cannot be evicted protects all.
    Users write the annotations and labels of other gangs, so those protect no pod.
    """
    key = group_of(pod)
    if key is None:
        return (pod,), False
    group, size = _group(view, key, (pod,))
    strict = group is not None and group.disrupts_all
    apart = key.source == "PodGroup" or not isinstance(size, int) or size < 2
    if (apart and not strict) or view.pods.in_group(key) > PODS_OF_GANG:
        return (pod,), False
    return view.pods.members(key), strict


def _group(view: View, key: GroupKey, members: Sequence[Pod]) -> tuple[PodGroup | None, int | str | None]:
    """(its PodGroup, if it has one; how many members have to run, see `_size`)."""
    api_group = API_GROUPS.get(key.source)
    group = view.cluster.pod_groups.get(api_group, key.namespace, key.name) if api_group else None
    return group, group.min_count if group is not None else _size(key, members)


def _size(key: GroupKey, members: Sequence[Pod]) -> int | str | None:
    """How many members have to run; a text when that is unknown; None when the group is not a gang."""
    if key.source in API_GROUPS:
        return f"{key} does not exist" if key.source == "PodGroup" else None
    name = SIZES[key.source]
    written = {each.metadata.annotations.get(name, "") for each in members}
    if len(written) != 1:  # 0: its pods are being deleted
        return f"{key}: its pods differ in annotation {name}" if written else None
    text = written.pop()
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text)):
        return f'{key}: annotation {name} of its pods must be a number of pods, not "{text[:MOST_SHOWN]}"'
    return int(text)


def _problem(key: GroupKey, size: int, placed: int, waiting: Sequence[Pod], attributes: Sequence[str]) -> str:
    differing: tuple[tuple[str, Callable[[Pod], object]], ...] = (
        ("schedulers", lambda pod: pod.spec.scheduler_name),
        ("priorities", lambda pod: pod.spec.priority),
        ("topology annotations", lambda pod: tuple(map(pod.metadata.annotations.get, ANNOTATIONS))),
        (f"annotations {SAME}", lambda pod: pod.metadata.annotations.get(SAME)),
    )
    for what, read in differing:
        if len({read(each) for each in waiting}) > 1:
            return f"{key}: its pods have different {what}"
    if wrong := problem_of(attributes):
        return f"{key}: {wrong}"
    if placed + len(waiting) < size:
        return f"{key}: {placed + len(waiting)} of {size} pods exist"
    return ""
