"""Which evictions a PodDisruptionBudget is about, and which it forbids."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.api.core import LabelSelector, Pod, PodDisruptionBudget, PodDisruptionBudgetSpec
from dra_extender.api.decoding import convert
from dra_extender.limits import BUDGETS_OF_POD, PARTS_OF_QUESTION
from dra_extender.scheduling.preemption.budgets import FEW, selects, violating
from tests.support.scheduling.preempting import by_namespace, pod_of

LABELS = {"app": "a", "tier": "web"}


@pytest.mark.parametrize(
    ("requirement", "selected"),
    [
        ({"key": "app", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "app", "operator": "In", "values": ["b"]}, False),
        ({"key": "gone", "operator": "In", "values": ["a"]}, False),
        ({"key": "app", "operator": "NotIn", "values": ["b"]}, True),
        ({"key": "app", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "gone", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "app", "operator": "Exists"}, True),
        ({"key": "gone", "operator": "Exists"}, False),
        ({"key": "app", "operator": "DoesNotExist"}, False),
        ({"key": "gone", "operator": "DoesNotExist"}, True),
        ({"key": "app", "operator": "In"}, False),
        ({"key": "gone", "operator": "NotIn"}, False),
        ({"key": "app", "operator": "Exists", "values": ["a"]}, False),
        ({"key": "app", "operator": "Gt", "values": ["1"]}, False),
    ],
)
def test_a_requirement_selects_as_in_kubernetes_and_nothing_when_it_is_invalid(
    requirement: dict[str, Any], selected: bool
) -> None:
    assert selects(convert(LabelSelector, {"matchExpressions": [requirement]}), LABELS) is selected


def test_labels_and_requirements_must_all_hold() -> None:
    both = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}
    assert selects(convert(LabelSelector, both), LABELS)
    assert not selects(convert(LabelSelector, both), {"app": "a"})
    assert not selects(convert(LabelSelector, both), {"app": "b", "tier": "web"})


def budget(name: str, allowed: int, **labels: str) -> PodDisruptionBudget:
    spec = {"selector": {"matchLabels": labels}}
    return convert(
        PodDisruptionBudget,
        {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": {"disruptionsAllowed": allowed}},
    )


def pod(name: str, **labels: str) -> Pod:
    return pod_of(name, {"labels": labels})


def test_each_budget_is_counted_down_by_itself() -> None:
    pods = [pod("one", app="a"), pod("two", app="a", tier="web"), pod("three", tier="web"), pod("four")]
    budgets = [budget("app", 1, app="a"), budget("tier", 1, tier="web")]
    assert violating(pods, by_namespace(budgets)) == {"uid-two", "uid-three"}
    assert violating(pods[1:], by_namespace(budgets)) == {"uid-three"}
    assert violating(pods, by_namespace([])) == frozenset()


def test_of_thousands_of_budgets_only_those_of_the_pods_namespace_are_looked_at() -> None:
    """A filter asks about hundreds of pods, on the event loop."""
    of_others = [
        msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, namespace=f"other-{n}"))
        for n, item in enumerate([budget("app", 0, app="a")] * 1000)
    ]
    found = by_namespace([*of_others, budget("app", 1, app="a")])
    assert found.parts(pod("one", app="a")) == 2
    assert not found.forbid(pod("one", app="a"))


@pytest.mark.parametrize(
    "large",
    [
        [{"matchExpressions": [{"key": f"k{i}", "operator": "Exists"} for i in range(2_500)]}],
        [{"matchExpressions": [{"key": "app", "operator": "In", "values": [f"v{i}" for i in range(2_500)]}]}],
        [{"matchLabels": {f"k{i}": "v" for i in range(2_500)}}],
        [{"matchLabels": {"app": f"v{i}"}} for i in range(1_251)],
    ],
    ids=["expressions", "values", "labels", "budgets"],
)
def test_budgets_that_are_too_large_to_be_looked_at_protect_every_pod_of_the_namespace(
    large: list[dict[str, Any]],
) -> None:
    selectors = [convert(LabelSelector, each) for each in large]
    found = by_namespace(
        msgspec.structs.replace(budget(f"b{n}", 5), spec=PodDisruptionBudgetSpec(each))
        for n, each in enumerate(selectors)
    )
    assert found.forbid(pod("one", app="a"))
    assert found.parts(pod("two")) == 1
    assert not by_namespace([]).forbid(pod("one", app="a"))


def test_a_pod_with_two_budgets_cannot_be_evicted() -> None:
    """The Eviction API answers 500."""
    found = by_namespace([budget("app", 5, app="a"), budget("tier", 5, tier="web")])
    assert found.forbid(pod("two", app="a", tier="web"))
    assert not found.forbid(pod("one", app="a"))


@pytest.mark.parametrize(("selecting", "protected"), [(BUDGETS_OF_POD, False), (BUDGETS_OF_POD + 1, True)])
def test_a_pod_that_too_many_budgets_select_is_protected(selecting: int, protected: bool) -> None:
    """Every budget is counted for every victim."""
    found = by_namespace(budget(f"b{number}", 5, app="a") for number in range(selecting))
    assert violating([pod("one", app="a")], found) == ({"uid-one"} if protected else frozenset())
    assert len(found.covering(pod("one", app="a"))) <= BUDGETS_OF_POD
    assert violating([pod("two", app="b")], found) == frozenset()


@pytest.mark.parametrize(("values", "limited"), [(FEW - 3, False), (2_000, True)])
def test_a_question_compares_so_many_parts_of_budgets_and_no_more(values: int, limited: bool) -> None:
    """Their author would take the time of every pod that may preempt."""
    requirement = {"key": "app", "operator": "In", "values": [str(number) for number in range(values)]}
    large = convert(LabelSelector, {"matchExpressions": [requirement]})
    found = by_namespace([msgspec.structs.replace(budget("b", 0), spec=PodDisruptionBudgetSpec(large))])
    number = PARTS_OF_QUESTION // (values + 2) + 1
    pods = [pod(f"p{index}", app="other") for index in range(number + 10)]
    assert not any(map(found.forbid, pods[:number]))
    assert all(found.forbid(each) == limited for each in pods[number:])
    assert found.parts(pod("last")) == (1 if limited else values + 2)
    assert not found.forbid(pods[0]), "what was compared counts"
