"""The control plane that the other tests stand on is a real one: its version, its permissions, its schedulers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.components import ComponentError, NotBuiltError, assets
from tests.e2e.controlplane import ControlPlane
from tests.e2e.plane import KubectlError, Plane
from tests.e2e.skipping import skip_without
from tests.support.patience import LONGEST

pytestmark = pytest.mark.e2e


def eventually(read: Callable[[], str], wanted: str) -> str:
    """What `read` gives as soon as it is `wanted`, or what it still gave at the end."""
    deadline = time.monotonic() + LONGEST
    while (got := read()) != wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return got


@pytest.fixture
def namespace(plane: Plane, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"e2e-{abs(hash(request.node.nodeid)) % 10**8}"
    plane.kubectl("create", "namespace", name)
    plane.kubectl("wait", "--for=create", "--timeout=90s", f"--namespace={name}", "serviceaccount/default")
    yield name
    plane.kubectl("delete", "namespace", name, "--wait=false")


def pod(name: str, namespace: str, scheduler: str, claim: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"schedulerName": scheduler, "containers": [{"name": "main", "image": "none"}]}
    if claim:
        spec["resourceClaims"] = [{"name": "device", "resourceClaimTemplateName": claim}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}


def enlarge(plane: Plane, name: str) -> None:
    resources = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    patch = json.dumps({"status": {"allocatable": resources, "capacity": resources}})
    plane.kubectl("patch", "node", name, "--subresource=status", f"--patch={patch}")


@pytest.mark.own_plane("a cluster may have another patch release than the binaries")
def test_the_server_is_the_release_it_was_built_from(plane: Plane) -> None:
    version = json.loads(plane.kubectl("version", "--output=json"))
    assert version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"] != "v0.0.0"


def test_the_gates_that_were_asked_for_are_on(plane: Plane) -> None:
    assert {name for name, on in plane.feature_gates.items() if on} <= plane.features
    assert "AllAlpha" not in plane.features


def test_a_test_is_skipped_where_its_gates_are_not_on(plane: Plane) -> None:
    skip_without([], (), plane.version)
    skip_without(plane.features, plane.features, plane.version)
    with pytest.raises(pytest.skip.Exception, match=f"rests on AllAlpha, which Kubernetes {plane.version} does not"):
        skip_without(["AllAlpha", *plane.features], plane.features, plane.version)


@pytest.mark.own_plane("which versions a cluster serves is its own business")
def test_the_versions_of_device_allocation_that_have_taint_rules_are_served(plane: Plane) -> None:
    versions = plane.kubectl("api-versions").splitlines()
    assert {"resource.k8s.io/v1", "resource.k8s.io/v1beta2"} <= set(versions)


def test_a_service_account_may_do_only_what_it_was_given(plane: Plane, namespace: str) -> None:
    kubeconfig = plane.service_account_kubeconfig(namespace, "default")
    with pytest.raises(KubectlError, match="Forbidden"):
        plane.kubectl(f"--kubeconfig={kubeconfig}", "get", "nodes")
    role = ["--clusterrole=view", f"--serviceaccount={namespace}:default", f"--namespace={namespace}"]
    plane.kubectl("create", "rolebinding", "viewer", *role)
    read = ["get", "configmap", "kube-root-ca.crt", "--output=name", f"--namespace={namespace}"]
    assert eventually(lambda: _try(plane, f"--kubeconfig={kubeconfig}", *read), "configmap/kube-root-ca.crt\n")


def _try(plane: Plane, *arguments: str) -> str:
    try:
        return plane.kubectl(*arguments)
    except KubectlError:
        return ""


def test_the_stock_scheduler_allocates_a_device(plane: Plane, namespace: str) -> None:
    name = f"node-{namespace}"
    group = "resource.k8s.io/v1"
    plane.apply(
        node(name),
        {"apiVersion": group, "kind": "DeviceClass", "metadata": {"name": namespace}, "spec": {}},
        {
            "apiVersion": group,
            "kind": "ResourceSlice",
            "metadata": {"name": namespace},
            "spec": {
                "driver": "stock.example.com",
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "d0"}],
            },
        },
        {
            "apiVersion": group,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "one", "namespace": namespace},
            "spec": {"spec": {"devices": {"requests": [{"name": "d", "exactly": {"deviceClassName": namespace}}]}}},
        },
        pod("p", namespace, plane.stock_scheduler, claim="one"),
    )
    enlarge(plane, name)
    scheduler = plane.start_scheduler()
    read = ["get", f"--namespace={namespace}", "--output=jsonpath={..status.allocation.devices.results[0].device}"]
    try:
        assert eventually(lambda: plane.kubectl(*read, "resourceclaims"), "d0") == "d0", scheduler.log_tail()
    finally:
        plane.stop_component("default-scheduler")
        plane.kubectl("delete", f"deviceclass/{namespace}", f"resourceslice/{namespace}", f"node/{name}")


def test_two_schedulers_each_take_their_own_pods(plane: Plane, namespace: str) -> None:
    name = f"node-{namespace}"
    pods = [pod("one", namespace, "first"), pod("two", namespace, "second")]
    for each in pods:
        each["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
    plane.apply(node(name), *pods)
    enlarge(plane, name)
    read = [f"--namespace={namespace}", "--output=jsonpath={.spec.nodeName}"]
    try:
        plane.start_scheduler("first", {"profiles": [{"schedulerName": "first"}]})
        assert eventually(lambda: plane.kubectl("get", "pod", "one", *read), name) == name
        assert plane.kubectl("get", "pod", "two", *read) == ""
        plane.start_scheduler("second", {"profiles": [{"schedulerName": "second"}]})
        assert eventually(lambda: plane.kubectl("get", "pod", "two", *read), name) == name
    finally:
        for scheduler in ("first", "second"):
            plane.stop_component(scheduler)
        plane.kubectl("delete", f"node/{name}")


@pytest.mark.own_plane("it reads the audit log")
def test_every_write_is_in_the_audit_log(plane: Plane, namespace: str) -> None:
    plane.kubectl("create", "configmap", "seen", f"--namespace={namespace}")
    events = [json.loads(line) for line in plane.audit_log.read_text().splitlines()]
    named = [event for event in events if event["objectRef"].get("name") == "seen"]
    assert [(event["verb"], event["responseStatus"]["code"]) for event in named] == [("create", 201)]


def test_a_scheduler_that_cannot_start_says_why(plane: Plane) -> None:
    with pytest.raises(ComponentError, match="nonsense"):
        plane.start_scheduler("broken", {"nonsense": True})
    plane.stop_component("broken")


@pytest.mark.own_plane("it starts a control plane of its own")
def test_nothing_is_left_running_at_the_end(tmp_path: Path) -> None:
    with ControlPlane(tmp_path, controllers=False) as plane:
        processes = [component.process for component in plane.components.values()]
        assert [process.poll() for process in processes] == [None, None]
    assert None not in [process.poll() for process in processes]


def test_missing_binaries_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(NotBuiltError, match=r"etcd, kube-apiserver.*make -C tests/controlplane"):
        assets()


@pytest.mark.own_plane("it wants all binaries")
def test_ready_made_binaries_are_taken_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for binary in assets().iterdir():
        (tmp_path / binary.name).symlink_to(os.path.realpath(binary))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert assets() == tmp_path
