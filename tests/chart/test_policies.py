"""Two allocators must not share devices: the API server refuses, or warns of, pods that would bring one more."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from tests.support.chart.helm import NAME, ROOT, Document
from tests.support.chart.release import WHERE, Release, pod
from tests.support.chart.site import Site, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.own_plane("policies are for the whole cluster")]

OURS, IN_TREE = "dra-scheduler", "default-scheduler"
CLAIM: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}


def asking(name: str, at: str = "containers") -> dict[str, Any]:
    """A spec that asks for an extended resource in one of its containers; limits alone are requests, too."""
    container = {"name": "asking", "image": "none", "resources": {"limits": {name: "1"}}}
    return {"initContainers": [container]} if at == "initContainers" else {"container": container}


EXTENDED = asking("example.com/gpu")
PODS: dict[str, tuple[str, dict[str, Any], str]] = {
    "without devices": (IN_TREE, {}, ""),
    "with a claim for our scheduler": (OURS, CLAIM, ""),
    "with a claim for another one": (IN_TREE, CLAIM, "pods with resource claims need schedulerName: dra-scheduler"),
    "with a claim and a node that its user chose": (
        OURS,
        {**CLAIM, "nodeName": "n1"},
        "dra-scheduler chooses the node of pods with resource claims: leave spec.nodeName empty",
    ),
    "without claims on a node that its user chose": (IN_TREE, {"nodeName": "n1"}, ""),
    "with an extended resource for our scheduler": (OURS, EXTENDED, ""),
    "with an extended resource for another one": (IN_TREE, EXTENDED, "pods with devices of class gpu"),
    "with one in an init container": (IN_TREE, asking("example.com/gpu", "initContainers"), "of class gpu"),
    "with one that a class has by its name": (
        IN_TREE,
        asking("deviceclass.resource.kubernetes.io/gpu"),
        "pods with devices of class gpu (an extended resource) need schedulerName: dra-scheduler in this cluster",
    ),
    "with one of a device plugin": (IN_TREE, asking("example.com/other"), ""),
}
"""The scheduler, the rest of the spec, and what is said of it: nothing, if it is accepted."""

POLICY = "validatingadmissionpolicy"
REFUSED = {name: words for name, (_, _, words) in PODS.items() if words}


def told(site: Site, *, namespace: str = "default", scheduler: str = IN_TREE, **spec: Any) -> tuple[bool, str]:
    """Whether the API server would take a pod, and what it says of it."""
    command = [str(site.plane.binaries / "kubectl"), f"--kubeconfig={site.plane.admin_kubeconfig}", "create"]
    body = yaml.safe_dump(pod("trial", scheduler, namespace, **spec))
    command += ["--dry-run=server", "--filename=-"]
    done = subprocess.run(command, input=body, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stderr


def until_in_force(site: Site, words: str) -> None:
    """Policies count some moments after they were written; the one about classes is the later of the two."""
    eventually(lambda: words in told(site, **CLAIM)[1], "the policy on claims")
    eventually(lambda: words in told(site, **EXTENDED)[1], "the policy on extended resources")
    for policy in ("claims-need-dra-scheduler", "extended-resources-need-dra-scheduler"):
        checked: Document = eventually(lambda policy=policy: site.get(POLICY, policy).get("status", {}), "a check")  # type: ignore[misc]
        assert checked["typeChecking"] == {}, "no warnings about types"


def judged(site: Site, namespace: str) -> dict[str, tuple[bool, str]]:
    """Whether each pod would be taken in a namespace, and what is said of it."""
    return {
        name: told(site, namespace=namespace, scheduler=scheduler, **spec)
        for name, (scheduler, spec, _) in PODS.items()
    }


def refuses_as_listed(site: Site) -> None:
    """Each pod of the table in a usual namespace; every pod is accepted in an exempt one."""
    until_in_force(site, "denied request")
    found = judged(site, "default")
    assert {name for name, (taken, _) in found.items() if not taken} == REFUSED.keys()
    assert [name for name, words in REFUSED.items() if words not in found[name][1]] == []
    assert set(judged(site, "in-tree").values()) == {(True, "")}


@pytest.fixture
def exempt(site: Site) -> Any:
    """A namespace with the label, in which anything goes."""
    site.plane.kubectl("create", "namespace", "in-tree")
    site.plane.kubectl("label", "namespace", "in-tree", "dra-extender.dev/in-tree=true")
    site.plane.kubectl("wait", "--for=create", "--timeout=90s", "--namespace=in-tree", "serviceaccount/default")
    yield
    site.plane.kubectl("delete", "namespace", "in-tree")


def test_the_policies_of_the_chart_warn_or_refuse_as_they_are_told(release: Release, exempt: None) -> None:
    site = release.site
    release.install({})
    until_in_force(site, "Warning")
    taken, said = told(site, **CLAIM)
    assert taken and "pods with resource claims need schedulerName: dra-scheduler" in said
    release.helm.run("upgrade", NAME, str(ROOT / "charts" / NAME), WHERE, "--reuse-values", "--set=policy.action=Deny")
    refuses_as_listed(site)
    release.upgrade({"policy": {"action": "None"}})
    eventually(lambda: told(site, **CLAIM) == (True, ""), "the end of the policy")


def test_the_policies_of_the_manifests_refuse(site: Site, exempt: None) -> None:
    folder = f"--kustomize={ROOT / 'manifests' / 'policies'}"
    site.plane.kubectl("apply", folder)
    try:
        refuses_as_listed(site)
    finally:
        site.plane.kubectl("delete", folder)
