"""What most tests of this room begin with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduling.objects import make_class, make_node, make_slice
from tests.scheduling.world import Replay, replay


@pytest.fixture(name="replay")
def replay_fixture() -> Replay:
    """Tell a story in virtual time."""
    return replay


@pytest.fixture
def small() -> list[Any]:
    """Two nodes with two devices each, and the class."""
    return [make_class(), make_node("n1"), make_node("n2"), make_slice("n1", ["a", "b"]), make_slice("n2", ["a", "b"])]
