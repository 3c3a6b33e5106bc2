"""The state of a node as policies judge it: its devices, and the CPU and memory beside them."""

from __future__ import annotations

from typing import NamedTuple

from dra_extender.placement.load import Load
from dra_extender.placement.stock import Stock


class State(NamedTuple):
    """`cpu` and `memory` are what is left, in millicores and bytes; `whole` is what the node has."""

    stock: Stock
    cpu: float
    memory: float
    whole: Load
