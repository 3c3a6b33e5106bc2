"""Pods that are alike are judged once, and each by what it says."""

from __future__ import annotations

from typing import Any

import pytest

from embedded_cluster.apiserver.statuses import JSON
from embedded_cluster.apiserver.strategies.poddefaults import fill_pod
from embedded_cluster.apiserver.validation import pods

OTHER = {"name": "other", "resourceClaimName": "a"}


def pod(claim: str, **spec: Any) -> JSON:
    """A pod with its defaults, of an image that no other test uses."""
    containers = [{"name": "main", "image": "alike", "resources": {"claims": [{"name": "gpu"}]}}]
    body: JSON = {"containers": containers, "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}], **spec}
    fill_pod(body)
    return {"metadata": {"name": f"of-{claim}"}, "spec": body}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[JSON]:
    """The specs that are judged as a whole, from a beginning without memory."""
    specs: list[JSON] = []
    whole = pods.spec_problems

    def counting(spec: JSON, at: str, *, of_pod: bool) -> list[Any]:
        specs.append(spec)
        return whole(spec, at, of_pod=of_pod)

    pods._is_good.cache_clear()
    monkeypatch.setattr(pods, "spec_problems", counting)
    return specs


def test_pods_that_differ_in_their_claims_only_are_judged_once(judged: list[JSON]) -> None:
    assert [pods.problems(pod(f"claim-{number}")) for number in range(5)] == [[]] * 5
    assert len(judged) == 1


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (pod("Claim_1"), "spec.resourceClaims[0].resourceClaimName"),
        (pod("a", resourceClaims=[{"name": "gpu"}]), "spec.resourceClaims[0]"),
        (
            pod("a", resourceClaims=[{"name": "other", "resourceClaimName": "a"}]),
            "spec.containers[0].resources.claims[0]",
        ),
        (pod("a", hostname="a.b"), "spec.hostname"),
    ],
    ids=["a claim by no name", "a claim from nowhere", "another claim", "another field"],
)
def test_a_pod_that_is_like_a_good_one_is_judged_by_what_it_says(wrong: JSON, field: str, judged: list[JSON]) -> None:
    assert pods.problems(pod("a")) == []
    for _ in range(2):
        assert [problem.field for problem in pods.problems(wrong)] == [field]
    assert pods.problems(pod("b")) == []
    assert judged


def test_the_defaults_of_one_pod_are_not_those_of_another() -> None:
    first, second = (pod("a", volumes=[{"name": "v", "hostPath": {"path": "/"}}, {"name": "e"}]) for _ in range(2))
    first["spec"]["volumes"][0]["hostPath"]["type"] = "File"
    first["spec"]["volumes"][1]["emptyDir"]["medium"] = "Memory"
    assert second["spec"]["volumes"] == [
        {"name": "v", "hostPath": {"path": "/", "type": ""}},
        {"name": "e", "emptyDir": {}},
    ]
