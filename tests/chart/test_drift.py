"""The chart and the manifests install the same: what one has and the other has not is a mistake in one of them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.components import assets
from tests.support.chart.helm import ROOT, Document, Helm, Values, one

pytestmark = pytest.mark.e2e

BASE: dict[str, Any] = {
    "certificates": {"source": "existing"},
    "policy": {"action": "None"},
}
Combination = tuple[Sequence[str], Sequence[str], Values]
"""Resources and components of a kustomization, and the values that say the same."""
COMBINATIONS: dict[str, Combination] = {
    "the second scheduler": ((".",), (), {}),
    "with cert-manager": ((".", "cert-manager"), (), {"certificates": {"source": "certManager"}}),
    "with policies": ((".", "policies"), (), {"policy": {"action": "Deny"}}),
    "shadow mode": (("shadow",), (), {"mode": "shadow"}),
    "with preemption": ((".",), ("preemption",), {"settings": {"preemption": "on"}}),
    "with requests": ((".",), ("provisioning",), {"settings": {"provisioning_requests": True}}),
}
OF_HELM = re.compile(r"app\.kubernetes\.io/(instance|version|managed-by|part-of)|helm\.sh/chart|checksum/.*")
"""Labels and annotations that only a release has."""


def kustomized(folder: Path, resources: Sequence[str], components: Sequence[str]) -> list[Document]:
    """What kustomize makes of these folders of manifests/."""
    manifests = os.path.relpath(ROOT / "manifests", folder)
    listed = {
        "resources": [f"{manifests}/{name}" for name in resources],
        "components": [f"{manifests}/{name}" for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(listed))
    command = [str(assets(["kubectl"]) / "kubectl"), "kustomize", "--load-restrictor=LoadRestrictionsNone", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def comparable(documents: Sequence[Document]) -> dict[str, Document]:
    """By kind and name, without what only one of the two ways has; each omission is listed here."""
    found = {}
    for document in documents:
        if document["kind"] == "Namespace":
            continue  # helm install --create-namespace
        if "helm.sh/hook" in document["metadata"].get("annotations", {}):
            continue  # tests, which kustomize has not
        metadata = document["metadata"]
        metadata.pop("namespace", None)  # test_everything_is_in_the_namespace_of_the_release
        if document["kind"] == "ConfigMap":
            metadata["name"] = _unhashed(metadata["name"])
            document["data"] = {key: yaml.safe_load(text) for key, text in document["data"].items()}
        found[f"{document['kind']}/{metadata['name']}"] = _plain(document)
    return found


def _unhashed(name: str) -> str:
    """Kustomize names a ConfigMap after its content; the chart has a checksum in the pods that mount it."""
    return re.sub(r"-[a-z0-9]{10}$", "", name)


def _plain(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        kept = {name: _plain(each, name) for name, each in value.items() if not OF_HELM.fullmatch(name)}
        kept.pop("imagePullPolicy", None)  # the default for a tag
        if key == "configMap":
            kept["name"] = _unhashed(kept["name"])
        return {name: each for name, each in kept.items() if name not in ("labels", "annotations") or each}
    if isinstance(value, list):
        if key == "env":
            return {entry["name"]: _plain({**entry, "name": ""}) for entry in value}
        return [_plain(each) for each in value]
    return value


@pytest.mark.parametrize("name", COMBINATIONS)
def test_the_chart_renders_to_what_kustomize_builds(helm: Helm, tmp_path: Path, name: str) -> None:
    resources, components, values = COMBINATIONS[name]
    built = comparable(kustomized(tmp_path, resources, components))
    rendered = comparable(helm.render({**BASE, **values}))
    assert sorted(rendered) == sorted(built)
    for key, document in built.items():
        assert rendered[key] == document, key


@pytest.mark.parametrize("mode", ["stock", "advisor"])
def test_the_chart_configures_kube_scheduler_as_the_shipped_files_do(helm: Helm, mode: str) -> None:
    values = {"mode": mode, "nodes": ["cp"], "networkPolicy": {"enabled": False}}
    made = one(helm.render(values), "ConfigMap", "dra-extender-kube-scheduler-config")["data"]["config.yaml"]
    file = {"stock": "stock-scheduler.yaml", "advisor": "advisor.yaml"}[mode]
    shipped = yaml.safe_load((ROOT / "scheduler_config" / file).read_text())
    assert yaml.safe_load(made) == shipped


def test_everything_is_in_the_namespace_of_the_release(helm: Helm) -> None:
    values = {"metrics": {"monitor": "serviceMonitor", "rules": True, "dashboard": True}}
    cluster_wide = {
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    for document in helm.render(values):
        namespace = document["metadata"].get("namespace")
        if document["kind"] in cluster_wide:
            assert namespace is None
        elif document["metadata"]["name"] == "dra-scheduler-auth-reader":
            assert namespace == "kube-system", "where the ConfigMap is that it may read"
        else:
            assert namespace == "dra-system", document


def test_releases_by_other_names_share_no_object(helm: Helm) -> None:
    values = {"schedulerName": "second-scheduler"}
    names = [
        {(each["kind"], each["metadata"]["name"]) for each in made}
        for made in (helm.render({}), helm.render(values, name="other"))
    ]
    assert names[0] & names[1] == set()
