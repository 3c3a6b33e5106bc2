"""What is fed in: enough, from a seed, and what an API server takes."""

from __future__ import annotations

import random

import msgspec
import pytest

from embedded_cluster.apiserver.validation.parts import selector_problem
from tools.hostile.catalogue import catalogue
from tools.hostile.selectors import LONGEST, NAMED, Grammar
from tools.hostile.things import MOST_BYTES, Objects


@pytest.mark.slow
def test_a_seed_makes_the_same_things_again_and_enough_of_them() -> None:
    """One test, because a catalogue takes seconds to make."""
    things = catalogue(1)
    assert len(things) >= 120
    assert sum(thing.generated for thing in things) >= len(things) / 2
    names = [thing.name for thing in things]
    assert sorted(set(names)) == sorted(names)
    bodies = [body for thing in things if isinstance(thing.act, Objects) for body in thing.act.bodies]
    assert max(len(msgspec.json.encode(body)) for body in bodies) <= MOST_BYTES  # what etcd takes
    assert catalogue(1) == things
    assert catalogue(2) != things


def test_the_539_byte_selector_has_539_bytes() -> None:
    assert len(NAMED["the 539-byte selector"][1]) == 539
    assert len(NAMED["the 1,142-byte selector"][1]) == 1142


@pytest.mark.parametrize("family", Grammar(random.Random(0)).families)
def test_what_the_grammar_makes_is_a_selector_that_type_checks(family: str) -> None:
    grammar = Grammar(random.Random(7))
    expressions = [grammar.expression(family) for _ in range(20)]
    assert max(map(len, expressions)) <= LONGEST
    refused = [text for text in expressions if selector_problem(text)]
    assert len(refused) <= 2, refused  # two repetitions may be too large for a pattern of RE2
