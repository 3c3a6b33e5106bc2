"""The pods by UID and by name, the PodGroups of both API groups, and which objects were deleted lately.

Promises: the newest version of a pod wins. A late reply does not bring back a deleted pod. Arrays of numbers, not
objects, remember the last `most` deletions: thousands of small objects that outlive the claims around them would keep
the process from returning the memory of these claims.

`PodGroups.put` and `drop` are true when members may fit now: the group is new, created again or gone, or its spec or
annotations have changed. kube-scheduler writes the status after every attempt: that does not cause another one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from dra_extender.api.core import Pod
from dra_extender.api.groups import GroupKey, group_of
from dra_extender.api.scheduling import PodGroup

_MOST_VERSION: Final = 2**64 - 1


class Deletions:
    """Versions of deleted objects by UID, of the last `most`. UIDs are compared by their hashes (64 bits, others in
    each process).
    """

    __slots__ = ("_hashes", "_most", "_order", "_versions")

    def __init__(self, most: int) -> None:
        self._most = most
        self._hashes = array("q")
        """Sorted."""
        self._versions = array("Q")
        """In the order of the hashes."""
        self._order = array("q")
        """The hashes, oldest first."""

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, uid: str) -> bool:
        return self.get(uid) is not None

    def get(self, uid: str) -> int | None:
        """The version that was deleted; None when no deletion is known."""
        found = hash(uid)
        place = bisect_left(self._hashes, found)
        return self._versions[place] if self._is_at(place, found) else None

    def put(self, uid: str, version: int = 0) -> None:
        """The object of this UID was deleted at this version."""
        self.discard(uid)
        if len(self._order) >= self._most:
            self._drop(self._order.pop(0))
        added = hash(uid)
        place = bisect_left(self._hashes, added)
        self._hashes.insert(place, added)
        self._versions.insert(place, min(version, _MOST_VERSION))
        self._order.append(added)

    def discard(self, uid: str) -> None:
        """The object is there again, or was never gone."""
        number = hash(uid)
        if self._drop(number):
            self._order.remove(number)

    def _drop(self, number: int) -> bool:
        place = bisect_left(self._hashes, number)
        if not self._is_at(place, number):
            return False
        del self._hashes[place], self._versions[place]
        return True

    def _is_at(self, place: int, number: int) -> bool:
        return place < len(self._hashes) and self._hashes[place] == number


REMEMBERED_DELETIONS = 10_000


class Pods:
    """Changed by the cluster only."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Pod] = {}
        self._by_name: dict[str, str] = {}
        self._by_group: dict[GroupKey, dict[str, None]] = {}
        self._priorities: Counter[int] = Counter()
        self.newest = 0
        """The highest resourceVersion that a watch or a reply has shown of any pod."""
        self.watched = 0
        """The highest resourceVersion of an event of the watch: all earlier versions of all pods are known."""
        self._deleted = Deletions(REMEMBERED_DELETIONS)

    def apply(self, pod: Pod, *, reply: bool = False) -> bool:
        """A version from the watch, or from a reply, which the watch may be ahead of. True when the pod has a node now,
        and had none before.
        """
        uid = pod.metadata.uid
        self.newest = max(pod.metadata.version, self.newest)
        known = self._by_uid.get(uid)
        if reply and uid in self._deleted:
            return False
        if known is not None and 0 < pod.metadata.version < known.metadata.version:
            return False
        other = self._by_name.get(pod.metadata.key)
        if other is not None and other != uid:
            if 0 < pod.metadata.version < self._by_uid[other].metadata.version:
                self.remove(uid)  # the predecessor of a pod that a reply has brought already
                return False
            self.remove(other)
        self._deleted.discard(uid)
        self._discount(known)
        self._priorities[pod.spec.priority] += 1
        self._by_uid[uid] = pod
        self._by_name[pod.metadata.key] = uid
        group = group_of(pod)
        if known is not None and group_of(known) != group:  # labels and annotations change
            self._leave_group(known)
        if group is not None:
            self._by_group.setdefault(group, {})[uid] = None
        return bool(pod.spec.node_name) and not (known is not None and known.spec.node_name)

    def remove(self, uid: str) -> None:
        """The pod is gone from the API server."""
        known = self._by_uid.pop(uid, None)
        self._discount(known)
        self._deleted.put(uid)
        if known is not None:
            self._leave_group(known)
            if self._by_name.get(known.metadata.key) == uid:
                del self._by_name[known.metadata.key]

    def _leave_group(self, pod: Pod) -> None:
        group = group_of(pod)
        if group is not None and (members := self._by_group.get(group)) is not None:
            members.pop(pod.metadata.uid, None)
            if not members:
                del self._by_group[group]

    def _discount(self, pod: Pod | None) -> None:
        if pod is None:
            return
        self._priorities[pod.spec.priority] -= 1
        if not self._priorities[pod.spec.priority]:
            del self._priorities[pod.spec.priority]

    @property
    def lowest_priority(self) -> int | None:
        """Of all pods; None without pods. Costs as much as there are different priorities."""
        return min(self._priorities, default=None)

    def get(self, uid: str) -> Pod | None:
        return self._by_uid.get(uid)

    def named(self, namespace: str, name: str) -> Pod | None:
        return self.by_key(f"{namespace}/{name}")

    def members(self, group: GroupKey) -> list[Pod]:
        return [self._by_uid[uid] for uid in self._by_group.get(group, ())]

    def in_group(self, group: GroupKey) -> int:
        return len(self._by_group.get(group, ()))

    def by_key(self, key: str) -> Pod | None:
        """As `named`, by `namespace/name`."""
        uid = self._by_name.get(key)
        return self._by_uid.get(uid) if uid is not None else None

    def is_terminating(self, uid: str) -> bool:
        """Whether the pod is known to be deleted, being deleted, or finished: nothing must be started for it."""
        pod = self._by_uid.get(uid)
        return uid in self._deleted if pod is None else bool(pod.metadata.deletion_timestamp) or pod.finished

    def __iter__(self) -> Iterator[Pod]:
        return iter(list(self._by_uid.values()))

    def __len__(self) -> int:
        return len(self._by_uid)


class PodGroups:
    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], PodGroup] = {}
        """By API group and `namespace/name`."""

    def __iter__(self) -> Iterator[PodGroup]:
        return iter(self._groups.values())

    def get(self, api_group: str, namespace: str, name: str) -> PodGroup | None:
        """None if it does not exist, cannot be decoded, or has not been listed yet."""
        return self._groups.get((api_group, f"{namespace}/{name}"))

    def put(self, group: PodGroup) -> bool:
        key, meta = (group.api_group, group.metadata.key), group.metadata
        before, self._groups[key] = self._groups.get(key), group
        now = (meta.uid, group.spec, meta.annotations)
        return before is None or (before.metadata.uid, before.spec, before.metadata.annotations) != now

    def drop(self, api_group: str, key: str) -> bool:
        return self._groups.pop((api_group, key), None) is not None
