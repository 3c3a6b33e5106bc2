"""Releases on a real control plane: what is installed works, stays over upgrades, and goes without a trace."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from tests.support.chart.helm import NAME, NAMESPACE, Document, HelmError, Values
from tests.support.chart.hooks import run_test_of_helm
from tests.support.chart.release import WHERE, Release, everything, pod
from tests.support.chart.site import Programs, Site, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("releases have the names of the manifests")]

PREVIOUS = Path(__file__).parent / "previous"
ADDRESS = {"schedulerCIDRs": ["10.0.0.1/32"]}
MODES: dict[str, Values] = {
    "secondary": {},
    "stock": {"mode": "stock", "nodes": ["node-1", "node-2"], "networkPolicy": ADDRESS},
    "advisor": {"mode": "advisor", "networkPolicy": ADDRESS},
}


def of_default(site: Site, kind: str, name: str) -> Document:
    return site.get(kind, name, "--namespace=default")


def test_an_installation_gives_a_pod_its_device_and_tells_prometheus(
    operator: None, release: Release, tmp_path: Path
) -> None:
    """`operator` first: the release goes before the kinds do."""
    site = release.site
    monitoring = {"monitor": "podMonitor", "rules": True, "dashboard": True}
    notes = release.install({"metrics": monitoring}, "--wait", "--timeout=90s")
    assert f"helm test {NAME} -n {NAMESPACE}" in notes
    assert "schedulerName: dra-scheduler" in notes
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    asking = pod("asking", "dra-scheduler", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    with Programs(site, tmp_path) as programs:
        programs.extender()
        programs.scheduler()
        site.plane.apply(claim, asking)
        eventually(
            lambda: of_default(site, "pod", "asking")["status"].get("phase") == "Running", "the pod", programs.logs
        )
        assert of_default(site, "pod", "asking")["spec"]["nodeName"] == "node-2"
        (result,) = of_default(site, "resourceclaim", "gpu")["status"]["allocation"]["devices"]["results"]
        assert (result["pool"], result["device"]) == ("node-2", "gpu-0")
        tested = run_test_of_helm(release, programs)
        assert tested.passed, tested.said
        token = base64.b64decode(release.secret("dra-extender-metrics-token")["token"]).decode()
        assert programs.page("/metrics")[0] == 401
        status, text = programs.page("/metrics", token)
        assert (status, "dra_extender_ready 1.0" in text) == (200, True)
        assert programs.page("/insight/problems", token)[0] == 403, "Prometheus reads metrics and nothing else"
        site.plane.kubectl("delete", "pod/asking", "resourceclaim/gpu")


@pytest.mark.parametrize("mode", ["secondary", "advisor"])
def test_a_test_of_helm_that_fails_leaves_nothing(release: Release, mode: str) -> None:
    """No program runs: the pod of the test is pending until Helm gives up."""
    release.install(MODES[mode])
    before = everything(release.site)
    with pytest.raises(HelmError):
        release.helm.run("test", NAME, WHERE, "--timeout=3s")
    made = {each for each in everything(release.site) - before if each.startswith(("Pod ", "NetworkPolicy "))}
    assert made == set()


def test_as_an_advisor_it_is_ready_with_permissions_to_read_and_helm_tests_it(release: Release, tmp_path: Path) -> None:
    release.install(MODES["advisor"], "--wait", "--timeout=90s")
    with Programs(release.site, tmp_path) as programs:
        programs.extender()
        tested = run_test_of_helm(release, programs)
        assert tested.passed, tested.said


def test_the_stock_scheduler_calls_it_with_what_the_notes_say_to_copy(release: Release, tmp_path: Path) -> None:
    notes = release.install(MODES["stock"], "--wait", "--timeout=90s")
    copied = release.follow(notes, tmp_path)
    assert (copied / "kubernetes" / "pki" / "dra-extender" / "tls.key").stat().st_mode & 0o077 == 0
    plane = release.site.plane
    deployments = release.site.get("deployments", WHERE)["items"]
    assert len(deployments) == 2
    with Programs(release.site, tmp_path) as programs:
        programs.extender(deployments[0]["metadata"]["name"])
        plane.stop_component("default-scheduler")
        try:
            programs.stock_scheduler(copied)
            tested = run_test_of_helm(release, programs)
            assert tested.passed, tested.said
        finally:
            plane.stop_component("called-stock")
            plane.kubectl("delete", "lease/kube-scheduler", "--namespace=kube-system", "--ignore-not-found")
            plane.start_scheduler()


def test_an_upgrade_keeps_certificates_and_a_rollback_restores_settings(release: Release) -> None:
    """From the values of the first chart."""
    secrets = ("dra-extender-tls", "dra-extender-client-tls")
    release.install(yaml.safe_load((PREVIOUS / "values-0.1.0.yaml").read_text()))
    certificates = [release.secret(name) for name in secrets]
    assert release.environment()["DRA_EXTENDER_PLACEMENT"] == "pack"
    wait = ("--wait", "--timeout=90s")
    release.upgrade({"settings": {"placement": "spread"}, "replicas": 3}, "--reset-then-reuse-values", *wait)
    assert release.environment()["DRA_EXTENDER_PLACEMENT"] == "spread"
    assert release.environment()["DRA_EXTENDER_LOG_LEVEL"] == "debug", "a value of before"
    assert release.site.get("deployment", "dra-extender", WHERE)["status"]["availableReplicas"] == 3
    release.helm.run("rollback", NAME, "1", WHERE, *wait)
    assert release.environment()["DRA_EXTENDER_PLACEMENT"] == "pack"
    assert [release.secret(name) for name in secrets] == certificates


def test_certificates_that_end_soon_or_name_another_client_are_made_anew(release: Release) -> None:
    def seen() -> tuple[str, str]:
        """The CA, and the checksum that restarts kube-scheduler, which reads the CA once."""
        template = release.site.get("deployment", "dra-scheduler", WHERE)["spec"]["template"]
        authorities = {release.secret(name)["ca.crt"] for name in ("dra-extender-tls", "dra-extender-client-tls")}
        (authority,) = authorities
        return authority, template["metadata"]["annotations"]["checksum/authority"]

    release.install({})
    first = seen()
    ends = "dra-extender.dev/not-after=2020-01-01"
    release.site.plane.kubectl("annotate", "secret", "dra-extender-tls", WHERE, "--overwrite", ends)
    release.upgrade({}, "--force-conflicts")
    second = seen()
    release.upgrade({"certificates": {"clientName": "somebody"}})
    third = seen()
    assert release.environment()["DRA_EXTENDER_ALLOWED_CLIENTS"] == "somebody"
    for values in zip(first, second, third, strict=True):
        assert len(set(values)) == 3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"certificates": {"source": "existing"}}, "Secret dra-extender-tls does not exist in namespace dra-system"),
        ({"certificates": {"source": "certManager"}}, "Install cert-manager first"),
        ({"metrics": {"rules": True}}, "Install the Prometheus operator first"),
    ],
    ids=["no Secrets", "no cert-manager", "no Prometheus operator"],
)
def test_what_the_cluster_lacks_is_said_before_anything_is_installed(
    release: Release, values: Values, words: str
) -> None:
    with pytest.raises(HelmError, match=words):
        release.install(values)
    assert not release.site.get("serviceaccount", "dra-extender", WHERE)
