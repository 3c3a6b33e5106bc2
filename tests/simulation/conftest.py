"""Tests of the simulation, which happen in it."""

from __future__ import annotations

from tests.support.simulation.plugin import pytest_asyncio_loop_factories, seed, world

__all__ = ["pytest_asyncio_loop_factories", "seed", "world"]
