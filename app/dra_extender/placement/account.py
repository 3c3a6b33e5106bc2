"""Why a policy chose a node and devices, in its own terms: the account that people get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from dra_extender.placement.podshape import EVERY, Need
from dra_extender.plurals import counted

SHOWN_NODES: Final = 5
SHOWN_LOSSES: Final = 3
_GIB: Final = 2**30


class NodeAccount(msgspec.Struct, frozen=True):
    """What a node would cost the policy, less is better, and why: `terms` for people."""

    node: str
    cost: float
    terms: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"node {self.node}: {self.cost:.4g}"
        yield from (f"  {term}" for term in self.terms)


class Account(msgspec.Struct, frozen=True):
    """`nodes` are the best of those that fit, the chosen one first. `devices` of the chosen node are what the pod would
    get there; `first` what it would get without the policy.
    """

    policy: str
    basis: str
    """What the costs are, in words."""
    nodes: tuple[NodeAccount, ...]
    devices: tuple[str, ...] = ()
    first: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"placement by {self.policy}: {self.basis}"
        for node in self.nodes:
            yield from (f"  {line}" for line in node.lines())
        if self.devices:
            instead = f" (first-fit: {', '.join(self.first)})" if self.first != self.devices else ""
            yield f"  devices on {self.nodes[0].node}: {', '.join(self.devices)}{instead}"


def described(cpu: int, memory: int, need: Need) -> str:
    """A pod shape for people."""
    parts = []
    if cpu:
        parts.append(f"{cpu / 1000:g} CPU")
    if memory:
        parts.append(f"{memory / _GIB:.3g}Gi")
    for demand in need:
        filter, count = demand.alternatives[0]
        amounts = "".join(f" with {name} {amount}" for name, amount in filter.capacity.items())
        parts.append(("all devices" if count == EVERY else counted(count, "device")) + amounts)
        if filter.selectors:
            parts[-1] += f" where {' && '.join(filter.selectors)}"
    return ", ".join(parts) or "nothing"
