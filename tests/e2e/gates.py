"""Feature gates that tests rest on: where one is not on, they are skipped and say so."""

from __future__ import annotations

from collections.abc import Container, Iterable

import pytest


def skip_without(needed: Iterable[str], there: Container[str], release: str) -> None:
    """Skip the test that asks when not all of these gates are there."""
    if missing := sorted({name for name in needed if name not in there}):
        pytest.skip(f"rests on {', '.join(missing)}, which Kubernetes {release} does not have on")
