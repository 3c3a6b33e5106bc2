"""A developer with role `edit` in one namespace asks why a pod waits, on the real control plane.

The user reads an answer without a name of another namespace.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml

from tests.e2e.case import Case
from tests.e2e.components import free_port
from tests.e2e.extender import ROOT
from tests.e2e.ground import Ground

pytestmark = pytest.mark.e2e

SYSTEM: Final = "dra-system"
DEVELOPER: Final = "developer"
NAMED: Final = {"name": "dra-extender", "namespace": SYSTEM}
PORT: Final = 4711


class Developer(NamedTuple):
    """Asks with this kubeconfig about pods of a namespace. `secret`: the other namespace."""

    namespace: str
    secret: str
    kubeconfig: Path

    def asks(self, pod: str, *more: str) -> tuple[int, str]:
        """Exit status and all output. No output names the other namespace."""
        command = [sys.executable, "-m", "dra_extender.cli", "why", pod, f"--namespace={self.namespace}", *more]
        command.append(f"--kubeconfig={self.kubeconfig}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        output = " ".join((done.stdout + done.stderr).split())
        assert self.secret in pod or self.secret not in output
        return done.returncode, output


@pytest.fixture
def secret(ground: Ground) -> Iterator[Case]:
    """Another namespace, whose name is in no class."""
    made = Case(ground)
    made.set_up()
    ground.delete(f"/apis/resource.k8s.io/v1/deviceclasses/{made.name}")
    yield made
    ground.delete(f"/api/v1/namespaces/{made.name}/pods", gracePeriodSeconds=0)
    ground.delete(f"/api/v1/namespaces/{made.name}")


@pytest.fixture
def reachable(ground: Ground) -> Iterator[None]:
    """The shipped Service leads to a replica at an address that the API server may connect to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address = probe.getsockname()[0]
    port = free_port()
    extender = ground.new_extender("dra-extender-asked", insight_listen=f"{address}:{port}")
    extender.insight = f"https://{address}:{port}"
    extender.start(wait=False)
    service, deployment = (
        yaml.safe_load((ROOT / "manifests" / "extender" / f"{kind}.yaml").read_text())
        for kind in ("service", "deployment")
    )
    template = deployment["spec"]["template"]
    for each in template["spec"]["containers"][0]["ports"]:
        each["containerPort"] = port if each["name"] == "insight" else 1
    ground.apply(
        service | {"metadata": NAMED},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": NAMED | {"labels": template["metadata"]["labels"]},
            "spec": template["spec"] | {"nodeName": ground.nodes[-1]},
        },
    )
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]}
    ground.patch(f"/api/v1/namespaces/{SYSTEM}/pods/{NAMED['name']}/status", {"status": status})
    endpoints = f"/api/v1/namespaces/{SYSTEM}/endpoints"
    ground.eventually(lambda: address in str(ground.get(endpoints)), "the endpoints of the Service")
    yield
    ground.delete(f"/api/v1/namespaces/{SYSTEM}/services/{NAMED['name']}")
    ground.delete(f"/api/v1/namespaces/{SYSTEM}/pods/{NAMED['name']}", gracePeriodSeconds=0)
    extender.stop()


def full(case: Case, secret: Case) -> None:
    """Pods of the other namespace have all devices of a node, and a port of another one."""
    first, second = case.ground.nodes[:2]
    case.publish(first, 2)
    case.publish(second, 1)
    for name in ("one", "two"):
        secret.claim(name, case.request())
        secret.pod(name, name, node=first)
    listener = [{"name": "main", "image": "none", "ports": [{"containerPort": PORT, "hostPort": PORT}]}]
    secret.pod("listener", node=second, containers=listener)
    for name in ("one", "two", "listener"):
        secret.until_bound(name)
    case.claim("both", case.request(count=2))
    case.pod("both", "both")
    case.claim("port", case.request())
    case.pod("port", "port", containers=listener)


@pytest.mark.usefixtures("reachable")
def test_a_developer_with_edit_in_one_namespace_reads_why_a_pod_waits_without_names_of_another(
    ground: Ground, case: Case, secret: Case
) -> None:
    plane, account = ground.plane, f"{case.name}:{DEVELOPER}"
    full(case, secret)
    plane.kubectl("create", "serviceaccount", DEVELOPER, f"--namespace={case.name}")
    edit = ("create", "rolebinding", "edit", f"--namespace={case.name}", "--clusterrole=edit")
    plane.kubectl(*edit, f"--serviceaccount={account}", f"--user={DEVELOPER}")
    developer = Developer(case.name, secret.name, plane.service_account_kubeconfig(case.name, DEVELOPER))
    ground.eventually(lambda: "services" in developer.asks("both")[1], "the role edit")
    status, text = developer.asks("both")
    assert (status, "role dra-extender-why in namespace dra-system" in text) == (2, True), text
    binding = ("create", "rolebinding", case.name, f"--namespace={SYSTEM}", "--role=dra-extender-why")
    plane.kubectl(*binding, f"--serviceaccount={account}", f"--user={DEVELOPER}")
    try:
        ground.eventually(lambda: "cannot get resource" not in developer.asks("both")[1], "the role")
        assert developer.asks("both")[0] == 1, developer.asks("both")[1]
        assert "2 are in use (by 2 claims of other namespaces)" in developer.asks("both")[1]
        assert f"host port {PORT}/TCP is in use by 1 pod of another namespace" in developer.asks("port")[1]
        assert "wait for 1 pod of another namespace" in developer.asks("port")[1]
        for pod in ("both", "port"):
            for more in (("--all",), ("--output=json",), ("--output=yaml",)):
                status, text = developer.asks(pod, *more)
                assert (status, "(another namespace)" in text or "fits none" in text) == (1, True), text
        status, text = developer.asks(f"{secret.name}/one")
        assert (status, "nor get pod" in text) == (2, True), text
        certified = developer._replace(kubeconfig=plane.user_kubeconfig(DEVELOPER))
        assert "your kubeconfig has no token" in certified.asks("both")[1]
        events = ground.get(f"/apis/events.k8s.io/v1/namespaces/{case.name}/events")["items"]
        assert (bool(events), secret.name in str(events)) == (True, False)
    finally:
        plane.kubectl("delete", "rolebinding", case.name, f"--namespace={SYSTEM}")
