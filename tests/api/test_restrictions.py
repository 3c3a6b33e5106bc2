"""Tolerations that are looked up are the same as those that are gone through one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.core import Taint, Toleration
from dra_extender.api.tolerations import Tolerations

EFFECTS = st.sampled_from(("", "NoSchedule", "NoExecute", "PreferNoSchedule"))
KEYS = st.sampled_from(("", "a", "b"))
VALUES = st.sampled_from(("", "x", "y"))
OPERATORS = st.sampled_from(("", "Equal", "Exists", "Gt"))


@given(
    tolerations=st.lists(st.builds(Toleration, key=KEYS, operator=OPERATORS, value=VALUES, effect=EFFECTS), max_size=4),
    taint=st.builds(Taint, key=st.sampled_from(("a", "b", "c")), value=VALUES, effect=EFFECTS),
)
def test_a_taint_is_tolerated_when_one_of_them_tolerates_it(tolerations: list[Toleration], taint: Taint) -> None:
    one_by_one = any(_tolerates(toleration, taint) for toleration in tolerations)
    assert Tolerations(tolerations).tolerate(taint) == one_by_one


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    """As core/v1 Toleration.ToleratesTaint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value
