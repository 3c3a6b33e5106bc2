"""The table of served kinds, and the versions of resource.k8s.io that can be switched on and off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from embedded_cluster.apiserver import conversion
from embedded_cluster.apiserver.printers import cells, core, devices, policies, workloads
from embedded_cluster.apiserver.registry import ALL_VERBS, Kind, Printer, Registry, ServedResource
from embedded_cluster.apiserver.strategies.core import (
    DisruptionBudgetStrategy,
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PlainStrategy,
    PriorityClassStrategy,
    RoleStrategy,
    SecretStrategy,
    ServiceStrategy,
)
from embedded_cluster.apiserver.strategies.pods import PodStrategy
from embedded_cluster.apiserver.strategies.resource import (
    ClaimStrategy,
    ClaimTemplateStrategy,
    DeviceClassStrategy,
    DeviceTaintRuleStrategy,
    SliceStrategy,
)
from embedded_cluster.apiserver.strategies.workloads import DaemonSetStrategy, DeploymentStrategy, ReplicaSetStrategy
from embedded_cluster.apiserver.strategy import RESTStrategy

RESOURCE_GROUP: Final = "resource.k8s.io"
RESOURCE_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_DEPRECATED: Final = {
    "v1beta2": "deprecated in v1.36+, unavailable in v1.39+",
    "v1beta1": "deprecated in v1.35+, unavailable in v1.38+",
}


def _kind(
    group: str,
    kind: str,
    plural: str,
    short: tuple[str, ...] = (),
    *,
    namespaced: bool = True,
    strategy: RESTStrategy | None = None,
    printer: Printer = cells.PLAIN,
    status: bool = False,
    subresources: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    version: str = "v1",
    models: dict[str, str] | None = None,
    stored_with: tuple[str, str] | None = None,
    verbs: tuple[str, ...] = ALL_VERBS,
) -> Kind:
    return Kind(
        group,
        version,
        kind,
        plural,
        namespaced,
        strategy or PlainStrategy(status=status),
        printer,
        short_names=short,
        categories=categories,
        verbs=verbs,
        status=status,
        subresources=subresources,
        models=models or {},
        stored_with=stored_with,
    )


RBAC: Final = "rbac.authorization.k8s.io"

KINDS: Final = (
    _kind(
        "",
        "Namespace",
        "namespaces",
        ("ns",),
        namespaced=False,
        strategy=NamespaceStrategy(),
        printer=core.NAMESPACE,
        status=True,
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    ),
    _kind("", "Node", "nodes", ("no",), namespaced=False, strategy=NodeStrategy(), printer=core.NODE, status=True),
    _kind(
        "",
        "Pod",
        "pods",
        ("po",),
        strategy=PodStrategy(),
        printer=core.POD,
        status=True,
        subresources=("binding", "eviction"),
        categories=("all",),
    ),
    _kind("", "Event", "events", ("ev",), strategy=EventStrategy(), printer=core.EVENT, models={"v1": "CoreV1Event"}),
    _kind("", "ConfigMap", "configmaps", ("cm",), printer=core.CONFIG_MAP),
    _kind("", "Secret", "secrets", strategy=SecretStrategy(), printer=core.SECRET),
    _kind(
        "",
        "Service",
        "services",
        ("svc",),
        strategy=ServiceStrategy(),
        printer=core.SERVICE,
        status=True,
        categories=("all",),
    ),
    _kind("", "ServiceAccount", "serviceaccounts", ("sa",)),
    _kind(
        "events.k8s.io",
        "Event",
        "events",
        ("ev",),
        strategy=EventStrategy(),
        printer=core.EVENT,
        models={"v1": "EventsV1Event"},
        stored_with=("", "events"),
    ),
    _kind(
        "apps",
        "Deployment",
        "deployments",
        ("deploy",),
        strategy=DeploymentStrategy(),
        printer=workloads.DEPLOYMENT,
        status=True,
        subresources=("scale",),
        categories=("all",),
    ),
    _kind(
        "apps",
        "ReplicaSet",
        "replicasets",
        ("rs",),
        strategy=ReplicaSetStrategy(),
        printer=workloads.REPLICA_SET,
        status=True,
        subresources=("scale",),
        categories=("all",),
    ),
    _kind(
        "apps",
        "DaemonSet",
        "daemonsets",
        ("ds",),
        strategy=DaemonSetStrategy(),
        printer=workloads.DAEMON_SET,
        status=True,
        categories=("all",),
    ),
    _kind("coordination.k8s.io", "Lease", "leases", strategy=LeaseStrategy(), printer=policies.LEASE),
    _kind(
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        ("pdb",),
        strategy=DisruptionBudgetStrategy(status=True, generation=True),
        printer=policies.BUDGET,
        status=True,
    ),
    _kind(
        "networking.k8s.io",
        "NetworkPolicy",
        "networkpolicies",
        ("netpol",),
        strategy=PlainStrategy(generation=True),
        printer=policies.NETWORK_POLICY,
    ),
    _kind(RBAC, "ClusterRole", "clusterroles", namespaced=False, strategy=RoleStrategy(), printer=cells.CREATED),
    _kind(
        RBAC,
        "ClusterRoleBinding",
        "clusterrolebindings",
        namespaced=False,
        strategy=RoleStrategy(),
        printer=policies.ROLE_BINDING,
    ),
    _kind(RBAC, "Role", "roles", strategy=RoleStrategy(), printer=cells.CREATED),
    _kind(RBAC, "RoleBinding", "rolebindings", strategy=RoleStrategy(), printer=policies.ROLE_BINDING),
    _kind(
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        ("pc",),
        namespaced=False,
        strategy=PriorityClassStrategy(),
        printer=policies.PRIORITY_CLASS,
    ),
)

DEVICE_KINDS: Final = (
    _kind(RESOURCE_GROUP, "DeviceClass", "deviceclasses", namespaced=False, strategy=DeviceClassStrategy()),
    _kind(
        RESOURCE_GROUP,
        "ResourceClaim",
        "resourceclaims",
        strategy=ClaimStrategy(),
        printer=devices.CLAIM,
        status=True,
        models={"v1": "ResourceV1ResourceClaim"},
    ),
    _kind(RESOURCE_GROUP, "ResourceClaimTemplate", "resourceclaimtemplates", strategy=ClaimTemplateStrategy()),
    _kind(
        RESOURCE_GROUP,
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        strategy=SliceStrategy(),
        printer=devices.SLICE,
    ),
)

TAINT_RULE: Final = _kind(
    RESOURCE_GROUP,
    "DeviceTaintRule",
    "devicetaintrules",
    namespaced=False,
    strategy=DeviceTaintRuleStrategy(),
    printer=devices.TAINT_RULE,
    status=True,
    version="v1beta2",
)


def registry(versions: Iterable[str] = ("v1",)) -> Registry:
    """Everything that is served, with resource.k8s.io at `versions` (of v1, v1beta2, v1beta1).

    Raises ValueError for a version that does not exist.
    """
    wanted = tuple(versions)
    unknown = [version for version in wanted if version not in RESOURCE_VERSIONS]
    if unknown or not wanted:
        raise ValueError(f"versions of {RESOURCE_GROUP} must be some of {', '.join(RESOURCE_VERSIONS)}, not {wanted}")
    resources = [
        ServedResource(kind, kind.storage_version, conversion.EVENTS if kind.stored_with else None) for kind in KINDS
    ]
    for version in RESOURCE_VERSIONS:
        if version in wanted:
            resources += [_device_resource(kind, version) for kind in DEVICE_KINDS]
            if version == "v1beta2":
                resources.append(ServedResource(TAINT_RULE, version))
    return Registry(resources)


def _device_resource(kind: Kind, version: str) -> ServedResource:
    converted = conversion.V1BETA1.get(kind.plural) if version == "v1beta1" else None
    return ServedResource(kind, version, converted, _DEPRECATED.get(version, ""))
