"""The members of a gang by kind: members of one kind want the same of nodes and devices.

Promises: pure. Members are of one kind only if any of them can take the place of any other. A claim that members share
is one claim, so members with different shared claims are of different kinds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from dra_extender.devices.ledger import identity
from dra_extender.scheduling.feasibility import PreFilterState
from dra_extender.scheduling.noderules import Wants
from dra_extender.scheduling.view import View


class Member(msgspec.Struct, frozen=True):
    """A pod of the gang that has to be placed, and the nodes it may use. `rules`: what it wants of a node besides
    devices; equal for pods that may use the same nodes.
    """

    prefiltered: PreFilterState
    nodes: Sequence[str]
    rules: Hashable

    @property
    def uid(self) -> str:
        return self.prefiltered.pod.metadata.uid


class Kind:
    """Members that are interchangeable. `cost`: units of work to compare one of them with a node. `capacity`: by node,
    how many of them fit there alone, at least one.
    """

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.cost = 4 + Wants(members[0].prefiltered.pod).cost
        self.capacity: dict[str, int] = {}
        self.order: Sequence[str] = ()
        self.left: list[int] = []
        """By index of `order`: how many fit at most on the nodes from there on."""


def grouped(view: View, members: Sequence[Member]) -> list[list[Member]]:
    """The members by kind, those with the most demanding claims first. Raises TurnSpent and Deferred."""
    shared = Counter(
        chain.from_iterable({identity(claim) for claim in each.prefiltered.claims.pending} for each in members)
    )
    kinds: dict[Hashable, list[Member]] = {}
    for member in members:
        kinds.setdefault(_kind(view, member, shared), []).append(member)
    return sorted(kinds.values(), key=lambda kind: -len(kind[0].prefiltered.claims.pending))


def _kind(view: View, member: Member, shared: Mapping[str, int]) -> Hashable:
    prefiltered = member.prefiltered
    pending = prefiltered.claims.pending
    signatures = view.decisions.signatures(pending)
    return (
        tuple(
            identity(claim) if shared[identity(claim)] > 1 else signature
            for claim, signature in zip(pending, signatures, strict=True)
        ),
        tuple(claim.metadata.uid for claim in prefiltered.claims.allocated),
        id(member.nodes),
        member.rules,
    )


def counts(most: Sequence[int], needed: int) -> Iterator[tuple[int, ...]]:
    """How many members of each kind to place: as many as possible first, down to `needed` together."""

    def with_sum(total: int, index: int) -> Iterator[tuple[int, ...]]:
        rest = sum(most[index + 1 :])
        if index == len(most):
            yield ()
            return
        for count in range(min(most[index], total), max(0, total - rest) - 1, -1):
            for others in with_sum(total - count, index + 1):
                yield (count, *others)

    for total in range(sum(most), needed - 1, -1):
        yield from with_sum(total, 0)
