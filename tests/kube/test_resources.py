"""Where the API server has things."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from dra_extender.api.errors import NotFoundError
from dra_extender.kube.resources import PODS, Served, followed, resource_claims, segment


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("default", "p", "binding"), "/api/v1/namespaces/default/pods/p/binding"),
        (resource_claims("v1").path("n", "c"), "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims/c"),
        (PODS.path("default", "../../nodes/n1"), "/api/v1/namespaces/default/pods/..%2F..%2Fnodes%2Fn1"),
        (PODS.path("a/b?watch=1", "p q"), "/api/v1/namespaces/a%2Fb%3Fwatch%3D1/pods/p%20q"),
        (PODS.path("default", "%2e%2e"), "/api/v1/namespaces/default/pods/%252e%252e"),
        (PODS.path("default", "..."), "/api/v1/namespaces/default/pods/..."),
        (PODS.path("default", "a..b"), "/api/v1/namespaces/default/pods/a..b"),
    ],
)
def test_a_name_stays_a_name_whatever_stands_in_it(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("name", [".", ".."])
@pytest.mark.parametrize("build", [lambda x: (x, "p", "binding"), lambda x: ("default", x), lambda x: (x,)])
def test_a_name_that_would_lead_to_another_path_has_no_path(name: str, build: Callable[[str], tuple[str, ...]]) -> None:
    with pytest.raises(NotFoundError, match=rf'no object can have the name "{re.escape(name)}"'):
        PODS.path(*build(name))


@given(st.text(min_size=1) | st.text("./%2eE\\;?#", min_size=1))
def test_a_name_leads_to_itself_or_nowhere(name: str) -> None:
    """As the client takes the URL apart: the name is one segment of the path, and the segments beside it stay."""
    try:
        path = URL(f"https://api/pods/{segment(name)}/status").raw_path
    except NotFoundError:
        assert name in (".", "..")
    else:
        assert [unquote(part) for part in path.split("/")] == ["", "pods", name, "status"]


@pytest.mark.parametrize(
    ("served", "plurals"),
    [
        (Served("v1"), ["nodes", "pods", "deviceclasses", "resourceslices", "resourceclaims"]),
        (
            Served("v1beta1", "v1alpha3"),
            ["nodes", "pods", "deviceclasses", "resourceslices", "resourceclaims", "devicetaintrules"],
        ),
    ],
)
def test_taint_rules_are_followed_where_they_are_served_and_each_kind_in_its_version(
    served: Served, plurals: list[str]
) -> None:
    kinds = followed(served)
    assert [kind.plural for kind in kinds] == plurals
    versions = {"": "v1", "resource.k8s.io": served.version}
    for kind in kinds:
        assert kind.version == (served.taint_rules if kind.plural == "devicetaintrules" else versions[kind.group])
