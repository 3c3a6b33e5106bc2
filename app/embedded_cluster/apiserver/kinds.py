"""The table of served kinds, and the versions of resource.k8s.io that can be switched on and off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from embedded_cluster.apiserver import conversion, printers
from embedded_cluster.apiserver.printers import Printer
from embedded_cluster.apiserver.registry import ALL_VERBS, Kind, Registry, ServedResource
from embedded_cluster.apiserver.strategies.core import (
    DisruptionBudgetStrategy,
    EventStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PriorityClassStrategy,
    RoleStrategy,
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

APPS: Final = "apps"
RBAC: Final = "rbac.authorization.k8s.io"
RESOURCE_GROUP: Final = "resource.k8s.io"
RESOURCE_VERSIONS: Final = ("v1", "v1beta2")
_DEPRECATED: Final = {"v1beta2": "deprecated in v1.36+, unavailable in v1.39+"}


def _kind(
    group: str,
    kind: str,
    plural: str,
    strategy: RESTStrategy,
    printer: Printer = printers.PLAIN,
    short: str = "",
    **more: Any,
) -> Kind:
    """A namespaced kind, of version v1; `more` are other fields of `Kind`."""
    fields: dict[str, Any] = {"storage_version": "v1", "namespaced": True, **more}
    names = (short,) if short else ()
    return Kind(group, kind=kind, plural=plural, strategy=strategy, printer=printer, short_names=names, **fields)


def _global(*row: Any, **more: Any) -> Kind:
    """A kind without namespaces."""
    return _kind(*row, **more, namespaced=False)


_OF_PODS: Final[dict[str, Any]] = {"status": True, "categories": ("all",)}
_SCALED: Final[dict[str, Any]] = {**_OF_PODS, "subresources": ("scale",)}
_EVENT: Final = ("Event", "events", EventStrategy(), printers.EVENT, "ev")
_NO_COLLECTION: Final = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")

KINDS: Final = (
    _global(
        *("", "Namespace", "namespaces", NamespaceStrategy(), printers.NAMESPACE, "ns"),
        status=True,
        verbs=_NO_COLLECTION,
    ),
    _global("", "Node", "nodes", NodeStrategy(), printers.NODE, "no", status=True),
    _kind("", "Pod", "pods", PodStrategy(), printers.POD, "po", subresources=("binding", "eviction"), **_OF_PODS),
    _kind("", *_EVENT, models={"v1": "CoreV1Event"}),
    _kind("", "ConfigMap", "configmaps", RESTStrategy(), printers.CONFIG_MAP, "cm"),
    _kind("", "ServiceAccount", "serviceaccounts", RESTStrategy(), short="sa"),
    _kind("events.k8s.io", *_EVENT, models={"v1": "EventsV1Event"}, stored_with=("", "events")),
    _kind(APPS, "Deployment", "deployments", DeploymentStrategy(), printers.DEPLOYMENT, "deploy", **_SCALED),
    _kind(APPS, "ReplicaSet", "replicasets", ReplicaSetStrategy(), printers.REPLICA_SET, "rs", **_SCALED),
    _kind(APPS, "DaemonSet", "daemonsets", DaemonSetStrategy(), printers.DAEMON_SET, "ds", **_OF_PODS),
    _kind("coordination.k8s.io", "Lease", "leases", LeaseStrategy(), printers.LEASE),
    _kind(
        *("policy", "PodDisruptionBudget", "poddisruptionbudgets", DisruptionBudgetStrategy(), printers.BUDGET, "pdb"),
        status=True,
    ),
    _global(RBAC, "ClusterRole", "clusterroles", RoleStrategy()),
    _global(RBAC, "ClusterRoleBinding", "clusterrolebindings", RoleStrategy()),
    _kind(RBAC, "Role", "roles", RoleStrategy()),
    _kind(RBAC, "RoleBinding", "rolebindings", RoleStrategy()),
    _global(
        "scheduling.k8s.io", "PriorityClass", "priorityclasses", PriorityClassStrategy(), printers.PRIORITY_CLASS, "pc"
    ),
)

_CLAIM_MODELS: Final = {"v1": "ResourceV1ResourceClaim"}
DEVICE_KINDS: Final = (
    _global(RESOURCE_GROUP, "DeviceClass", "deviceclasses", DeviceClassStrategy()),
    _kind(
        *(RESOURCE_GROUP, "ResourceClaim", "resourceclaims", ClaimStrategy(), printers.CLAIM),
        status=True,
        models=_CLAIM_MODELS,
    ),
    _kind(RESOURCE_GROUP, "ResourceClaimTemplate", "resourceclaimtemplates", ClaimTemplateStrategy()),
    _global(RESOURCE_GROUP, "ResourceSlice", "resourceslices", SliceStrategy(), printers.SLICE),
)

TAINT_RULE: Final = _global(
    *(RESOURCE_GROUP, "DeviceTaintRule", "devicetaintrules", DeviceTaintRuleStrategy(), printers.TAINT_RULE),
    status=True,
    models=dict.fromkeys(RESOURCE_VERSIONS, "V1beta2DeviceTaintRule"),
)


def registry(versions: Iterable[str] = ("v1",)) -> Registry:
    """Everything that is served, with resource.k8s.io at `versions` (of v1, v1beta2).

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
            deprecated = _DEPRECATED.get(version, "")
            resources += [ServedResource(kind, version, deprecated=deprecated) for kind in DEVICE_KINDS]
            resources.append(ServedResource(TAINT_RULE, version))
    return Registry(resources)
