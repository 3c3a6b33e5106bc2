"""Migration: hardware that is offered twice, where pods fit after the switch, quotas, and the order of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dra_extender.api.decoding import to_builtins
from dra_extender.insight import migration
from dra_extender.insight.migration import Migration, migrating, plan
from dra_extender.insight.requests import InvalidRequestError
from dra_extender.scheduling.turns import run_at_once
from tests.support.diagnosis.hardware import device_class, gpus, node
from tests.support.diagnosis.scene import Scene

Json = dict[str, Any]
DRIVER = "gpu.nvidia.com"
RESOURCE = "nvidia.com/gpu"
CLASS = device_class(DRIVER, f'device.driver == "{DRIVER}"', RESOURCE)


def machine(name: str, plugin: str = "", devices: int = 0) -> list[Json]:
    made = node(name)
    made["status"]["allocatable"] |= {RESOURCE: plugin} if plugin else {}
    slices = gpus(name, "H100", devices, "80Gi", "1.0.0")
    slices["spec"]["driver"] = DRIVER
    return [made, slices] if devices else [made]


def pod(name: str, amount: str = "1", on: str = "", owner: str = "ReplicaSet/train-5d9", **spec: Any) -> Json:
    kind, _, controller = owner.partition("/")
    meta = {
        "name": name, "uid": f"uid-{name}",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": kind, "name": controller, "uid": controller, "controller": True}
        ] if owner else [],
    }  # fmt: skip
    container = {"name": "main", "resources": {"requests": {"cpu": "10m", RESOURCE: amount}}}
    return {"kind": "Pod", "metadata": meta, "spec": {"nodeName": on, "containers": [container], **spec}}


def ask(documents: Sequence[Json], chosen: Mapping[str, str] | None = None) -> Migration:
    return run_at_once(migrating(Scene(documents).view(), chosen or {}))


def placed(found: Migration, when: str = "after") -> dict[str, str]:
    """By pod, its node; the reason if it has none."""
    pods = [pair for each in found.workloads for pair in getattr(each, when).items()]
    return {key.removeprefix("default/"): at.node or at.reason for key, at in pods}


SIX = [
    CLASS,
    *machine("both-1", "8", 8), *machine("both-2", "8", 8), *machine("slices-1", "", 8), *machine("slices-2", "", 8),
    *machine("plugin", "8"), *machine("none"),
]  # fmt: skip


def forty() -> list[Json]:
    """Eight run on each node with a plugin. Sixteen wait: they fit the nodes with slices only."""
    running = [pod(f"{name}-{index}", on=name) for name in ("both-1", "both-2", "plugin") for index in range(8)]
    return [*running, *(pod(f"waits-{index:02}") for index in range(16))]


def test_of_six_nodes_with_forty_pods_the_two_that_offer_hardware_twice_are_named() -> None:
    found = ask([*SIX, *forty()])
    assert [each.node for each in found.nodes if each.state == "offered twice"] == ["both-1", "both-2"]
    assert [(each.node, each.plugin, each.devices) for each in found.nodes] == [
        ("both-1", 8, 8), ("both-2", 8, 8), ("plugin", 8, 0), ("slices-1", 0, 8), ("slices-2", 0, 8)
    ]  # fmt: skip
    assert len(placed(found)) == 40
    assert set(placed(found).values()) == {"both-1", "both-2", "plugin", "slices-1", "slices-2"}
    assert found.problems == ()


def test_pods_of_a_drained_node_do_not_take_the_place_of_waiting_pods() -> None:
    found = ask([*SIX, *forty()])
    now, after = ({key: at for key, at in placed(found, when).items() if "waits" in key} for when in ("now", "after"))
    assert set(now.values()) == {"slices-1", "slices-2"}
    assert now == after
    assert [len(step.waits) for step in found.order] == [8, 8, 8]
    assert not found.harmless


def test_work_for_which_the_budget_does_not_suffice_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "MOST_NODES", 30)
    found = ask([*SIX, *forty()])
    assert found.problems[0].endswith("not decided: the work of one answer is limited")
    assert [step.node for step in found.order] == ["both-1", "both-2", "plugin"]


def test_a_node_whose_pods_fit_elsewhere_is_switched_before_a_smaller_one_whose_pods_do_not() -> None:
    stuck = pod("stuck", on="a", nodeSelector={"kubernetes.io/hostname": "a"})
    movable = [pod("p", on="b"), pod("q", on="b")]
    found = ask([CLASS, *machine("a", "2", 2), *machine("b", "2", 2), *machine("c", "", 2), stuck, *movable])
    assert [(step.node, dict(step.moves), step.waits) for step in found.order] == [
        ("b", {"default/p": "c", "default/q": "c"}, ()),
        ("a", {}, ("default/stuck",)),
    ]
    assert placed(found) == {"stuck": "a", "p": "c", "q": "c"}


def test_an_attempt_that_fails_leaves_no_trace() -> None:
    """Draining a is tried first, and undone: its pod with a claim keeps its place, and the other takes none on c."""
    claim = pod("half", on="a")
    stuck = pod("stuck", on="a", nodeSelector={"kubernetes.io/hostname": "a"})
    crowd = [pod(f"b-{index}", on="b") for index in range(3)]
    found = ask([CLASS, *machine("a", "2", 2), *machine("b", "3", 3), *machine("c", "", 3), claim, stuck, *crowd])
    assert [(step.node, len(step.moves), len(step.waits)) for step in found.order] == [("b", 3, 0), ("a", 1, 1)]


def test_pods_of_a_daemonset_come_back_on_their_node_and_others_move_to_nodes_that_are_switched() -> None:
    daemon = pod("agent", on="a", owner="DaemonSet/agent")
    found = ask([CLASS, *machine("a", "2", 2), *machine("b", "2", 2), daemon, pod("p", on="b")])
    assert [(step.node, dict(step.moves)) for step in found.order] == [("a", {}), ("b", {"default/p": "a"})]
    assert placed(found) == {"agent": "a", "p": "a"}


def test_a_node_that_publishes_fewer_devices_than_its_plugin_offers_loses_a_pod() -> None:
    found = ask([CLASS, *machine("a", "2", 1), pod("p", on="a"), pod("q", on="a")])
    assert placed(found, "now") == {"p": "a", "q": "a"}
    assert placed(found) == {"p": "a", "q": "1 node lacks the devices"}
    assert not found.harmless


def test_the_claim_is_the_one_that_the_scheduler_makes() -> None:
    (found,) = ask([CLASS, *machine("a", "", 2), pod("p", "2")]).workloads
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 2}
    assert to_builtins(found.claim) == {
        "requests": [{"name": "container-0-request-1", "exactly": exactly}],
        "mappings": [{"containerName": "main", "resourceName": RESOURCE, "requestName": "container-0-request-1"}],
    }
    assert (found.namespace, found.workload) == ("default", "ReplicaSet/train-5d9")


def test_quotas_charge_pods_by_resource_and_claims_by_class() -> None:
    (charge,) = ask([CLASS, *machine("a", "4", 4), pod("p", "2", on="a"), pod("q", "1")]).quotas
    assert (charge.namespace, charge.name, charge.charged) == ("default", f"requests.{RESOURCE}", 3)
    assert charge.claims_name == f"{DRIVER}.deviceclass.resource.k8s.io/devices"


def test_the_plan_has_missing_classes_and_leaves_pods_and_quotas_as_they_are() -> None:
    objects, todo = plan(ask([*machine("a", "4", 4), pod("p", on="a")]), templates=False)
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    assert [(each["kind"], each["metadata"], each["spec"]) for each in objects] == [
        ("DeviceClass", {"name": DRIVER}, {"selectors": selectors, "extendedResourceName": RESOURCE}),
    ]
    assert todo == ["default ReplicaSet/train-5d9: nothing to change", "ResourceQuotas: nothing to change"]


def test_without_the_feature_gate_the_plan_has_a_template_for_each_workload() -> None:
    found = ask([device_class(DRIVER, "true"), *machine("a", "4", 4), pod("p", on="a"), pod("q"), pod("r", "2")])
    objects, todo = plan(found, templates=True)
    assert [(each["kind"], each["metadata"]["name"]) for each in objects] == [
        ("ResourceClaimTemplate", "train-5d9-devices-1"), ("ResourceClaimTemplate", "train-5d9-devices-2")
    ]  # fmt: skip
    assert todo[:3] == [
        f"default ResourceQuotas: add {DRIVER}.deviceclass.resource.k8s.io/devices (4 in use)",
        "default ReplicaSet/train-5d9: resourceClaims: "
        "[{name: devices, resourceClaimTemplateName: train-5d9-devices-1}]",
        "  container main: resources.claims: [{name: devices, request: container-0-request-1}] "
        f"instead of {RESOURCE}",
    ]


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        ([*machine("a", "4"), pod("p")], "nvidia.com/gpu: no DeviceClass has this extendedResourceName"),
        ([CLASS, *machine("a", "1500m", 4)], "node a has 1.5 of nvidia.com/gpu: Kubernetes accepts whole numbers only"),
        ([CLASS, *machine("a", "2", 4), pod("p", "1500m")], "pod default/p has 1.5 of nvidia.com/gpu"),
        (
            [CLASS, *machine("a", "2"), *machine("b", "", 1), pod("p", on="a", owner="")],
            "1 running pod without a contr",
        ),
        ([device_class("x", "false", RESOURCE), *machine("a", "2", 1)], f"driver {DRIVER}: no DeviceClass selects its"),
    ],
)
def test_what_is_wrong_is_said(documents: list[Json], problem: str) -> None:
    assert any(each.startswith(problem) for each in ask(documents).problems), ask(documents).problems


def test_an_empty_cluster_has_nothing_to_migrate() -> None:
    found = ask([])
    assert (found.nodes, found.workloads, found.order, found.problems, found.harmless) == ((), (), (), (), True)


def test_a_node_without_slices_is_assumed_to_publish_what_its_plugin_offers() -> None:
    (step,) = ask([CLASS, *machine("a", "2"), pod("p", on="a")]).order
    assert (step.needs, step.waits) == ("DRA driver", ("default/p",))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nope", "--class nvidia.com/gpu=nope: DeviceClass not found"),
        ("", "--class nvidia.com/gpu=: DeviceClass not found"),
        ("taken", "--class nvidia.com/gpu=taken: DeviceClass provides other.com/gpu"),
    ],
)
def test_a_chosen_class_has_to_exist_and_be_free(name: str, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        ask([device_class("taken", "true", "other.com/gpu"), *machine("a", "1")], {RESOURCE: name})


def test_a_chosen_class_and_an_implicit_resource_name_provide_devices() -> None:
    chosen = ask([device_class("fast", "true"), *machine("a", "1", 1), pod("p")], {RESOURCE: "fast"})
    assert chosen.classes == {RESOURCE: "fast"}
    assert [each["spec"] for each in chosen.changed] == [{"extendedResourceName": RESOURCE}]
    implicit = "deviceclass.resource.kubernetes.io/fast"
    direct = pod("p")
    direct["spec"]["containers"][0]["resources"]["requests"] = {implicit: "1"}
    found = ask([device_class("fast", "true"), *machine("a", "", 1), direct])
    assert (found.classes, found.changed, placed(found)) == ({implicit: "fast"}, (), {"p": "a"})


def test_a_resource_that_no_node_has_gets_no_class_by_its_name() -> None:
    """Users name resources. A pod that requests com/gpu.nvidia must not take the class of nvidia.com/gpu."""
    other = pod("other")
    other["spec"]["containers"][0]["resources"]["requests"] = {"com/gpu.nvidia": "1"}
    documents = [device_class(DRIVER, f'device.driver == "{DRIVER}"'), *machine("a", "8", 8), pod("train", on="a")]
    found = ask([*documents, other])
    assert found.classes == ask(documents).classes == {RESOURCE: DRIVER}
    assert any(problem.startswith("com/gpu.nvidia: no DeviceClass") for problem in found.problems)
