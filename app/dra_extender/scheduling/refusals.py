"""Refusals on all nodes, remembered: kube-scheduler asks again at almost every event in the cluster.

Promises: a remembered answer is given only when a new decision would refuse the pod on all nodes as well: the same
versions of the pod's claims, no node that was not asked about before, and no improvement of the cluster since. It may
give the reason of then where a new decision would find another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from cachetools import LRUCache

from dra_extender.api.resource import ResourceClaim

NODES = 2_000_000
"""How many node names the memory may refer to; a refusal with one reason for all nodes counts as one."""

Signature = tuple[tuple[str, str], ...]


class _Remembered(msgspec.Struct, frozen=True):
    signature: Signature
    generation: int
    names: frozenset[str]
    uniform: str
    refused: Mapping[str, str]
    resolvable: frozenset[str]

    @property
    def size(self) -> int:
        return 1 + len(self.refused) + (0 if self.resolvable is self.names else len(self.resolvable))


def signature(claims: Sequence[ResourceClaim]) -> Signature:
    """What a decision about a pod depends on, apart from the cluster: its claims at their versions."""
    return tuple((claim.metadata.uid, claim.metadata.resource_version) for claim in claims)


class Refusals:
    """By pod UID."""

    def __init__(self, most_nodes: int = NODES) -> None:
        self._remembered: LRUCache[str, _Remembered] = LRUCache(most_nodes, getsizeof=lambda entry: entry.size)
        self._lists: LRUCache[frozenset[str], frozenset[str]] = LRUCache(64)

    def recall(
        self, pod_uid: str, signature: Signature, generation: int, names: Sequence[str]
    ) -> dict[str, str] | None:
        """The reason for each of these nodes, if that is known."""
        found = self._remembered.get(pod_uid)
        if found is None or found.generation != generation or found.signature != signature:
            return None
        if not found.names.issuperset(names):
            return None
        if found.uniform:
            return dict.fromkeys(names, found.uniform)
        return {name: found.refused[name] for name in names}

    def resolvable(self, pod_uid: str) -> frozenset[str]:
        """The nodes of a remembered answer where evicting pods may help: as it was then, too."""
        found = self._remembered.get(pod_uid)
        return found.resolvable if found is not None else frozenset()

    def remember(
        self,
        pod_uid: str,
        signature: Signature,
        generation: int,
        refused: Mapping[str, str],
        resolvable: frozenset[str] = frozenset(),
    ) -> None:
        """The pod was refused on all of these nodes; on the `resolvable` ones evicting pods may help."""
        names = frozenset(refused)
        names = self._lists.setdefault(names, names)
        reasons = set(refused.values())
        uniform = reasons.pop() if len(reasons) == 1 else ""
        entry = _Remembered(
            signature=signature,
            generation=generation,
            names=names,
            uniform=uniform,
            refused={} if uniform else dict(refused),
            resolvable=names if resolvable == names else resolvable,
        )
        if entry.size <= self._remembered.maxsize:
            self._remembered[pod_uid] = entry

    def __len__(self) -> int:
        return len(self._remembered)

    def forget(self, pod_uid: str) -> None:
        self._remembered.pop(pod_uid, None)
