"""Quantities and semantic versions.

The answers were observed on upstream's own evaluator (dynamic-resource-allocation 0.36.2).
"""

from collections.abc import Callable

import pytest

OBSERVED = [
    ('quantity("1") in [quantity("1")]', "true"),
    ('{quantity("1"): 1} == {quantity("1"): 1}', "false"),
    ('type(quantity("1")) == type(quantity("2"))', "true"),
    ('type($A.version) == type(semver("1.0.0"))', "true"),
    ('[quantity("1"), quantity("1000m")].distinct().size() == 1', "true"),
    ('[semver("1.0.0+a"), semver("1.0.0+b")].distinct().size() == 1', "true"),
    ('[semver("1.0.0")].sort().size() == 1 || true', "reject"),
    ('[dyn(semver("1.0.0"))].sort().size() == 1 || true', "true"),
    ('quantity("1").add(quantity("1")) == quantity("2")', "true"),
    ('quantity("2") == quantity("1").add(quantity("1")) || true', "true"),
    ('quantity("1").add(1).sub(1).isInteger()', "true"),
    ('quantity("1Gi").asInteger() == 1073741824', "true"),
    ('quantity("100Ti").asInteger() == 1 || true', "true"),
    ('quantity("1.5").asApproximateFloat() == 1.5', "true"),
    ('sign(quantity("-1")) == -1', "true"),
    ('semver("18446744073709551615.0.0").major() == -1', "true"),
    ('semver("1.2.3").compareTo(semver("1.2.3-rc")) == 1', "true"),
    ("$A.version.isLessThan($A.pre)", "true"),
    ('$A.version.compareTo(quantity("1")) == 0 || true', "true"),
    ('$C.memory > quantity("1Gi")', "reject"),
    ('$C.memory == "40Gi"', "reject"),
    ('$C.memory.isGreaterThan("1Gi")', "reject"),
    ('$C.memory.isGreaterThan(quantity("1Gi"))', "true"),
    ('$C.memory.compareTo(quantity("40960Mi")) == 0', "true"),
    ('$C.memory == quantity("40960Mi")', "true"),
    ('quantity("40960Mi") == $C.memory', "true"),
    ('$C.memory != quantity("1Gi")', "true"),
    ('$C.nope == quantity("1Gi")', "error"),
    ("$C.cores.asInteger() == 108", "true"),
    ("$C.frac.isInteger()", "false"),
    ('quantity("200K").isInteger()', "error"),
    ('isQuantity("200K")', "false"),
    ('isQuantity(".")', "true"),
    ('quantity("1").sign() == 1', "reject"),
    ('quantity("16Ei") == quantity("9223372036854775807")', "true"),
    ('quantity("0.1n") == quantity("1n")', "true"),
    ('$A.version > semver("1.0.0")', "reject"),
    ('$A.version.isGreaterThan(semver("1.2.3"))', "true"),
    ('$A.version == semver("1.3.0+x")', "true"),
    ('$A.version == "1.3.0"', "error"),
    ('"1.3.0" == $A.version', "false"),
    ('$A.version != "1.3.0"', "true"),
    ('$A.model.isGreaterThan(semver("1.0.0"))', "error"),
    ('$A.pre.isLessThan(semver("2.0.0"))', "true"),
    ("$A.version.major() == 1 && $A.version.minor() == 3 && $A.version.patch() == 0", "true"),
    ('semver("v1.0") == semver("1.0.0")', "error"),
    ('semver("v1.0", true) == semver("1.0.0")', "true"),
    ('isSemver("01.0.0")', "false"),
    ('isSemver("01.0.0", true)', "true"),
    ('semver("1-rc", true) == semver("1.0.0")', "error"),
    ('[quantity("1")] == [quantity("1000m")]', "true"),
    ('(true ? optional.of(quantity("1")) : optional.none()).hasValue()', "true"),
    ('(true ? optional.of(quantity("1")) : optional.none()).value() == quantity("1")', "error"),
]


@pytest.mark.parametrize(("expression", "answer"), OBSERVED)
def test_quantities_and_versions_behave_as_upstream(verdict: Callable[..., str], expression: str, answer: str) -> None:
    assert verdict(expression) == answer
