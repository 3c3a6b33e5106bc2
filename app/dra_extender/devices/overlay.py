"""Hypothetical states of the cluster: an overlay over inventory and ledger.

Promises: pure. An overlay is immutable; `with_plans`, `without` and `with_nodes` return a new one, and the cluster
does not change. Its cost depends on the number of differences, not on the size of the cluster. Use it within one step
of the event loop: below the differences it shows the live cluster, and its differences are as old as the overlay.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, Final

from dra_extender.api.core import Node
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import AllocationResult, DeviceID, ResourceClaim, ResourceSlice
from dra_extender.devices.holdings import PoolState
from dra_extender.devices.ledger import identity
from dra_extender.devices.nodes import SeenNode
from dra_extender.devices.pools import NodeView, Pool
from dra_extender.devices.readonly import ReadOnlyCluster
from dra_extender.devices.usage import NOTHING, PartUse, PoolHoldings, PoolID, Use, Uses, pool_holdings, uses_of

Planned = tuple[ResourceClaim, AllocationResult]
"""A claim and the devices it would get."""

_NONE: Final[Mapping[Any, Any]] = {}


@dataclass(eq=False)
class Overlay:
    """The state as it is, with plans and nodes added and claims removed.

    `differing`: the known nodes for which an answer may differ from that of the cluster, and the hypothetical ones.
    `touched`: the pools in which something else is held than in the cluster.
    """

    _cluster: ReadOnlyCluster
    _added: Mapping[str, Uses] = field(default_factory=dict)
    """The uses of added claims, by identity."""
    _removed: frozenset[str] = frozenset()
    """Identities of removed claims."""
    _nodes: Mapping[str, SeenNode] = field(default_factory=dict)
    _by_pool: Mapping[PoolID, Uses] = field(default_factory=dict)
    """The uses of added claims by pool."""
    _holdings: dict[PoolID, PoolHoldings | None] = field(default_factory=dict)
    states: dict[Pool, PoolState] = field(default_factory=dict)
    """The states of touched pools, as far as a decision has computed them."""

    def __post_init__(self) -> None:
        gone = {use[0][:2] for each in self._removed for use in self._cluster.ledger.uses(each)}
        self.touched: Set[PoolID] = self._by_pool.keys() | gone

    def with_plans(self, plans: Iterable[Planned]) -> Overlay:
        """The state after these plans are carried out, one after the other. A plan is left out if its claim is decided
        already, or if one of its devices is in use.
        """
        return self._with_uses(plans, lambda uses, free: uses if len(free) == len(uses) else None)

    def holding(self, plans: Iterable[Planned]) -> Overlay:
        """The state in which these plans hold their devices that are free: the others may become free later. A plan is
        left out if its claim is decided already.
        """
        return self._with_uses(plans, lambda uses, free: free or None)

    def _with_uses(self, plans: Iterable[Planned], select: Callable[[Uses, Uses], Uses | None]) -> Overlay:
        """`select` gets all uses of a plan and the free ones, and returns the uses to add; None leaves out the plan."""
        added, by_pool = dict(self._added), dict(self._by_pool)
        own: dict[PoolID, dict[Use, Mapping[str, Quantity]]] = {}
        shares = self._cluster.features.DRAConsumableCapacity
        for claim, allocation in plans:
            name = identity(claim)
            if name in added or self.is_decided(claim):
                continue
            uses = uses_of(allocation, shares=shares)
            free = {use: used for use, used in uses.items() if not self._is_taken(by_pool, *use)}
            found = select(uses, free)
            if found is not None:
                added[name] = found
                for use, used in found.items():
                    pool = use[0][:2]
                    if pool not in own:  # a pool is copied once, when it changes
                        by_pool[pool] = own[pool] = dict(by_pool.get(pool, _NONE))
                    own[pool][use] = used
        if len(added) == len(self._added):
            return self
        return Overlay(self._cluster, added, self._removed, self._nodes, by_pool)

    def without(self, claims: Iterable[ResourceClaim]) -> Overlay:
        """The state without these claims and their devices."""
        gone = {identity(claim) for claim in claims}
        added = {claim: uses for claim, uses in self._added.items() if claim not in gone}
        by_pool: dict[PoolID, dict[Use, Mapping[str, Quantity]]] = {}
        for use, used in chain.from_iterable(uses.items() for uses in added.values()):
            by_pool.setdefault(use[0][:2], {})[use] = used
        return Overlay(self._cluster, added, self._removed | gone, self._nodes, by_pool)

    def with_nodes(self, nodes: Iterable[Node], slices: Iterable[ResourceSlice] = ()) -> Overlay:
        """The state with these additional nodes and their own slices. They also see the open slices. Raises ValueError
        for a node that exists already and for a slice of another node.
        """
        added = {node.name: node for node in nodes}
        for name in added:
            if name in self._cluster.nodes:
                raise ValueError(f"node {name} is there already")
        own: dict[str, list[ResourceSlice]] = {name: [] for name in added}
        for item in slices:
            name = item.spec.node_name or ""
            if name not in own:
                raise ValueError(f"slice {item.metadata.name}: spec.nodeName {name!r} is not an added node")
            own[name].append(item)
        seen = {name: self._cluster.inventory.would_see(node, own[name]) for name, node in added.items()}
        return Overlay(self._cluster, self._added, self._removed, {**self._nodes, **seen}, self._by_pool)

    def has(self, claim: ResourceClaim) -> bool:
        """True if a plan for this claim was added."""
        return identity(claim) in self._added

    def is_decided(self, claim: ResourceClaim) -> bool:
        """As `Ledger.is_decided`, in this state."""
        uid = identity(claim)
        return uid not in self._removed and self._cluster.ledger.is_decided(uid)

    def _is_taken(self, by_pool: Mapping[PoolID, Uses], device: DeviceID, share: str | None) -> bool:
        """True when the device has an owner, or the share exists. The allocator has checked that shares leave room.
        `by_pool`: the uses by added claims. Linear in the owners of the device; if the share exists, in its users.
        """
        added = by_pool.get(device[:2], _NONE)
        if (device, None) in added or (device, share) in added:
            return True
        known = self._cluster.ledger.in_use(device[:2]).get(device[2])
        return known is not None and (
            any(owner not in self._removed for owner in known.owners)
            or (
                share in known.share_ids
                and any(taken == share and user not in self._removed for user, taken in known.shares)
            )
        )

    @cached_property
    def differing(self) -> frozenset[str]:
        seeing = chain.from_iterable(map(self._cluster.inventory.nodes_seeing, self.touched))
        return frozenset(chain(self._nodes, seeing))

    @cached_property
    def differences(self) -> Hashable:
        """What is added and removed. Overlays with equal differences show a node equally unless the cluster changes."""
        uses = chain.from_iterable(uses.items() for uses in self._by_pool.values())
        return frozenset((use, frozenset(used.items())) for use, used in uses), self._removed

    @property
    def is_empty(self) -> bool:
        return not self.touched and not self._nodes

    def differs_for(self, seen: SeenNode) -> bool:
        """True when answers about this node, which is up to date, may differ from those for the cluster."""
        return seen.node.name in self._nodes or any(pool in seen.found or pool in seen.alike for pool in self.touched)

    def hypothetical(self, node: str) -> SeenNode | None:
        """The node if `with_nodes` has added it."""
        return self._nodes.get(node)

    def view(self, node: str) -> NodeView | None:
        """All pools of the node in search order; None when the node is not known."""
        seen = self._nodes.get(node)
        if seen is None:
            return self._cluster.inventory.view(node)
        return NodeView(node, (item.pool for item in seen.pools if item.pool is not None), seen.error)

    def holdings(self, pool: PoolID) -> PoolHoldings | None:
        """What is held in the pool; None when nothing is."""
        if pool not in self.touched:
            return self._cluster.ledger.holdings(pool)
        if pool not in self._holdings:
            uses = self._uses(pool)
            self._holdings[pool] = pool_holdings(uses) if uses else None
        return self._holdings[pool]

    def _uses(self, pool: PoolID) -> dict[str, list[PartUse]]:
        """The uses of the devices of the pool, by device name."""
        found: dict[str, list[PartUse]] = {}
        for name, use in self._cluster.ledger.in_use(pool).items():
            parts: list[PartUse] = [(None, NOTHING) for owner in use.owners if owner not in self._removed]
            parts += [(share, used) for (user, share), used in use.shares.items() if user not in self._removed]
            if parts:
                found[name] = parts
        for (device, share), used in self._by_pool.get(pool, _NONE).items():
            found.setdefault(device[2], []).append((share, used))
        return found
