"""What a census says of devices: structs for JSON and for people.

Promises: everything in it is a text, a number, or one of these structs, so that it can be encoded as it is. Amounts are
texts in the units of their slices; what is not so is left out of the JSON (`omit_defaults`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

State = Literal["free", "shared", "used", "blocked", "tainted", "unusable"]
"""In this order of strength, the last that is true: `free`; `blocked`: nobody has the device, but others have
taken counters that it needs; `tainted`: nobody has it, and a taint keeps pods away that do not tolerate it; `shared`:
claims have shares of it; `used`: a claim has it alone; `unusable`: nothing can be allocated of its pool, or of it with
these feature gates, and nobody has it.
"""
STATES: Final[tuple[State, ...]] = get_args(State)


class Amount(msgspec.Struct, frozen=True, gc=False):
    """A capacity of a device, or a counter (set/counter) of its pool that it consumes: `used` by claims `of` all."""

    name: str
    used: str
    of: str
    percent: float


class Holding(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A claim (namespace/name) that has the device, or with `share` (its ID) a part of it that consumes this capacity.
    `pods` are the names of the consumers that the claim is reserved for. `in_flight`: a bind that is under way decided
    it; the API server does not have it yet.
    """

    claim: str
    pods: tuple[str, ...] = ()
    share: str = ""
    consumed: Mapping[str, str] = {}
    in_flight: bool = False

    @property
    def namespace(self) -> str:
        return self.claim.partition("/")[0]


class CountedDevice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One device. `node` is empty when the device is not one node's own. `classes`: those whose selectors it satisfies.
    `taints`: those that keep pods away, as key=value:effect. `capacity`: for a device that may be shared. `counters`:
    those it consumes. `fill`: percent that is taken of the device; that of its fullest capacity when it is shared.
    """

    driver: str
    pool: str
    name: str
    state: State
    node: str = ""
    classes: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    capacity: tuple[Amount, ...] = ()
    counters: tuple[Amount, ...] = ()
    holders: tuple[Holding, ...] = ()
    fill: float = 0.0
    problem: str = ""
    """Why it is unusable."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """How many `devices` there are, how many in each state, and what percent of them is taken."""

    devices: int = 0
    free: int = 0
    shared: int = 0
    used: int = 0
    blocked: int = 0
    tainted: int = 0
    unusable: int = 0
    fill: float = 0.0


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """Devices by driver, pool and slice, and `totals` of these. `next`: pass it as `after` to get those that
    follow; empty when these were the last. `complete`: false when a selector of a class is still being evaluated, so
    that devices may lack classes.
    """

    devices: tuple[CountedDevice, ...]
    totals: Totals
    next: str = ""
    complete: bool = True
