"""List attributes and `includes`, with the feature DRAListTypeAttributes on.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ('$A.ints.contains("a") || true', "true"),
    ("$A.ints.exists(i, i == 2)", "true"),
    ("$A.ints == [1, 2, 3]", "true"),
    ('$A.versions.exists(v, v == semver("1.0.0"))', "true"),
    ('$A.versions.includes(semver("1.0.0"))', "true"),
    ('$A.versions.includes("1.0.0")', "false"),
    ("$A.bools.includes(1)", "false"),
    ("$A.ints.includes(1.0)", "true"),
    ("$A.ints.includes(1u)", "true"),
    ("lists.range(48).includes(100)", "false"),
    ("lists.range(49).includes(100) || true", "true"),
    ("lists.range(49).includes(5)", "true"),
    ('$A.features.map(f, f + "x") == ["ax", "bx"]', "true"),
    ('$A.features.filter(f, f == "a").size() == 1', "true"),
    ('$A.features[0] == "a"', "true"),
    ('$A.features[2] == "a" || true', "true"),
    ('"a" in $A.features', "true"),
    ("1 in $A.features", "false"),
    ("$A.ints.sum() == 6", "true"),
    ("$A.ints.max() == 3", "true"),
    ('$A.features.join("-") == "a-b"', "true"),
    ("$A.features.size() == 2", "true"),
    ('$A.features.sort() == ["a", "b"]', "true"),
    ("$A.features.distinct().size() == 2", "true"),
    ('sets.contains($A.features, ["a"])', "true"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_list_attributes_are_understood_as_upstream_understands_them(
    verdict: Callable[..., str], expression: str, answer: str
) -> None:
    assert verdict(expression, lists=True) == answer
