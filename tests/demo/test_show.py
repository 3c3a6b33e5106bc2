"""What the demo suggests to try."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.demo.show import Options, commands


def options(*, samples: bool) -> Options:
    return Options(4, 8, 0, 0, Path(), samples, once=False, timeout=1.0)


@pytest.mark.parametrize(("samples", "pods"), [(True, 3), (False, 0)])
def test_pods_are_named_only_where_the_samples_are(samples: bool, pods: int) -> None:
    lines = commands(7, options(samples=samples))
    assert sum(" -n dra-" in line for line in lines) == pods
    assert any(line.startswith("kill -9 7") for line in lines)
    assert len({line.index("  # ") for line in lines}) == 1, "the remarks stand below each other"
