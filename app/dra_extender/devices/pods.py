"""The pods as far as we know them, by UID and by name.

Promises: the newest version of a pod wins; a pod that was seen deleted does not come back with a late read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dra_extender.api.core import Pod
from dra_extender.devices.deletions import Deletions

REMEMBERED_DELETIONS = 10_000


class Pods:
    """Changed by the cluster only."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Pod] = {}
        self._by_name: dict[str, str] = {}
        self._priorities: Counter[int] = Counter()
        self._deleted = Deletions(REMEMBERED_DELETIONS)

    def apply(self, pod: Pod, *, reply: bool = False) -> bool:
        """A version from the watch, or from a reply, which the watch may be ahead of. True when the pod has a node now,
        and had none before.
        """
        uid = pod.metadata.uid
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
        return bool(pod.spec.node_name) and not (known is not None and known.spec.node_name)

    def remove(self, uid: str) -> None:
        """The pod is gone from the API server."""
        known = self._by_uid.pop(uid, None)
        self._discount(known)
        self._deleted.put(uid)
        if known is not None and self._by_name.get(known.metadata.key) == uid:
            del self._by_name[known.metadata.key]

    def _discount(self, pod: Pod | None) -> None:
        if pod is None:
            return
        self._priorities[pod.spec.priority] -= 1
        if not self._priorities[pod.spec.priority]:
            del self._priorities[pod.spec.priority]

    @property
    def lowest_priority(self) -> int | None:
        """Of all pods; None when there are none. Costs as much as there are different ones."""
        return min(self._priorities, default=None)

    def get(self, uid: str) -> Pod | None:
        return self._by_uid.get(uid)

    def named(self, namespace: str, name: str) -> Pod | None:
        uid = self._by_name.get(f"{namespace}/{name}")
        return self._by_uid.get(uid) if uid is not None else None

    def leaving(self, uid: str) -> bool:
        """Whether the pod is known to be deleted, being deleted, or finished: nothing must be started for it."""
        pod = self._by_uid.get(uid)
        return uid in self._deleted if pod is None else bool(pod.metadata.deletion_timestamp) or pod.finished

    def __iter__(self) -> Iterator[Pod]:
        return iter(list(self._by_uid.values()))

    def __len__(self) -> int:
        return len(self._by_uid)
