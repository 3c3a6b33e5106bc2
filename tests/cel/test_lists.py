"""List and set functions.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ('dyn("a").distinct() == [] || true', "error"),
    ("dyn([1]).distinct() == [1]", "true"),
    ('dyn("a").sort() == [] || true', "true"),
    ("dyn([3,1]).sort() == [1,3]", "true"),
    ('[1].flatten(int("a" + "b")) == [] || true', "error"),
    ("[1].flatten(-1) == [] || true", "true"),
    ('dyn([1]).flatten(dyn("a")) == [] || true', "error"),
    ("[dyn(1), dyn(1u), dyn(1.0)].distinct().size() == 1", "true"),
    ("sets.contains([1, 2], [1.0, 2u]) || true", "reject"),
    ("sets.equivalent([1, 1, 2], [2, 1])", "true"),
    ('sets.intersects([$A.version], [dyn("a")]) || true', "true"),
    ("[9223372036854775807, 1].sum() == 0 || true", "true"),
    ('[1,2].min() == 1 && ["b","a"].max() == "b"', "true"),
    ("[].min() == 1 || true", "true"),
    ('dyn([1, "a"]).min() == 1 || true', "reject"),
    ('[dyn(1), dyn("a")].min() == 1', "true"),
    ('[dyn("a"), dyn(1)].max() == "a"', "true"),
    ("[1,2,1].indexOf(1) == 0 && [1,2,1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1", "true"),
    ('[3,1,2].sort() == [1,2,3] && ["b","a"].sort() == ["a","b"]', "true"),
    ("[1,2,3].slice(1, 2) == [2]", "true"),
    ("[1,2,3].slice(2, 1) == [2] || true", "true"),
    ("[1,2,3].slice(0, 4) == [2] || true", "true"),
    ("[1,2,3].reverse() == [3,2,1]", "true"),
    ("[[1],[[2]]].flatten() == [1,[2]] || true", "reject"),
    ("[dyn([1]), dyn([[2]])].flatten(2) == [1, 2]", "true"),
    ("lists.range(3) == [0,1,2] && lists.range(-1) == []", "true"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_list_functions_behave_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
