"""All hostile things of a run, in order, from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tools.hostile import calls, connections, drivers, lines, searches, selectors, shapes, specs
from tools.hostile.things import Thing

EACH = 22
"""Generated selectors of each family."""


def catalogue(seed: int, *, each: int = EACH) -> list[Thing]:
    """The same for the same seed; things of a family stand together. More than half of them is generated."""
    dice = random.Random(seed)
    made = list(_all(dice, each))
    families = list(dict.fromkeys(thing.family for thing in made))
    return sorted(made, key=lambda thing: families.index(thing.family))


def _all(dice: random.Random, each: int) -> Iterator[Thing]:
    yield from selectors.named()
    yield from selectors.generated(dice, each)
    yield from shapes.claims(dice)
    yield from shapes.published(dice)
    yield from searches.things(dice)
    yield from searches.expensive_claims(dice)
    yield from shapes.crowds()
    yield from shapes.lists(dice)
    yield from shapes.bombs(dice)
    yield from lines.things(dice)
    yield from specs.things(dice)
    yield from drivers.things(dice)
    yield from connections.things(dice)
    yield from calls.things(dice)
