"""Helm, and a cluster to install into; tests that need what is not there are skipped, and say how to get it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.controlplane import ControlPlane
from tests.e2e.skipping import skip_what_cannot_run
from tests.support.chart.helm import NAMESPACE, Helm, tool
from tests.support.chart.release import WHERE, Release
from tests.support.chart.site import Site

DRIVER = "gpu.example.com"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip_what_cannot_run(items)


@pytest.fixture(scope="session")
def needs_helm() -> None:
    if tool("helm") is None:
        pytest.skip("helm is missing: run `make charttools` (needs Go), or install it")


@pytest.fixture(scope="session")
def helm(needs_helm: None, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def site(needs_helm: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ControlPlane(tmp_path_factory.mktemp("plane")) as plane, Site(plane) as site:
        plane.kubectl("create", "namespace", NAMESPACE)
        first = ("serviceaccount/default", "configmap/kube-root-ca.crt")
        plane.kubectl("wait", "--for=create", "--timeout=90s", WHERE, *first)
        plane.apply(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": "gpu"},
                "spec": {
                    "selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}],
                    "extendedResourceName": "example.com/gpu",
                },
            },
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": "node-2"},
                "spec": {
                    "driver": DRIVER,
                    "nodeName": "node-2",
                    "pool": {"name": "node-2", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu-0"}],
                },
            },
        )
        yield site


@pytest.fixture
def release(site: Site, tmp_path: Path) -> Iterator[Release]:
    """Uninstalled at the end of each test, whatever it did, without a trace."""
    made = Release(site, tmp_path / "helm")
    yield made
    made.end()


@pytest.fixture
def operator(site: Site) -> Iterator[None]:
    """The kinds of the Prometheus operator, without their schemas."""
    kinds = {"podmonitors": "PodMonitor", "servicemonitors": "ServiceMonitor", "prometheusrules": "PrometheusRule"}
    crds = [f"crd/{plural}.monitoring.coreos.com" for plural in kinds]
    for plural, kind in kinds.items():
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        spec = {"group": "monitoring.coreos.com", "names": names, "scope": "Namespaced", "versions": [version]}
        metadata = {"name": f"{plural}.monitoring.coreos.com"}
        api = "apiextensions.k8s.io/v1"
        site.plane.apply({"apiVersion": api, "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec})
    site.plane.kubectl("wait", "--for=condition=Established", "--timeout=90s", *crds)
    yield
    site.plane.kubectl("delete", *crds)
