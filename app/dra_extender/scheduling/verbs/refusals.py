"""What filter remembers of the pods that it refused on all nodes.

`Refusals` promises: kube-scheduler asks again at almost every event in the cluster, so a refusal on all nodes is
remembered. It is repeated only when a new decision would refuse the pod on all nodes as well: the pod's claims have the
same versions, every node was asked about before, and nothing has improved since. The reason may be an earlier one. The
memory of lists of nodes holds a limited number of names; the least recent lists leave it first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import ReferenceType, ref

import msgspec
from cachetools import LRUCache

from dra_extender.api.resource import ResourceClaim

NODES = 2_000_000
"""How many names all different lists of nodes may have. A refusal with one reason for all nodes counts as one name."""

Signature = tuple[tuple[str, str], ...]


class _Remembered(msgspec.Struct, frozen=True):
    """`names` and `resolvable` are kept by the lists that pods share."""

    signature: Signature
    revision: int
    names: ReferenceType[frozenset[str]]
    uniform: str
    refused: Mapping[str, str]
    resolvable: ReferenceType[frozenset[str]]

    @property
    def size(self) -> int:
        return 1 + len(self.refused)


def signature(claims: Sequence[ResourceClaim]) -> Signature:
    """What a decision about a pod depends on, apart from the cluster: its claims at their versions."""
    return tuple((claim.metadata.uid, claim.metadata.resource_version) for claim in claims)


class Refusals:
    """By pod UID."""

    def __init__(self, most_nodes: int = NODES) -> None:
        self._remembered: LRUCache[str, _Remembered] = LRUCache(most_nodes, getsizeof=lambda entry: entry.size)
        self._lists: LRUCache[frozenset[str], frozenset[str]] = LRUCache(most_nodes, getsizeof=len)

    def recall(self, pod_uid: str, signature: Signature, revision: int, names: Sequence[str]) -> dict[str, str] | None:
        """The reason for each of these nodes, if that is known."""
        found = self._remembered.get(pod_uid)
        if found is None or found.revision != revision or found.signature != signature:
            return None
        known = found.names()
        if known is None or found.resolvable() is None or not known.issuperset(names):
            return None
        if found.uniform:
            return dict.fromkeys(names, found.uniform)
        return {name: found.refused[name] for name in names}

    def resolvable(self, pod_uid: str) -> frozenset[str]:
        """The nodes where evicting pods might help when the answer was remembered."""
        found = self._remembered.get(pod_uid)
        return (found.resolvable() if found is not None else None) or frozenset()

    def remember(
        self,
        pod_uid: str,
        signature: Signature,
        revision: int,
        refused: Mapping[str, str],
        resolvable: frozenset[str] = frozenset(),
    ) -> None:
        """The pod was refused on all of these nodes; on the `resolvable` ones evicting pods may help."""
        if len(refused) >= self._lists.maxsize:
            return
        names = frozenset(refused)
        reasons = set(refused.values())
        uniform = reasons.pop() if len(reasons) == 1 else ""
        self._remembered[pod_uid] = _Remembered(
            signature=signature,
            revision=revision,
            names=ref(self._lists.setdefault(names, names)),
            uniform=uniform,
            refused={} if uniform else dict(refused),
            resolvable=ref(self._lists.setdefault(resolvable, resolvable)),
        )

    def __len__(self) -> int:
        return len(self._remembered)

    def forget(self, pod_uid: str) -> None:
        self._remembered.pop(pod_uid, None)
