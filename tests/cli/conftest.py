"""A small cluster behind an API server, and how commands are told where it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dra_extender.cli.source import Source
from tests.support.service.world import World, populated


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with populated() as made:
        yield made


@pytest.fixture
def kubeconfig(world: World, tmp_path: Path) -> Path:
    return world.api.write_kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def source(kubeconfig: Path) -> Source:
    return Source(kubeconfig=str(kubeconfig))
