"""What may be set and what not: mistakes are refused before anything is installed, with words that say the remedy."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from dra_extender.http.authorization import certified_names
from dra_extender.service.settings import Settings, load
from tests.support.chart.helm import CHART, Document, Helm, HelmError, environment, one
from tests.support.packaging.permissions import allowed, needed_by

pytestmark = pytest.mark.e2e

STOCK = {"mode": "stock", "nodes": ["cp-1", "cp-2"], "networkPolicy": {"schedulerCIDRs": ["10.0.0.1/32"]}}
ADVISOR = {"mode": "advisor", "networkPolicy": {"schedulerCIDRs": ["10.0.0.1/32"]}}

SHADOW = {"mode": "shadow"}

each_mode = pytest.mark.parametrize(
    "values", [{}, STOCK, ADVISOR, SHADOW], ids=["secondary", "stock", "advisor", "shadow"]
)

ACCEPTED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "stock": STOCK,
    "advisor": ADVISOR,
    "shadow": SHADOW,
    "an IPv6 address": ADVISOR | {"networkPolicy": {"schedulerCIDRs": ["fd00::1/128"]}},
    "one replica": {"replicas": 1},
    "an expander": {"expander": {"enabled": True, "anyClient": True}},
    "a digest": {"image": {"digest": "sha256:" + "0" * 64}},
    "a registry with a port": {"image": {"repository": "localhost:5000/dra-extender", "tag": "dev"}},
    "the longest name": {"fullnameOverride": "a" * 40, "schedulerName": "b" * 63},
    "preemption without quotation marks": {"settings": {"preemption": True}},
    "the shortest certificates": {"certificates": {"days": 31}},
    "an issuer": {
        "certificates": {"source": "certManager", "issuerRef": {"name": "internal", "kind": "ClusterIssuer"}}
    },
    "no resources": {"resources": {}, "kubeScheduler": {"resources": {}, "featureGates": {}}},
    "everything else of a pod": {
        "imagePullSecrets": [{"name": "registry"}],
        "env": [{"name": "TZ", "value": "UTC"}],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"operator": "Exists"}],
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "b"},
        "commonLabels": {"cost-center": "42"},
        "affinity": {"nodeAffinity": {}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        "topologySpreadConstraints": [],
        "volumes": [{"name": "workload", "configMap": {"name": "workload"}}],
        "volumeMounts": [{"name": "workload", "mountPath": "/workload"}],
        "serviceAccount": {"annotations": {"role": "c"}},
        "kubeScheduler": {
            "args": ["--v=2"],
            "nodeSelector": {"pool": "x"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "topologySpreadConstraints": [
                {"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
            ],
            "podLabels": {"team": "b"},
            "podAnnotations": {"note": "c"},
        },
    },
    "all of monitoring": {"metrics": {"monitor": "podMonitor", "rules": True, "dashboard": True, "labels": {}}},
    "a bundle of charts": {"global": {"anything": 1}},
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another mode": ({"mode": "third"}, "'secondary', 'stock', 'advisor', 'shadow'"),
    "a value that does not exist": ({"replica": 2}, "'replica' not allowed"),
    "a setting that does not exist": ({"settings": {"placment": "pack"}}, "'placment' not allowed"),
    "a setting of another kind": ({"settings": {"step_budget": "many"}}, "/settings/step_budget"),
    "another policy": ({"settings": {"placement": "best"}}, "'first-fit', 'pack', 'spread', 'fragmentation'"),
    "no replica": ({"replicas": 0}, "minimum"),
    "no image": ({"image": {"repository": ""}}, "--set image.repository=registry.example.com/dra-extender"),
    "a strategy misspelt": ({"strategy": {"rollingupdate": {}}}, "'type', 'rollingUpdate'"),
    "a label of the chart": (
        {"podLabels": {"app.kubernetes.io/name": "a"}},
        "podLabels: the chart sets the label app.kubernetes.io/name",
    ),
    "a label twice": ({"commonLabels": {"a": "b"}, "kubeScheduler": {"podLabels": {"a": "c"}}}, "Remove one of them"),
    "a digest that is none": ({"image": {"digest": "latest"}}, "/image/digest"),
    "a name that no object may have": ({"fullnameOverride": "A_B"}, "/fullnameOverride"),
    "certificates of an hour": ({"certificates": {"days": 1}}, "minimum"),
    "an address without its length": (
        ADVISOR | {"networkPolicy": {"schedulerCIDRs": ["10.0.0.1"]}},
        "/schedulerCIDRs/0",
    ),
    "insight for all namespaces": (
        {"networkPolicy": {"insightNamespaces": None}},
        "missing property 'insightNamespaces'",
    ),
    "no label for insight": (
        {"networkPolicy": {"insightNamespaces": {"dra-extender.dev/insight": None}}},
        "minProperties",
    ),
    "the name of the cluster's scheduler": ({"schedulerName": "default-scheduler"}, "set mode=stock"),
    "stock without nodes": ({**STOCK, "nodes": []}, "nodes={control-plane-1,control-plane-2}"),
    "stock without addresses": ({**STOCK, "networkPolicy": {}}, "networkPolicy.schedulerCIDRs={10.0.0.1/32}"),
    "advisor without addresses": ({"mode": "advisor"}, "or networkPolicy.enabled=false"),
    "an advisor that asks for nodes": (
        ADVISOR | {"settings": {"provisioning_requests": True}},
        "modes advisor and shadow",
    ),
    "an advisor that evicts": (ADVISOR | {"settings": {"preemption": "on"}}, "Set settings.preemption=advise"),
    "an advisor with a policy": (ADVISOR | {"policy": {"action": "Deny"}}, "Set policy.action=None"),
    "an issuer for nobody": ({"certificates": {"issuerRef": {"name": "a"}}}, "Set certificates.source=certManager"),
    "one key for both": ({"certificates": {"serverSecret": "a", "clientSecret": "a"}}, "Name two Secrets"),
    "an alert that does not exist": (
        {"metrics": {"disabledAlerts": ["DraExtenderPodWaiting"]}},
        "metrics.disabledAlerts: unknown alert DraExtenderPodWaiting. Use one of DraExtenderAbsent, ",
    ),
    "another time for an alert that does not exist": (
        {"metrics": {"alertsAfter": {"PodsWaiting": "1h"}}},
        "metrics.alertsAfter: unknown alert PodsWaiting. Use one of DraExtenderAbsent, ",
    ),
    "a time for an alert that is none": (
        {"metrics": {"alertsAfter": {"DraExtenderPodsWaiting": "soon"}}},
        "/metrics/alertsAfter/DraExtenderPodsWaiting",
    ),
    "the gate that must stay off": (
        {"kubeScheduler": {"featureGates": {"SchedulerPopFromBackoffQ": True}}},
        "kubeScheduler.featureGates.SchedulerPopFromBackoffQ",
    ),
    "a shadow that evicts": (SHADOW | {"settings": {"preemption": "on"}}, "Set settings.preemption=advise"),
    "the mode of the service": ({"settings": {"mode": "shadow"}}, "settings.mode: set mode=advisor or mode=shadow"),
    "a setting that is a value": (
        {"settings": {"scheduler_names": "a"}},
        "settings.scheduler_names: set schedulerName",
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_can_work_is_rendered_and_lint_has_nothing_to_say(helm: Helm, name: str) -> None:
    assert helm.render(ACCEPTED[name])
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), values=ACCEPTED[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_work_is_refused_with_the_remedy(helm: Helm, name: str) -> None:
    values, words = REFUSED[name]
    with pytest.raises(HelmError) as refusal:
        helm.render(values)
    assert words in str(refusal.value)


def test_old_clusters_are_refused_in_every_mode(helm: Helm) -> None:
    for values in ({}, STOCK, ADVISOR):
        with pytest.raises(HelmError, match=r">=1\.34\.0-0"):
            helm.render(values, "--kube-version=v1.33.1")
        assert helm.render(values, "--kube-version=v1.34.0")


@pytest.mark.parametrize(
    ("version", "image"),
    [("v1.35.4", "v1.35.4"), ("v1.34.2-gke.1042000", "v1.34.2"), ("v1.36.3+k3s1", "v1.36.3")],
)
def test_the_second_scheduler_is_of_the_release_of_the_cluster(helm: Helm, version: str, image: str) -> None:
    scheduler = one(helm.render({}, f"--kube-version={version}"), "Deployment", "dra-scheduler")
    (container,) = scheduler["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.k8s.io/kube-scheduler:{image}"


def loaded(documents: list[Document], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings as the first replica of the extender reads them."""
    deployment = next(
        each for each in documents if each["kind"] == "Deployment" and "dra-extender" in str(each["spec"])
    )
    for name, value in environment(deployment).items():
        monkeypatch.setenv(name, value)
    return load()


