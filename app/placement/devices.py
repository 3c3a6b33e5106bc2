"""Which devices of its node a pod gets: orders in which the search should look at them, and what its solutions cost.

Promises: pure and deterministic; ties keep the published order. An order ranks each device by what taking it alone
would cost, for the first request that can have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from app.allocation.plan import Plan
from app.allocation.requests import PreparedClaims
from app.allocation.selection import candidates, suitability
from app.devices.holdings import PartUse, PoolHoldings, pool_holdings
from app.devices.nodeview import NodeView
from app.devices.pools import Pool
from app.devices.uses import PoolID, uses_of
from app.placement.podshape import PodShape
from app.placement.policies import Cost, Policy
from app.placement.standing import Standing
from app.placement.state import State


class DeviceChooser:
    """For one pod on one node."""

    def __init__(self, policy: Policy, standing: Standing, shape: PodShape, node: str) -> None:
        standing.catch_up()
        self._policy = policy
        self._standing = standing
        self._shape = shape
        self._node = node
        self._before = standing.state(node)

    def orders(self, prepared: PreparedClaims, view: NodeView) -> Iterator[NodeView]:
        """At most one: the cheapest devices first."""
        costs = self._costs(prepared, view)
        pools: list[Pool] = []
        moved = False
        for pool, offset in zip(view.pools, view.offsets, strict=True):
            positions = range(len(pool.names))
            order = sorted(positions, key=lambda position: costs.get(offset + position, _WORST))
            moved = moved or order != list(positions)
            pools.append(pool.reordered(order) if order != list(positions) else pool)
        if moved:
            yield NodeView(view.node, pools, view.error)

    def cost(self, plan: Plan) -> Cost:
        """Of all devices together."""
        parts: dict[PoolID, dict[str, list[PartUse]]] = {}
        for allocation in plan.allocations:
            for (device, share), used in uses_of(allocation, shares=self._standing.shares).items():
                parts.setdefault(device[:2], {}).setdefault(device[2], []).append((share, used))
        return self._cost({pool: pool_holdings(uses) for pool, uses in parts.items()})

    def _costs(self, prepared: PreparedClaims, view: NodeView) -> Mapping[int, Cost]:
        """By bit, of the devices that a request may have."""
        found: dict[int, Cost] = {}
        for request in prepared.requests:
            for ask in request.asks:
                wanted = 0 if ask.admin else candidates(view, ask.filter).usable
                for bit in _bits(wanted):
                    if bit not in found:
                        _, _, name = (device := view.devices[bit]).id
                        takes = suitability(device.model, ask.filter).takes or ()
                        part: PartUse = (
                            ("one", dict(takes)) if device.model.traits.multi and self._standing.shares else (None, {})
                        )
                        found[bit] = self._cost({device.id[:2]: pool_holdings({name: [part]})})
        return found

    def _cost(self, more: Mapping[PoolID, PoolHoldings]) -> Cost:
        state = self._standing.beside(self._node, more)
        cpu, memory = state.cpu - self._shape.cpu, state.memory - self._shape.memory
        return self._policy.cost(self._before, State(state.stock, cpu, memory, state.whole))


_WORST: Cost = (float("inf"), 0.0)


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
