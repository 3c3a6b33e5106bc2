"""Tallies: how many devices of a node each rule leaves for a pod's claims, and the values that the rule compared.

Promises: devices that the class does not select count in `others` only, not as a loss. A tally names only devices in
use and devices for which a selector fails. `anonymous` removes these names, so nodes that differ only in names have
equal tallies.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from dra_extender.allocation.plan import Feasibility, PoolProblem, Rule, Stuck


class ValueTally(msgspec.Struct, frozen=True):
    """`count` devices have this value; `text` is empty for devices without one."""

    text: str
    count: int


class ClauseTally(msgspec.Struct, frozen=True):
    """One term of a selector's `&&`. `source`: whose selector it is, of this `index`; `number`: which of its clauses.

    Of the devices that get to the selector `excluded` do not satisfy the clause, and it fails for `failed`. `reads`:
    the one thing that it reads, empty when there are several; `values`: which values that has, the most common first.
    """

    source: Literal["class", "request"]
    index: int
    number: int
    text: str
    excluded: int
    failed: int = 0
    reads: str = ""
    values: tuple[ValueTally, ...] = ()


class TaintTally(msgspec.Struct, frozen=True):
    """`count` devices have this taint, which the request does not tolerate."""

    key: str
    value: str
    effect: str
    count: int


class CapacityTally(msgspec.Struct, frozen=True):
    """`asked` of a capacity (empty: all of it), against the most that a device has, and has left. `amounts`: what
    devices have left, the largest first. `devices` have the capacity at all.
    """

    name: str
    asked: str
    most: str
    left: str
    devices: int
    amounts: tuple[str, ...] = ()


class CounterTally(msgspec.Struct, frozen=True):
    """The least that a device without enough consumes of a counter, and the most that is left."""

    counter_set: str
    counter: str
    asked: str
    left: str


class ErrorTally(msgspec.Struct, frozen=True):
    """A selector fails for `count` devices. `problem` is what it says of `device`, `hint` what to do about it, `key`
    the name that the device does not have, if it is about one, `near` the one it has that is nearly the same as `word`
    of the expression; `source`, `index`: which selector it is.
    """

    source: Literal["class", "request", "node"]
    index: int
    expression: str
    problem: str
    device: str
    count: int
    hint: str = ""
    key: str = ""
    word: str = ""
    near: str = ""


class RuleCount(msgspec.Struct, frozen=True):
    """`count` devices that a rule takes away."""

    rule: Rule
    count: int


class Held(msgspec.Struct, frozen=True):
    """A device that is allocated, or shared."""

    driver: str
    pool: str
    device: str


class RequestTally(msgspec.Struct, frozen=True):
    """One request, or one of its alternatives (`request/alternative`), and the devices of its class.

    `wanted` devices are asked for (with `all`: as many as there are); the class selects `offered` of them, and not
    `others`; `losses` say in order which rule takes how many away, and `left` stay. `held` are names of devices in use.
    """

    claim: str
    request: str
    class_name: str
    wanted: int
    all: bool
    offered: int
    others: int
    losses: tuple[RuleCount, ...]
    left: int
    clauses: tuple[ClauseTally, ...] = ()
    taints: tuple[TaintTally, ...] = ()
    capacities: tuple[CapacityTally, ...] = ()
    counters: tuple[CounterTally, ...] = ()
    errors: tuple[ErrorTally, ...] = ()
    held: tuple[Held, ...] = ()


class ConstraintTally(msgspec.Struct, frozen=True):
    """A constraint of a claim over these requests: together they want `wanted` devices, and at most `best` of those
    that the other rules leave satisfy it together. `missing`: how many of them do not have the attribute.
    """

    claim: str
    index: int
    kind: Literal["matchAttribute", "distinctAttribute"]
    attribute: str
    requests: tuple[str, ...]
    wanted: int
    best: int
    missing: int


class NodeTally(msgspec.Struct, frozen=True):
    """One node. `stuck`: where the search could not go on. Requests without alternatives ask for `wanted` devices
    together, of which there are `available`.
    """

    node: str
    verdict: Feasibility
    reason: str
    requests: tuple[RequestTally, ...] = ()
    constraints: tuple[ConstraintTally, ...] = ()
    stuck: Stuck | None = None
    pools: tuple[PoolProblem, ...] = ()
    wanted: int = 0
    available: int = 0

    def anonymous(self) -> NodeTally:
        """Without the names by which nodes that are alike differ."""
        pools = tuple(msgspec.structs.replace(found, pool="", problem="") for found in self.pools)
        return msgspec.structs.replace(self, node="", requests=tuple(map(_anonymous, self.requests)), pools=pools)


def _anonymous(request: RequestTally) -> RequestTally:
    errors = tuple(msgspec.structs.replace(found, device="") for found in request.errors)
    return msgspec.structs.replace(request, held=(), errors=errors)
