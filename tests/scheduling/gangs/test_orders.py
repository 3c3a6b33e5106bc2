"""All orders of what happens to two gangs: `tools/exploration/gangs.py` says what must hold after each step."""

from __future__ import annotations

import pytest

from dra_extender.scheduling.gangs.plans import GangPlans
from tools.exploration.gangs import Broken, Order, explore
from tools.exploration.gangscenes import QUICK, SLOW, Scene


@pytest.mark.parametrize("scene", QUICK, ids=lambda scene: scene.name)
def test_no_order_leaves_a_gang_in_part_or_devices_held(scene: Scene) -> None:
    assert explore(scene) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("scene", SLOW, ids=lambda scene: scene.name)
def test_no_order_with_others_leaves_a_gang_in_part_or_devices_held(scene: Scene) -> None:
    assert explore(scene) >= 20


def test_without_the_devices_that_plans_hold_an_order_leaves_gangs_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GangPlans, "kept_for_others", lambda *args: ())
    monkeypatch.setattr(GangPlans, "kept_from", lambda *args: ())
    with pytest.raises(Broken):
        explore(QUICK[0])


def test_every_order_is_run_once() -> None:
    orders: set[tuple[int, ...]] = set()
    given: list[int] | None = []
    while given is not None:
        order = Order(given)
        orders.add(tuple(order.choose(count) for count in (2, 3, 2)))
        given = order.next()
    assert len(orders) == 12
