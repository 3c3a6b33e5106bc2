"""Tests of this room happen in virtual time; most of them begin with a small cluster."""

from __future__ import annotations

import pytest

from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.plugin import pytest_asyncio_loop_factories, seed, world

__all__ = ["pytest_asyncio_loop_factories", "seed", "world"]


@pytest.fixture
def small() -> Objects:
    """Two nodes with two devices each, and the class."""
    return [make_class(), make_node("n1"), make_node("n2"), make_slice("n1", ["a", "b"]), make_slice("n2", ["a", "b"])]


@pytest.fixture
def pending(small: Objects) -> Objects:
    """The small cluster, and pod p with claim c."""
    return [*small, make_claim("c"), make_pod("p", "c")]
