"""Which end-to-end tests can run, by what there is to run them against; the others are skipped and say why."""

from __future__ import annotations

from collections.abc import Container, Iterable

import pytest

from tests.e2e import existing
from tests.e2e.components import NotBuiltError, assets


def skip_what_cannot_run(items: Iterable[pytest.Item]) -> None:
    """Tests marked e2e need binaries; those marked `own_plane` need more of it than an existing cluster gives."""
    real = [item for item in items if item.get_closest_marker("e2e")]
    if existing.chosen() is not None:
        # Binaries that are missing are an error then: the cluster was named on purpose.
        for item in real:
            for marker in item.iter_markers("own_plane"):
                item.add_marker(pytest.mark.skip(reason=f"not with an existing cluster: {marker.args[0]}"))
        return
    try:
        assets()
    except NotBuiltError as problem:
        for item in real:
            item.add_marker(pytest.mark.skip(reason=str(problem)))


def skip_without(needed: Iterable[str], there: Container[str], release: str) -> None:
    """Skip the test that calls this unless all the feature gates it needs are on."""
    if missing := sorted({name for name in needed if name not in there}):
        pytest.skip(f"rests on {', '.join(missing)}, which Kubernetes {release} does not have on")
