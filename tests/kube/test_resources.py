"""Where the API server has things."""

from __future__ import annotations

import pytest

from app.kube.resources import PODS, resource_claims


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("default", "p", "binding"), "/api/v1/namespaces/default/pods/p/binding"),
        (resource_claims("v1").path("n", "c"), "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c"),
        (PODS.path("default", "../../nodes/n1"), "/api/v1/namespaces/default/pods/..%2F..%2Fnodes%2Fn1"),
        (PODS.path("a/b?watch=1", "p q"), "/api/v1/namespaces/a%2Fb%3Fwatch%3D1/pods/p%20q"),
    ],
)
def test_a_name_stays_a_name_whatever_stands_in_it(path: str, expected: str) -> None:
    assert path == expected
