"""Comprehensions with one and two variables, and `cel.bind`.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ('["a"].map(x, $A.nope).distinct() == [] || true', "error"),
    ('["a"].map(x, int(x)).sort() == [] || true', "error"),
    ('["a"].map(x, dyn(x)).sort() == ["a"]', "true"),
    ('["a"].map(x, dyn(int(x))).sort() == ["a"] || true', "true"),
    ('["a"].sortBy(x, int(x)) == [] || true', "error"),
    ('["a"].sortBy(x, dyn(int(x))) == [] || true', "true"),
    ('["b","a"].sortBy(x, dyn(x)) == ["a","b"]', "true"),
    ('[$A.version].exists(v, v in ["a"]) || true', "error"),
    ('$A.exists(k, v, k == "model" && v == "A100")', "true"),
    ("device.attributes.all(d, m, m.size() > 0)", "true"),
    ('device.attributes.transformMap(d, m, m.size())["gpu.example.com"] > 0', "true"),
    ("$A.transformList(k, v, k).size() > 3", "true"),
    ("$A.transformMapEntry(k, v, {v: k}).size() > 0 || true", "error"),
    ("[1,1].transformMapEntry(i, v, {v: i}).size() == 1", "error"),
    ("[1,2].transformMapEntry(i, v, {v: i})[2] == 1", "true"),
    ('{"a": 1}.transformMapEntry(k, v, {k: v, "b": 2}).size() == 2', "true"),
    ('$C.exists(k, $C[k].isGreaterThan(quantity("1Gi")))', "true"),
    ('$A.exists_one(k, k.startsWith("m"))', "false"),
    ('$A.existsOne(k, v, k == "model")', "true"),
    ("[1,2,3].all(x, x > 0 || x / 0 == 1)", "true"),
    ("[1,0].all(x, 1 / x > 0)", "error"),
    ("[0,1].exists(x, 1 / x > 0)", "true"),
    ("[0,1].exists_one(x, 1 / x > 0) || true", "true"),
    ("[1,2].all(x, $A.index)", "error"),
    ("[].all(x, $A.nope)", "true"),
    ("dyn([1]).all(x, x)", "error"),
    ("dyn(1).all(x, true) || true", "true"),
    ('dyn("abc").exists(c, c == "a") || true', "true"),
    ("cel.bind(x, 1 / 0, true)", "true"),
    ("cel.bind(x, 1 / 0, true || x == 1)", "true"),
    ("cel.bind(x, 1 / 0, x == 1 || true)", "true"),
    ("cel.bind(x, 1 / 0, x == 1)", "error"),
    ("cel.bind(x, [1,2], x.all(y, cel.bind(z, y, z > 0)))", "true"),
    ("cel.bind(device, 1, device == 1)", "true"),
    ("[1].all(device, device == 1)", "true"),
    ("[1].all(int, int == 1)", "true"),
    ("cel.bind(x, 1, cel.bind(x, x + 1, x == 2))", "true"),
    ("[[3],[1]].sortBy(x, x[0]) == [[1],[3]]", "true"),
    ('$A.exists(k, k == "model")', "true"),
    ("$A.exists(k, v, v == 3)", "true"),
    ("$A.all(k, v, v == 3)", "false"),
    ("$A.exists_one(k, $A[k] == 3)", "error"),
    ('$A.model.exists(c, c == "A")', "reject"),
    ("[1].existsOne(x, x == 1)", "reject"),
    ("[1].map(x, y, x)", "reject"),
    ("[1].all(1, true)", "reject"),
    ("[1].all(x.y, true)", "reject"),
    ("[1].all(x, x, true)", "reject"),
    ("[1].all(x, y, x == 0 && y == 1)", "true"),
    ("[1, 2].map(x, x > 1, x * 2) == [4]", "true"),
    ("[1, 2].filter(x, x > 1) == [2]", "true"),
    ('{"a": 1}.map(k, k) == ["a"]', "true"),
    ("[[1, 2], [3]].all(x, x.all(y, y > 0))", "true"),
    ("[1].all(x, x.foo)", "reject"),
    ('"abc".all(c, true)', "reject"),
    ("5.all(x, true)", "reject"),
    ("[1].all(__result__, true)", "reject"),
    ("cel.bind(1, 2, true)", "reject"),
    ("cel.bind(x, 1)", "reject"),
    ("foo.bind(x, 1, true)", "reject"),
    ("[1].map(x, [x].map(x, x + 1)[0]) == [2]", "true"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_loops_behave_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
