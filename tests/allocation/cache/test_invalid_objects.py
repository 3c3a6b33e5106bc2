"""Bad objects in the cache of verdicts: a pod meets an error only when it reaches one, and all others go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dra_extender.allocation.plan import Failure, Plan
from tests.support.allocation.manynodes import exactly, nodes, selector, units, wanted

Json = dict[str, Any]

INVALID: dict[str, Json] = {
    "a selector on a missing attribute": selector("device.attributes['gpu'].missing == 1"),
    "a selector that does not compile": selector("device.attributes["),
    "a selector that is no condition": selector("1 + 1"),
    "a deeply nested selector": selector("(" * 32 + "true" + ")" * 32 + " && 1"),
    "an overlong selector": selector('"' + "x" * 10_240 + '" == ""' + " && 1"),
}

SLICES: dict[str, Sequence[Json]] = {
    "duplicate devices": [{"name": "d0"}, {"name": "d0"}],
    "a counter set that is missing": [{"name": "d0", **units("1")}],
}


class TestInvalidObjects:
    """A pod meets an error only when it reaches the invalid object; all other pods go on."""

    @pytest.mark.parametrize("invalid", INVALID.values(), ids=INVALID)
    def test_a_bad_selector_concerns_its_own_pod_only(self, invalid: Json) -> None:
        world = nodes([{}])
        before = world.ask(wanted(exactly()))
        found = world.decisions.node_results([wanted(exactly(1, **invalid), name="bad")], world.names)
        assert found.error.startswith(("claim ns/bad: selector #0: CEL",))
        assert isinstance(world.decisions.plan([wanted(exactly(1, **invalid))], "n0"), Failure)
        assert world.ask(wanted(exactly())) == before

    @pytest.mark.parametrize("invalid", INVALID.values(), ids=INVALID)
    def test_a_bad_class_concerns_its_own_users_only(self, invalid: Json) -> None:
        world = nodes([{}])
        before = world.ask(wanted(exactly()))
        world.put_class("bad", invalid["selectors"][0]["cel"]["expression"])
        claim = wanted({"name": "r", "exactly": exactly()["exactly"] | {"deviceClassName": "bad"}})
        found = world.decisions.node_results([claim], world.names)
        assert found.error.startswith("class bad: selector #0: CEL")
        assert world.ask(wanted(exactly())) == before

    @pytest.mark.parametrize("devices", SLICES.values(), ids=SLICES)
    def test_a_bad_slice_is_named_and_concerns_its_own_pool_only(self, devices: Sequence[Json]) -> None:
        world = nodes(*[[{}, {}]] * 2)
        pool = {"name": "bad", "generation": 1, "resourceSliceCount": 1}
        world.put_slice("bad", {"driver": "gpu", "pool": pool, "nodeName": "n1", "devices": devices})
        assert world.ask(wanted(exactly(2))) == ("n0 n1", "")
        assert [str(problem.object) for problem in world.cluster.problems] == ["ResourceSlice bad"]
        assert isinstance(world.decisions.plan([wanted(exactly(2))], "n1"), Plan)
