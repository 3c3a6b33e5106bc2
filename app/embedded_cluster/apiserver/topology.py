"""What the models of kubernetes-asyncio leave open: how lists merge, which structs and maps are atomic, what is a
quantity.

`LISTS` says for each list that is not atomic what identifies an item: `keys` (a map) or by value (`unique`,
a set) in server-side apply, and by `patch_key` in strategic merge patches, which know a single key only. Names are
those of the models without their version (`V1PodSpec` is `PodSpec`), JSON names for fields. Source: the
`x-kubernetes-*` marks of the OpenAPI document of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Merge:
    """How one list field merges."""

    keys: tuple[str, ...] = ()
    unique: bool = False
    patch_key: str = ""
    patch_merge: bool = False
    retain_keys: bool = False


def by(*keys: str, patch: str | None = None, retain: bool = False) -> Merge:
    """A list that is a map by `keys`; strategic merge uses `patch`, or the first key."""
    return Merge(keys=keys, patch_key=keys[0] if patch is None else patch, retain_keys=retain)


_SET: Final = Merge(unique=True, patch_merge=True)
_UNIQUE: Final = Merge(unique=True)

LISTS: Final[dict[tuple[str, str], Merge]] = {
    ("ObjectMeta", "finalizers"): _SET,
    ("ObjectMeta", "ownerReferences"): by("uid"),
    # pods
    ("PodSpec", "containers"): by("name"),
    ("PodSpec", "initContainers"): by("name"),
    ("PodSpec", "ephemeralContainers"): by("name"),
    ("PodSpec", "volumes"): by("name", retain=True),
    ("PodSpec", "imagePullSecrets"): by("name"),
    ("PodSpec", "hostAliases"): by("ip"),
    ("PodSpec", "topologySpreadConstraints"): by("topologyKey", "whenUnsatisfiable"),
    ("PodSpec", "schedulingGates"): by("name"),
    ("PodSpec", "resourceClaims"): by("name", retain=True),
    ("Container", "env"): by("name"),
    ("Container", "ports"): by("containerPort", "protocol"),
    ("Container", "volumeMounts"): by("mountPath"),
    ("Container", "volumeDevices"): by("devicePath"),
    ("EphemeralContainer", "env"): by("name"),
    ("EphemeralContainer", "ports"): by("containerPort", "protocol"),
    ("EphemeralContainer", "volumeMounts"): by("mountPath"),
    ("EphemeralContainer", "volumeDevices"): by("devicePath"),
    ("ResourceRequirements", "claims"): by("name", patch=""),
    ("PodStatus", "conditions"): by("type"),
    ("PodStatus", "podIPs"): by("ip"),
    ("PodStatus", "hostIPs"): Merge(patch_key="ip"),
    ("PodStatus", "resourceClaimStatuses"): by("name", retain=True),
    ("ContainerStatus", "volumeMounts"): by("mountPath"),
    ("ContainerStatus", "allocatedResourcesStatus"): by("name"),
    ("ContainerRestartRuleOnExitCodes", "values"): _UNIQUE,
    ("NodeAllocatableResourceClaimStatus", "containers"): _UNIQUE,
    ("ResourceStatus", "resources"): by("resourceID", patch=""),
    # nodes, namespaces and the rest of core
    ("NodeSpec", "podCIDRs"): _SET,
    ("NodeStatus", "addresses"): by("type"),
    ("NodeStatus", "conditions"): by("type"),
    ("NamespaceStatus", "conditions"): by("type"),
    # apps, policy, rbac
    ("DeploymentStatus", "conditions"): by("type"),
    ("ReplicaSetStatus", "conditions"): by("type"),
    ("PodDisruptionBudgetStatus", "conditions"): by("type"),
    # resource.k8s.io
    ("ResourceClaimStatus", "reservedFor"): by("uid"),
    ("ResourceClaimStatus", "devices"): by("driver", "device", "pool", "shareID", patch=""),
    ("AllocatedDeviceStatus", "conditions"): by("type", patch=""),
    ("DeviceTaintRuleStatus", "conditions"): by("type"),
}

STRATEGIES: Final = {("DeploymentSpec", "strategy"): "retainKeys", ("PodDisruptionBudgetSpec", "selector"): "replace"}
"""How strategic merge treats structs that do not simply merge."""

ATOMIC_STRUCTS: Final = frozenset(
    (
        *("ConfigMapKeySelector", "FileKeySelector", "LabelSelector", "LocalObjectReference", "NodeSelector"),
        *("NodeSelectorTerm", "ObjectFieldSelector", "ObjectReference", "OwnerReference", "ResourceFieldSelector"),
        *("RoleRef", "ScopeSelector", "SecretKeySelector", "SecretReference", "Subject"),
        "TypedLocalObjectReference",
    )
)

ATOMIC_MAPS: Final = frozenset({("PodSpec", "nodeSelector")})

QUANTITIES: Final = frozenset(
    {
        ("ResourceRequirements", "limits"),
        ("ResourceRequirements", "requests"),
        ("VolumeResourceRequirements", "limits"),
        ("VolumeResourceRequirements", "requests"),
        ("PodSpec", "overhead"),
        ("ContainerStatus", "allocatedResources"),
        ("PodStatus", "allocatedResources"),
        ("NodeAllocatableResourceClaimStatus", "resources"),
        ("NodeStatus", "allocatable"),
        ("NodeStatus", "capacity"),
        ("EmptyDirVolumeSource", "sizeLimit"),
        ("ResourceFieldSelector", "divisor"),
        ("DeviceCapacity", "value"),
        ("Counter", "value"),
        ("CapacityRequestPolicy", "default"),
        ("CapacityRequestPolicy", "validValues"),
        ("CapacityRequestPolicyRange", "min"),
        ("CapacityRequestPolicyRange", "max"),
        ("CapacityRequestPolicyRange", "step"),
        ("CapacityRequirements", "requests"),
        ("DeviceRequestAllocationResult", "consumedCapacity"),
    }
)

INT64: Final = frozenset(
    (
        *("activeDeadlineSeconds", "capacity", "count", "deletionGracePeriodSeconds", "expirationSeconds", "fsGroup"),
        *("generation", "gid", "int", "ints", "observedGeneration", "resourceSliceCount", "runAsGroup", "runAsUser"),
        *("seconds", "sizeBytes", "supplementalGroups", "terminationGracePeriodSeconds", "tolerationSeconds", "uid"),
    )
)
"""Names of fields that are integers of 64 bits; other integers have 32. Source: the .proto files of Kubernetes 1.36."""

INT_OR_STRING: Final = frozenset(
    {
        ("HTTPGetAction", "port"),
        ("PodDisruptionBudgetSpec", "maxUnavailable"),
        ("PodDisruptionBudgetSpec", "minAvailable"),
        ("RollingUpdateDaemonSet", "maxSurge"),
        ("RollingUpdateDaemonSet", "maxUnavailable"),
        ("RollingUpdateDeployment", "maxSurge"),
        ("RollingUpdateDeployment", "maxUnavailable"),
        ("TCPSocketAction", "port"),
    }
)

SILENTLY_DROPPED: Final = frozenset(
    {
        ("Device", "nodeAllocatableResources"),
        ("DeviceCounterConsumption", "compatibilityGroups"),
        ("DeviceRequestAllocationResult", "skipNodeOperations"),
        ("DeviceSubRequest", "derivedAttributes"),
        ("ExactDeviceRequest", "derivedAttributes"),
        ("ResourceSliceSpec", "partitionTypeAttribute"),
        ("ResourceSliceSpec", "skipNodeOperations"),
    }
)
"""Fields of features of Kubernetes 1.37 that are off."""
GONE: Final = frozenset({("Device", "nodeAllocatableResourceMappings")})
"""Fields that Kubernetes 1.37 does not have any more."""

_VERSION: Final = re.compile(r"^(?:[A-Z][a-z]+)?V\d+(?:(?:alpha|beta)\d+)?(?=[A-Z])")


def base_name(model: str) -> str:
    """`V1beta1PodSpec` -> `PodSpec`, `RbacV1Subject` -> `Subject`."""
    return _VERSION.sub("", model)
