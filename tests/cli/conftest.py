"""A small cluster behind an API server, and the options of commands that read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dra_extender.cli.questions import Source
from tests.support.kube.scripted import ScriptedServer, serving
from tests.support.service.world import World, populated

S = TypeVar("S", bound=Source)


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


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with serving() as scripted:
        yield scripted


def options(kind: type[S], source: Source, **more: Any) -> S:
    """The options of a command that reads this cluster or file."""
    return kind(**{name: getattr(source, name) for name in Source.__struct_fields__}, **more)
