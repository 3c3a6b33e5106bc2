"""Which evictions a PodDisruptionBudget is about, and which it forbids."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.policy import LabelSelector, PodDisruptionBudget
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace, selects, violating
from tests.support.scheduling.preempting import pod_of

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


@pytest.mark.parametrize("large", ["expressions", "values", "labels"])
def test_a_selector_that_is_too_large_to_be_looked_at_selects_all(large: str) -> None:
    made: dict[str, Any] = {
        "expressions": {"matchExpressions": [{"key": f"k{i}", "operator": "Exists"} for i in range(1_001)]},
        "values": {"matchExpressions": [{"key": "app", "operator": "In", "values": [f"v{i}" for i in range(1_001)]}]},
        "labels": {"matchLabels": {f"k{i}": "v" for i in range(1_001)}},
    }
    assert selects(convert(LabelSelector, made[large]), LABELS)


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
    assert violating(pods, budgets) == {"uid-two", "uid-three"}
    assert violating(pods[1:], budgets) == {"uid-three"}
    assert violating(pods, []) == frozenset()


def test_of_thousands_of_budgets_only_those_of_the_pods_namespace_are_looked_at() -> None:
    """A filter asks about hundreds of pods, on the event loop."""
    of_others = [
        msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, namespace=f"other-{n}"))
        for n, item in enumerate([budget("app", 0, app="a")] * 1000)
    ]
    ours = budget("app", 1, app="a")
    grouped = BudgetsByNamespace([*of_others, ours])
    assert list(grouped.of(pod("one", app="a"))) == [ours]
    assert not grouped.forbid(pod("one", app="a"))


def test_a_pod_with_two_budgets_cannot_be_evicted() -> None:
    """The Eviction API answers 500."""
    grouped = BudgetsByNamespace([budget("app", 5, app="a"), budget("tier", 5, tier="web")])
    assert grouped.forbid(pod("two", app="a", tier="web"))
    assert not grouped.forbid(pod("one", app="a"))
