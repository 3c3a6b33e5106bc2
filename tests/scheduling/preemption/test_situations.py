"""Who is preempted: the table, one situation each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import yamlfiles
from tests.support.scheduling.preempting import Situation

SITUATIONS: list[dict[str, Any]] = yamlfiles.read(Path(__file__).with_name("situations.yaml"))


@pytest.mark.parametrize("told", SITUATIONS, ids=[told["name"] for told in SITUATIONS])
def test_who_is_preempted(told: dict[str, Any]) -> None:
    assert Situation(told).text() == told["expect"]


def test_no_situation_is_told_twice() -> None:
    names = [told["name"] for told in SITUATIONS]
    assert len(names) == len(set(names))
