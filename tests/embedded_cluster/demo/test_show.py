"""What the demo does, and what it suggests to try."""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from embedded_cluster.demo import show
from embedded_cluster.demo.show import DemoOptions, Show, commands
from embedded_cluster.objects import FullPod
from embedded_cluster.scheduler.attempt import Attempts, Outcome
from tests.support.patience import LONGEST


def options(*, samples: bool) -> DemoOptions:
    return DemoOptions(4, 8, 0, 0, Path(), samples, once=False, timeout=1.0)


@pytest.mark.parametrize(("samples", "pods"), [(True, 3), (False, 0)])
def test_pods_are_named_only_where_the_samples_are(samples: bool, pods: int) -> None:
    lines = commands(7, options(samples=samples))
    assert sum(" -n dra-" in line for line in lines) == pods
    assert any(line.startswith("kill -9 7") for line in lines)
    assert len({line.index("  # ") for line in lines}) == 1, "the remarks stand below each other"


@pytest.mark.slow
async def test_samples_get_their_devices_in_order_however_slow_the_scheduler_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler that thinks for so long that all samples could be there before it has tried their first pod."""
    tried = Attempts.run

    async def slow(attempts: Attempts, pod: FullPod, wire: bytes) -> Outcome:
        await asyncio.sleep(0.1)
        return await tried(attempts, pod, wire)

    monkeypatch.setattr(Attempts, "run", slow)
    monkeypatch.setattr(show, "_MOMENT", 0.0)
    told = StringIO()
    once = DemoOptions(4, 8, 0, 0, tmp_path, with_samples=True, once=True, timeout=LONGEST)
    assert await Show(once, Console(file=told, width=160)).run() == 0, told.getvalue()
    assert "16 pods run, 2 wait and say why" in told.getvalue()
