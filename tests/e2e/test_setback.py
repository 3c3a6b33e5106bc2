"""A real API server whose etcd is restored from a backup while the service runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dra_extender.service.service import Service
from dra_extender.service.settings import load
from embedded_cluster.hardware import GPU_DRIVER, gpus, manifest, node, slices
from tests.e2e.controlplane import ControlPlane
from tests.support.patience import until
from tests.support.service.readiness import until_ready

pytestmark = pytest.mark.e2e

DEALLOCATED = ("allocation", "reservedFor")
"""What the claim controller removes from a status."""


def claim(name: str) -> dict[str, Any]:
    exactly = {"deviceClassName": GPU_DRIVER, "count": 2}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def pod(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "pause"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "schedulerName": "nobody",
        },
    }


async def test_after_a_restore_a_device_of_a_bound_pod_goes_to_nobody_else(tmp_path: Path) -> None:
    """A restart alone is not a set-back."""
    with ControlPlane(tmp_path / "plane", controllers=False) as plane:
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": "default"},
        }
        device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": GPU_DRIVER}}
        published = [manifest(each) for each in slices(gpus(0, 2), 1)]
        plane.apply(account, device_class | {"spec": {}}, node(0), *published)
        plane.apply(*(make(name) for make in (claim, pod) for name in ("first", "second")))
        name = str(node(0)["metadata"]["name"])
        settings = load({"listen": "127.0.0.1:0", "kubeconfig": str(plane.admin_kubeconfig)})
        async with Service(settings) as service, aiohttp.ClientSession() as session:

            async def bind(pod: str) -> str:
                found = service.replica.running.cluster.pods.named("default", pod)
                assert found is not None
                body = {"PodName": pod, "PodNamespace": "default", "PodUID": found.metadata.uid, "Node": name}
                async with session.post(f"{service.url}/scheduler/bind", json=body) as reply:
                    return str((await reply.json())["Error"])

            def holder() -> list[str]:
                """The claims that are allocated, as the service knows them."""
                claims = service.replica.running.cluster.ledger.claims()
                return [each.metadata.name for each in claims if each.allocation is not None]

            await until_ready(service)
            await until(lambda: service.replica.running.cluster.pods.named("default", "second") is not None)
            assert await bind("first") == ""
            backup = plane.back_up()
            await until_ready(service)
            lists = {each.resource.kind: each.lists for each in service.replica.running.watches.reflectors}
            await until(lambda: all(each.lists > 1 for each in service.replica.running.watches.reflectors))
            assert service.replica.set_backs == 0, lists

            plane.kubectl("delete", "pod", "first", "--namespace=default", "--force", "--grace-period=0")
            plane.kubectl(
                "patch",
                "resourceclaim",
                "first",
                "--namespace=default",
                "--subresource=status",
                "--type=json",
                "--patch=" + json.dumps([{"op": "remove", "path": f"/status/{field}"} for field in DEALLOCATED]),
            )
            await until(lambda: holder() == [])

            plane.restore(backup)
            await until(lambda: service.replica.set_backs > 0)
            await until_ready(service)
            await until(lambda: holder() == ["first"])
            assert await bind("second") != ""
            assert plane.kubectl("get", "pods", "--output=name", "--field-selector=spec.nodeName!=") == "pod/first\n"