@each_mode
def test_the_service_takes_the_settings_that_are_made_of_values(
    helm: Helm, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "placement": "fragmentation",
        "max_body": 20_000_000,
        "bind_timeout": 12.5,
        "deallocate": False,
        "feature_gates": "DRAAdminAccess=false",
        "preemption": "advise",
    }
    settings = loaded(helm.render({**values, "settings": given}), monkeypatch)
    assert (settings.placement, settings.strategy.policy) == ("fragmentation", "fragmentation")
    assert (settings.max_body, settings.bind_timeout, settings.deallocate) == (20_000_000, 12.5, False)
    assert (settings.features("").DRAAdminAccess, settings.preemption) == (False, "advise")
    assert settings.mode == (values["mode"] if values in (ADVISOR, SHADOW) else "serve")
    names = set() if values == SHADOW else {"default-scheduler" if values else "dra-scheduler"}
    assert settings.config.scheduler_names == names


@pytest.mark.parametrize(
    "settings",
    [
        {"preemption": "advise"},
        {"preemption": "on"},
        {"provisioning_requests": True},
        {"nominate": "never"},
        {"feature_gates": "DRAExtendedResource=false"},
        {"feature_gates": "DRAAdminAccess=true,DRAExtendedResource=false", "nominate": "never"},
    ],
    ids=str,
)
@each_mode
def test_each_mode_has_exactly_the_permissions_that_the_service_needs(
    helm: Helm, values: dict[str, Any], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = values in (ADVISOR, SHADOW)
    if reads and (settings.get("preemption") == "on" or settings.get("provisioning_requests")):
        return  # refused
    documents = helm.render({**values, "settings": settings})
    wanted = needed_by(loaded(documents, monkeypatch))
    roles = [each for each in documents if each["kind"] in ("ClusterRole", "Role")]
    others = ("dra-scheduler", "dra-extender-why")
    assert allowed(each for each in roles if not each["metadata"]["name"].startswith(others)) == wanted
    if reads:
        writing = {text for text in wanted if text.split()[0] not in ("get", "list", "watch")}
        about_itself = {f"{verb} leases.coordination.k8s.io" for verb in ("create", "patch", "update")}
        questions = {"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"}
        assert writing == about_itself | questions


def test_developers_get_the_way_to_the_insight_port_of_the_service(helm: Helm) -> None:
    developers = [{"kind": "Group", "name": "system:authenticated"}]
    documents = helm.render({"developers": developers, "networkPolicy": {"apiServerCIDRs": ["10.0.0.1/32"]}})
    service, role = one(documents, "Service", "dra-extender"), one(documents, "Role", "dra-extender-why")
    binding, policy = one(documents, "RoleBinding", "dra-extender-why"), one(documents, "NetworkPolicy", "dra-extender")
    assert "insight" in {port["name"] for port in service["spec"]["ports"]}
    assert [rule["resourceNames"] for rule in role["rules"]] == [["https:dra-extender:insight"]]
    assert (binding["subjects"], binding["roleRef"]["name"]) == (developers, "dra-extender-why")
    admitted = {"ports": [{"port": "insight"}], "from": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}
    assert admitted in policy["spec"]["ingress"]
    assert not [each for each in helm.render({}) if each["kind"] == "RoleBinding" and "why" in each["metadata"]["name"]]


def test_values_of_pods_reach_the_pods_that_they_are_about(helm: Helm) -> None:
    affinity: dict[str, Any] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    }
    selected = {"topologyKey": "rack", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    own = selected | {"labelSelector": {"matchLabels": {"a": "b"}}}
    values = {
        "affinity": affinity,
        "topologySpreadConstraints": [own],
        "strategy": {"type": "Recreate"},
        "kubeScheduler": {
            "affinity": affinity,
            "topologySpreadConstraints": [selected],
            "podAnnotations": {"note": "c"},
            "podLabels": {"team": "b"},
        },
    }
    documents = helm.render(values)
    extender, scheduler = (one(documents, "Deployment", name)["spec"] for name in ("dra-extender", "dra-scheduler"))
    assert extender["strategy"] == {"type": "Recreate"}, "the API server refuses rollingUpdate with it"
    pods = [each["template"]["spec"] for each in (extender, scheduler)]
    assert [each["affinity"] for each in pods] == [affinity, affinity]
    assert pods[0]["topologySpreadConstraints"] == [own]
    selector = {"labelSelector": scheduler["selector"], "matchLabelKeys": ["pod-template-hash"]}
    assert pods[1]["topologySpreadConstraints"] == [selected | selector]
    assert scheduler["template"]["metadata"]["annotations"]["note"] == "c"
    assert scheduler["template"]["metadata"]["labels"].items() >= {"team": "b"}.items()
    (stock, _) = (each["spec"] for each in helm.render(STOCK) if each["kind"] == "Deployment")
    assert "topologySpreadConstraints" not in stock["template"]["spec"], "no scheduler places these pods"


@each_mode
def test_common_labels_are_on_every_object_and_pod_and_select_nothing(helm: Helm, values: dict[str, Any]) -> None:
    metrics = {"monitor": "serviceMonitor", "rules": True, "dashboard": True}
    documents = helm.render({**values, "metrics": metrics, "commonLabels": {"cost-center": "42"}})
    labelled = [each["metadata"] for each in documents]
    labelled += [each["spec"]["template"]["metadata"] for each in documents if each["kind"] == "Deployment"]
    assert [each["name"] for each in labelled if each["labels"].get("cost-center") != "42"] == []
    selectors = [each["spec"]["selector"] for each in documents if "selector" in each.get("spec", {})]
    assert selectors and "cost-center" not in str(selectors)


@pytest.mark.parametrize("values", [{}, STOCK, ADVISOR], ids=["secondary", "stock", "advisor"])
def test_no_object_of_helm_test_stays_after_a_test_that_fails(helm: Helm, values: dict[str, Any]) -> None:
    policies = [
        each["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        for each in helm.render(values)
        if "helm.sh/hook" in each["metadata"].get("annotations", {})
    ]
    assert policies
    assert set(policies) == {"before-hook-creation,hook-succeeded,hook-failed"}


def test_in_mode_stock_each_node_that_is_named_has_its_replica_without_a_scheduler(helm: Helm) -> None:
    pods = [each["spec"] for each in helm.render(STOCK) if each["kind"] == "Deployment"]
    assert [each["template"]["spec"]["nodeName"] for each in pods] == ["cp-1", "cp-2"]
    selectors = [json.dumps(each["selector"]["matchLabels"], sort_keys=True) for each in pods]
    assert len(set(selectors)) == 2, "neither Deployment takes the pods of the other"


@pytest.mark.parametrize(
    ("values", "budgets"),
    [({}, 1), ({"replicas": 1}, 0), (STOCK, 1), (STOCK | {"nodes": ["cp-1"]}, 0)],
    ids=["two replicas", "one replica", "two nodes", "one node"],
)
def test_a_budget_is_for_several_replicas_and_never_keeps_a_node_from_being_drained(
    helm: Helm, values: dict[str, Any], budgets: int
) -> None:
    assert sum(each["kind"] == "PodDisruptionBudget" for each in helm.render(values)) == budgets


def test_both_ends_believe_the_certificates_that_the_chart_makes(helm: Helm, tmp_path: Path) -> None:
    secrets = {each["metadata"]["name"]: each["data"] for each in helm.render() if each["kind"] == "Secret"}
    ends = []
    for name, purpose in (
        ("dra-extender-tls", ssl.Purpose.CLIENT_AUTH),
        ("dra-extender-client-tls", ssl.Purpose.SERVER_AUTH),
    ):
        files = {file: tmp_path / f"{name}-{file}" for file in ("tls.crt", "tls.key", "ca.crt")}
        for file, path in files.items():
            path.write_bytes(base64.b64decode(secrets[name][file]))
        context = ssl.create_default_context(purpose, cafile=files["ca.crt"])
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(files["tls.crt"], files["tls.key"])
        ends.append(context)
        assert b"BEGIN EC PRIVATE KEY" in files["tls.key"].read_bytes(), "an RSA key costs each handshake more"
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = ends[0].wrap_bio(there, back, server_side=True)
    client = ends[1].wrap_bio(back, there, server_hostname="dra-extender.dra-system.svc")
    for end in (client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    server.do_handshake()
    assert "dra-scheduler" in certified_names(server.getpeercert())


def test_kubelet_waits_for_as_long_as_the_settings_say(helm: Helm) -> None:
    pod = one(helm.render({"settings": {"shutdown_grace": 59.5}}), "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 75


def test_alerts_can_be_left_out_and_delayed(helm: Helm) -> None:
    changed = {"disabledAlerts": ["DraExtenderConflicts"], "alertsAfter": {"DraExtenderNotReady": "10m"}}
    rules = {
        rule["alert"]: rule["for"]
        for rule in one(helm.render({"metrics": {"rules": True, **changed}}), "PrometheusRule")["spec"]["groups"][0][
            "rules"
        ]
    }
    shipped = one(helm.render({"metrics": {"rules": True}}), "PrometheusRule")["spec"]["groups"][0]["rules"]
    assert {rule["alert"] for rule in shipped} - set(rules) == {"DraExtenderConflicts"}
    assert rules["DraExtenderNotReady"] == "10m"
