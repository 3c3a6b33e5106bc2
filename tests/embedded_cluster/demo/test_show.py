"""What the demo does, and what it suggests to try."""

from __future__ import annotations

import asyncio
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from embedded_cluster.demo import show
from embedded_cluster.demo.show import DemoOptions, Show, commands, environment
from embedded_cluster.objects import FullPod
from embedded_cluster.scheduler.attempt import Attempts, Outcome
from tests.support.patience import LONGEST


def options(*, samples: bool) -> DemoOptions:
    return DemoOptions(4, 8, 0, 0, Path(), samples, once=False, timeout=1.0)


@pytest.mark.parametrize(("samples", "pods"), [(True, 3), (False, 0)])
def test_pods_are_named_only_where_the_samples_are(samples: bool, pods: int) -> None:
    lines = commands(7, options(samples=samples), "http://127.0.0.1:9")
    assert sum(" -n dra-" in line for line in lines) == pods
    assert any(line.startswith("kill -9 7") for line in lines)
    assert any(line.startswith("kubectl dra shadow --service http://127.0.0.1:9 ") for line in lines)
    assert len({line.index("  # ") for line in lines}) == 1, "the remarks stand below each other"


def test_the_shell_is_told_where_kubectl_finds_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the folder that the demo runs in, where that contains it; unless the plugin is on the PATH."""
    plugin = tmp_path / "checkout" / ".venv" / "bin" / "kubectl-dra"
    plugin.parent.mkdir(parents=True)
    plugin.touch(mode=0o755)
    kubeconfig = tmp_path / "checkout" / ".demo" / "kubeconfig"
    monkeypatch.setattr(sys, "executable", str(plugin.parent / "python"))
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path / "checkout")
    assert environment(kubeconfig) == "export KUBECONFIG=.demo/kubeconfig PATH=$PWD/.venv/bin:$PATH"
    monkeypatch.chdir("/")
    assert environment(kubeconfig).endswith(f" PATH=$PWD/{plugin.parent.relative_to('/')}:$PATH")
    monkeypatch.setenv("PATH", str(plugin.parent))
    assert " PATH=" not in environment(kubeconfig)


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
    assert "18 pods run, 2 wait and say why" in told.getvalue()
