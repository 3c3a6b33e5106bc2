"""Tolerations that are looked up are the same as those that are gone through one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.core import Taint, Toleration
from dra_extender.api.tolerations import Tolerations, tolerates

EFFECTS = st.sampled_from(("", "NoSchedule", "NoExecute", "PreferNoSchedule"))
KEYS = st.sampled_from(("", "a", "b"))
VALUES = st.sampled_from(("", "x", "y"))
OPERATORS = st.sampled_from(("", "Equal", "Exists", "Gt"))


@given(
    tolerations=st.lists(st.builds(Toleration, key=KEYS, operator=OPERATORS, value=VALUES, effect=EFFECTS), max_size=4),
    taint=st.builds(Taint, key=st.sampled_from(("a", "b", "c")), value=VALUES, effect=EFFECTS),
)
def test_a_taint_is_tolerated_when_one_of_them_tolerates_it(tolerations: list[Toleration], taint: Taint) -> None:
    one_by_one = any(tolerates(toleration, taint) for toleration in tolerations)
    assert Tolerations(tolerations).tolerate(taint) == one_by_one
