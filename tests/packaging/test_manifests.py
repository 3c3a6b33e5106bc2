"""The manifests agree with each other, with the settings and with the paths that the service has."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from dra_extender.http.application import create_app, health_router
from dra_extender.http.insight import insight_router
from dra_extender.http.metrics import Metrics
from dra_extender.http.protocol import PROBES
from dra_extender.scheduling.nomination.lifecycle import TARGET
from dra_extender.scheduling.nomination.nominations import PREEMPTING
from dra_extender.scheduling.release.clear import RELEASED
from dra_extender.service.addresses import split_address
from dra_extender.service.replica import Replica
from dra_extender.service.settings import Settings, load
from tests.support.documentation.blocks import blocks_of
from tests.support.packaging.permissions import allowed, needed_by

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"

Manifest = dict[str, Any]


def documents(file: str) -> list[Manifest]:
    return list(yaml.safe_load_all((MANIFESTS / file).read_text()))


def pod(file: str) -> Manifest:
    """The template of the one Deployment in a file."""
    (deployment,) = documents(file)
    template: Manifest = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    return template


EXTENDER, SCHEDULER = pod("extender/deployment.yaml"), pod("scheduler/deployment.yaml")
(CONTAINER,) = EXTENDER["spec"]["containers"]
ENVIRONMENT = {entry["name"]: entry["value"] for entry in CONTAINER["env"] if "value" in entry}
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
(POLICY,) = documents("extender/networkpolicy.yaml")
(SERVICE,) = documents("extender/service.yaml")
RULES: dict[str, list[Manifest]] = {
    port["port"]: rule.get("from", []) for rule in POLICY["spec"]["ingress"] for port in rule["ports"]
}


def selects(selector: Manifest, template: Manifest) -> bool:
    """True when the labels of a selector, which is not empty, are those of the pod."""
    wanted = selector["matchLabels"]
    return (
        set(selector) == {"matchLabels"} and bool(wanted) and wanted.items() <= template["metadata"]["labels"].items()
    )


def test_the_ports_are_those_that_the_settings_name() -> None:
    listen = {"verbs": "DRA_EXTENDER_LISTEN", "insight": "DRA_EXTENDER_INSIGHT_LISTEN"}
    assert {name: split_address(ENVIRONMENT[variable])[1] for name, variable in listen.items()} == PORTS


def asked_for(**settings: Any) -> set[str]:
    return needed_by(load({"listen": "127.0.0.1:0", **settings}))


def loaded(monkeypatch: pytest.MonkeyPatch, **more: str) -> Settings:
    """The settings as the container of the manifests reads them."""
    for name, value in (ENVIRONMENT | more).items():
        monkeypatch.setenv(name, value)
    return load()


WITHOUT: dict[str, dict[str, Any]] = {
    "rbac/extended-resources.yaml": {"feature_gates": "DRAExtendedResource=false"},
    "rbac/insight.yaml": {"insight_authorization": False},
    "preemption/permissions.yaml": {"preemption": "off"},
    "provisioning/permissions.yaml": {"provisioning_requests": False},
}
"""The file with the permissions of each feature, and the setting that makes it unnecessary."""
EVERYTHING = {
    "preemption": "on", "provisioning_requests": True, "insight_authorization": True, "leader_election": True,
}  # fmt: skip


def granted_by(*files: str) -> set[str]:
    """Permissions of the service: the role of developers is left out."""
    roles = (role for file in files for role in documents(file))
    return allowed(role for role in roles if role["metadata"]["name"] != "dra-extender-why")


@pytest.mark.parametrize("file", WITHOUT)
def test_without_a_feature_the_service_does_not_need_the_permissions_in_its_file(file: str) -> None:
    others = granted_by("rbac/extender.yaml", *(WITHOUT.keys() - {file}))
    assert asked_for(**EVERYTHING) <= others | granted_by(file)
    assert asked_for(**EVERYTHING | WITHOUT[file]) <= others


def test_the_permissions_in_the_files_are_those_that_the_service_needs() -> None:
    assert granted_by("rbac/extender.yaml", *WITHOUT) == asked_for(**EVERYTHING)


def test_the_policy_for_pods_allows_the_conditions_that_the_service_writes() -> None:
    (policy,) = (each for each in documents("rbac/extender.yaml") if each["kind"] == "ValidatingAdmissionPolicy")
    variables = {each["name"]: yaml.safe_load(each["expression"]) for each in policy["spec"]["variables"]}
    assert sorted(variables["conditions"]) == sorted([PREEMPTING, RELEASED, TARGET])


@pytest.mark.parametrize(
    ("folder", "setting", "value"),
    [("preemption", "preemption", "on"), ("provisioning", "provisioning_requests", "true")],
)
def test_a_component_allows_what_it_needs_and_switches_it_on(folder: str, setting: str, value: str) -> None:
    assert granted_by(f"{folder}/permissions.yaml") >= asked_for(**{setting: value}) - asked_for()
    (kustomization,) = documents(f"{folder}/kustomization.yaml")
    (added,) = yaml.safe_load(kustomization["patches"][0]["patch"])
    assert added["value"] == {"name": f"DRA_EXTENDER_{setting.upper()}", "value": value}


def test_the_settings_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(monkeypatch)
    assert settings.insight_authorization
    assert settings.tls_client_ca


def test_a_rollout_starts_a_replica_before_it_ends_one_and_a_drain_leaves_one() -> None:
    (deployment,) = documents("extender/deployment.yaml")
    assert deployment["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    (budget,) = documents("extender/poddisruptionbudget.yaml")
    assert selects(budget["spec"]["selector"], EXTENDER)
    assert 0 < budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]


def test_replicas_are_spread_over_nodes_and_zones_and_can_run_on_one() -> None:
    spread = EXTENDER["spec"]["topologySpreadConstraints"]
    assert {each["topologyKey"] for each in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert all(selects(each["labelSelector"], EXTENDER) for each in spread)
    assert {each["whenUnsatisfiable"] for each in spread} == {"ScheduleAnyway"}


def test_kubelet_waits_longer_than_a_replica_takes_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = loaded(monkeypatch)
    assert EXTENDER["spec"]["terminationGracePeriodSeconds"] > settings.shutdown_grace > settings.shutdown_linger > 1
    assert "lifecycle" not in CONTAINER, "SIGTERM is enough"


def test_replicas_reach_each_other_and_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    (advertised,) = (entry for entry in CONTAINER["env"] if entry["name"] == "DRA_EXTENDER_ADVERTISE")
    assert advertised["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    name = ENVIRONMENT["DRA_EXTENDER_PEER_NAME"]
    (certificate,) = (
        each for each in documents("cert-manager/certificates.yaml") if name in each["spec"].get("dnsNames", ())
    )
    assert set(certificate["spec"]["usages"]) == {"server auth", "client auth"}
    assert certificate["spec"]["secretName"] == EXTENDER["spec"]["volumes"][0]["secret"]["secretName"]
    settings = loaded(monkeypatch, DRA_EXTENDER_ADVERTISE="fd00::1")
    assert name in settings.client_names
    assert settings.lease(PORTS["verbs"]).address == f"https://[fd00::1]:{PORTS['verbs']}"


def test_probes_ask_where_insight_listens_as_it_listens() -> None:
    tokens = ENVIRONMENT["DRA_EXTENDER_INSIGHT_AUTHORIZATION"] == "true"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = CONTAINER[probe]["httpGet"]
        assert (asked["port"], asked["path"] in PROBES) == ("insight", True)
        assert asked.get("scheme", "HTTP") == ("HTTPS" if tokens else "HTTP")


def test_the_policy_is_about_the_extender_and_admits_only_by_a_rule_for_each_port() -> None:
    assert selects(POLICY["spec"]["podSelector"], EXTENDER)
    assert POLICY["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert sorted(RULES) == sorted(PORTS)
    assert all(rule["ports"] for rule in POLICY["spec"]["ingress"])
    assert all(RULES.values()), "a rule without `from` admits everything"


def test_the_service_connects_to_the_api_server_and_other_replicas_only() -> None:
    server, replicas = POLICY["spec"]["egress"]
    assert [each["port"] for each in server["ports"]] == [443, 6443]
    assert [each["port"] for each in replicas["ports"]] == ["verbs"]
    assert [selects(each["podSelector"], EXTENDER) for each in replicas["to"]] == [True]


def test_the_verbs_are_for_the_scheduler_and_the_replicas_of_the_manifests() -> None:
    sources = RULES["verbs"]
    assert all(set(source) == {"podSelector"} for source in sources), "in the namespace of the extender"
    selected = [[selects(source["podSelector"], pod) for source in sources] for pod in (SCHEDULER, EXTENDER)]
    assert selected == [[True, False], [False, True]]
    assert not SCHEDULER["spec"].get("hostNetwork"), "a policy would not know it by its labels"
    names = {yaml.safe_load((MANIFESTS / folder / "kustomization.yaml").read_text())["namespace"] for folder in FOLDERS}
    assert len(names) == 1


def test_the_static_pod_of_kube_scheduler_has_all_files_of_its_configuration() -> None:
    """The block of docs/install.md for mode stock, against scheduler_config/stock-scheduler.yaml and the Deployment."""
    (block,) = (each for each in blocks_of("docs/install.md") if each.what == "kube-scheduler.yaml")
    spec = yaml.safe_load(block.text)["spec"]
    (container,) = spec["containers"]
    flags = dict(flag.removeprefix("--").split("=", 1) for flag in container["command"][1:])
    configuration = yaml.safe_load((ROOT / "scheduler_config" / "stock-scheduler.yaml").read_text())
    files = {flags["config"], configuration["clientConnection"]["kubeconfig"]}
    files |= {path for name, path in flags.items() if name.endswith("kubeconfig")}
    for extender in configuration["extenders"]:
        files |= {path for name, path in extender["tlsConfig"].items() if name.endswith("File")}
    sources = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
    mounts = {each["mountPath"]: sources[each["name"]] for each in container["volumeMounts"]}
    assert all(mount == source for mount, source in mounts.items()), "as on the node"
    assert [file for file in sorted(files) if not {file, str(Path(file).parent)} & set(mounts)] == []
    (shipped,) = SCHEDULER["spec"]["containers"]
    assert container["image"] == shipped["image"]
    assert f"--feature-gates={flags['feature-gates']}" in shipped["command"]
    assert spec["hostNetwork"] and spec["dnsPolicy"] == "ClusterFirstWithHostNet", "or it does not find the Service"


FOLDERS = ("extender", "scheduler")


def test_insight_is_for_labelled_namespaces_and_the_documentation_says_how() -> None:
    (source,) = RULES["insight"]
    assert set(source) == {"namespaceSelector"}
    ((key, value),) = source["namespaceSelector"]["matchLabels"].items()
    assert f"{key}={value}" in (ROOT / "docs" / "insight-operators.md").read_text()


def test_the_service_leads_to_the_verbs_and_kube_scheduler_asks_there() -> None:
    assert SERVICE["spec"]["selector"].items() <= EXTENDER["metadata"]["labels"].items()
    ports = {port["port"]: port["targetPort"] for port in SERVICE["spec"]["ports"]}
    assert set(ports.values()) <= set(PORTS)
    configurations = [yaml.safe_load(file.read_text()) for file in (ROOT / "scheduler_config").glob("*.yaml")]
    urls = [urlsplit(each["urlPrefix"]) for found in configurations for each in found.get("extenders", ())]
    assert len(urls) == 5
    for url in urls:
        assert (url.scheme, url.hostname) == ("https", f"{SERVICE['metadata']['name']}.dra-system.svc")
        assert url.port is not None and ports[url.port] == "verbs"


def granted(role: str) -> list[str]:
    """The paths that a role lets one get."""
    (found,) = (each for each in documents("rbac/insight.yaml") if each["metadata"]["name"] == role)
    return [url for rule in found["rules"] if "get" in rule["verbs"] for url in rule["nonResourceURLs"]]


def covers(url: str, path: str) -> bool:
    return path.startswith(url[:-1]) if url.endswith("*") else path == url


def test_the_role_for_readers_grants_every_page_and_those_of_prometheus_and_autoscalers_one() -> None:
    replica = Replica()
    app = create_app([health_router(replica, Metrics()), insight_router(replica)])
    pages = {*app.openapi()["paths"], "/openapi.json"} - PROBES - {"/v1/simulate"}
    urls = granted("dra-extender-insight-reader")
    assert [page for page in sorted(pages) if not any(covers(url, page) for url in urls)] == []
    assert [url for url in urls if not any(covers(url, page) for page in pages)] == []
    assert granted("dra-extender-metrics-reader") == ["/metrics"]
    assert granted("dra-extender-simulator") == ["/v1/simulate"]


@pytest.mark.parametrize(
    "folder", sorted(file.parent for file in MANIFESTS.rglob("kustomization.yaml")), ids=lambda folder: folder.name
)
def test_every_manifest_is_applied_with_its_folder(folder: Path) -> None:
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    beside = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert beside <= set(listed)
    assert [name for name in listed if not (folder / name).exists()] == []
