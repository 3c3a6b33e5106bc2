"""A ProvisioningRequest for a gang on the real API server, with the fields that are used of its kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.case import Case
from tests.e2e.extender import ROOT
from tests.e2e.gangs import annotation, names
from tests.e2e.ground import Ground
from tests.e2e.space import Body

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("it installs the kind of cluster-autoscaler")]

GROUP, PLURAL = "autoscaling.x-k8s.io", "provisioningrequests"
VARIABLE = "DRA_EXTENDER_PROVISIONING_REQUESTS"
ABSENT = "the cluster has no ProvisioningRequests"
NAME = {
    "type": "string",
    "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    "maxLength": 253,
}
IMMUTABLE = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}]}


def _object(*required: str, **properties: Body) -> Body:
    return {"type": "object", "required": list(required), "properties": properties}


POD_SET = _object(
    "podTemplateRef", "count", podTemplateRef=_object("name", name=NAME), count={"type": "integer", "minimum": 1}
)
POD_SETS = {"type": "array", "items": POD_SET, "minItems": 1, "maxItems": 32, **IMMUTABLE}
SPEC = _object("podSets", "provisioningClassName", podSets=POD_SETS, provisioningClassName=NAME | IMMUTABLE)
KIND: Body = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"{PLURAL}.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a part of cluster-autoscaler's for a test"},
    },
    "spec": {
        "group": GROUP,
        "names": {"kind": "ProvisioningRequest", "plural": PLURAL, "singular": "provisioningrequest"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": _object("spec", spec=SPEC)},
            }
        ],
    },
}


@pytest.fixture(scope="module")
def on(ground: Ground) -> Iterator[None]:
    """The extender makes requests, with the permissions of the component, in a cluster that does not know the kind."""
    ground.plane.kubectl("apply", f"--filename={ROOT / 'manifests' / 'provisioning' / 'permissions.yaml'}")
    ground.extender.stop()
    ground.extender.environment[VARIABLE] = "true"
    ground.extender.start()
    yield
    ground.extender.stop()
    del ground.extender.environment[VARIABLE]
    ground.extender.start()


def requests(case: Case) -> list[Body]:
    return list(case.ground.get(f"/apis/{GROUP}/v1/namespaces/{case.name}/{PLURAL}")["items"])


def templates(case: Case) -> dict[str, Body]:
    found = case.ground.get(f"/api/v1/namespaces/{case.name}/podtemplates")["items"]
    return {each["metadata"]["name"]: each for each in found}


def member(case: Case, name: str, **marks: Any) -> None:
    """A pod of a gang, with a claim for both devices of a node from a template."""
    case.pod(name, template="both", requests={"cpu": "100m"}, labels={"app": "train"}, **marks)


@pytest.mark.usefixtures("on")
def test_a_gang_gets_one_request_when_the_kind_appears_and_loses_it_when_it_runs(case: Case) -> None:
    ground = case.ground
    case.publish("node-1", 2)
    case.template("both", case.request(count=2))
    pods = names("g", 2)
    for name in pods:
        member(case, name, **annotation(case, "train", 2))
    for name in pods:
        case.until_refused(name, "gang", "fit together")
    ground.eventually(lambda: ABSENT in ground.extender.log.read_text(), "the line about the missing kind")

    ground.plane.apply(KIND)
    ground.plane.kubectl("wait", "--for=condition=Established", "--timeout=90s", f"crd/{PLURAL}.{GROUP}")
    ground.eventually(lambda: requests(case), "the request")
    (request,) = requests(case)
    meta, spec = request["metadata"], request["spec"]
    assert meta["name"] == "gang-train"
    assert spec["provisioningClassName"] == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    assert [each["count"] for each in spec["podSets"]] == [1, 1]
    stored = [templates(case)[each["podTemplateRef"]["name"]] for each in spec["podSets"]]
    owned = {owner["uid"] for each in (request, *stored) for owner in each["metadata"]["ownerReferences"]}
    assert owned == {case.stored_pod("g-0")["metadata"]["uid"]}
    named = [each["template"]["spec"]["resourceClaims"][0] for each in stored]
    created = [case.stored_pod(name)["status"]["resourceClaimStatuses"][0]["resourceClaimName"] for name in pods]
    assert named == [{"name": "t", "resourceClaimName": name} for name in created]
    assert stored[0]["template"]["metadata"]["labels"] == {"app": "train"}
    assert stored[0]["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m"}

    # Another replica takes over: it finds the request, and makes no other.
    ground.extender.stop()
    ground.extender.start()
    case.publish("node-1", [{"name": f"device-{index}"} for index in range(4)])
    case.until_runs(*pods)
    ground.eventually(lambda: not requests(case), "the end of the request")
    assert ground.extender.log.read_text().count("ProvisioningRequest created") == 1
    for name in pods:
        case.delete_pod(name)
    ground.eventually(lambda: not templates(case), "the collection of the templates")
    assert ground.extender.log.read_text().count(ABSENT) == 1
