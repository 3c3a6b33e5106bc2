"""Extended resources that devices provide: the device classes behind resource names, and the claim for a pod's
requests.

Promises: requests, their names and the mappings are those that kube-scheduler's plugin writes, because kubelet finds
the devices of a container through them. `ResourceNames` changes through `class_seen`, `classes_changed` and `asked_for`
only.

Rules: Kubernetes 1.36, pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go and
dynamic-resource-allocation/deviceclass/extendedresourcecache. Two differences: a claim without requests is never
created, and names are mapped from all classes at once, so deleting one of two classes with the same name leaves the
other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from cachetools import LRUCache

from dra_extender.api.core import ContainerExtendedResourceRequest, Node, Pod
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import (
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    EXTENDED_RESOURCE_CLASS_PREFIX,
    MAX_REQUESTS,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from dra_extender.limits import CONTAINERS_OF_POD
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Clock

SYNTHETIC_NAME = "<extended-resources>"
CANNOT_FIT = "cannot fit resource"
CANNOT_SCHEDULE = "cannot schedule extended resource claim"

TOO_MANY = f"a pod with extended resources has more than {CONTAINERS_OF_POD:,} containers"

NANO = 10**9
_NAME_PREFIX = 53
"""Ten characters follow, so that a name has at most 63."""


class ExtendedResources(msgspec.Struct, frozen=True):
    """The extended resources that a pod requests: `classes` maps them to device classes, `others` have no class."""

    classes: Mapping[str, str]
    others: frozenset[str]


class Requests(msgspec.Struct, frozen=True):
    """The requests of a pod for one set of resources, and which container uses which request."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[ContainerExtendedResourceRequest, ...]

    def status(self, claim: str) -> dict[str, Any]:
        """The patch of the pod's status, for the claim of this name."""
        return {"extendedResourceClaimStatus": {"requestMappings": self.mappings, "resourceClaimName": claim}}


def class_names(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """Explicit resource names to classes. The newer of two classes with one name wins, then the smaller class name."""
    ordered = sorted(classes, key=lambda item: item.metadata.name, reverse=True)
    ordered.sort(key=lambda item: item.metadata.creation_timestamp or "")
    return {
        item.spec.extended_resource_name: item.metadata.name for item in ordered if item.spec.extended_resource_name
    }


def wanted(pod: Pod, names: Mapping[str, str], classes: Mapping[str, DeviceClass]) -> ExtendedResources | None:
    """The extended resources of the pod; None when no device class provides any. `names`: from `class_names`."""
    found: dict[str, str] = {}
    others: set[str] = set()
    for resource in _requested(pod):
        implicit = resource.removeprefix(EXTENDED_RESOURCE_CLASS_PREFIX)
        device_class = names.get(resource)
        if device_class is None and implicit != resource and implicit in classes:
            device_class = implicit
        if device_class is not None:
            found[resource] = device_class
        elif is_extended(resource):
            others.add(resource)
    return ExtendedResources(classes=found, others=frozenset(others)) if found else None


def unprovided(pod: Pod, node: Node | None) -> frozenset[str]:
    """The extended resources that the pod requests and the node does not have."""
    allocatable = node.status.allocatable if node is not None else {}
    return frozenset(name for name in _requested(pod) if is_extended(name) and name not in allocatable)


def _requested(pod: Pod) -> Iterable[str]:
    """Names of all resources with a request above zero; most pods ask for cpu and memory only."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for name, amount in container.resources.requests.items():
            if "/" in name and amount.nano > 0:
                yield name


def is_extended(resource: str) -> bool:
    domain = resource.partition("/")[0]
    return domain != "kubernetes.io" and not domain.endswith(".kubernetes.io") and not domain.startswith("requests.")


def through_devices(wanted: ExtendedResources, node: Node) -> frozenset[str] | None:
    """The resources that devices provide on this node; device plugins provide the others. None: the pod cannot fit."""
    allocatable = node.status.allocatable
    if any(resource not in allocatable for resource in wanted.others):
        return None
    return frozenset(
        resource for resource in wanted.classes if (amount := allocatable.get(resource)) is None or amount.nano == 0
    )


def is_oversized(pod: Pod) -> bool:
    """True when the pod has too many containers to look at in one step."""
    return len(pod.spec.init_containers) + len(pod.spec.containers) > CONTAINERS_OF_POD


def requests_of(
    pod: Pod, wanted: ExtendedResources, resources: frozenset[str], made: dict[str, Requests] | None = None
) -> Requests:
    """`made`: the pod's requests for each resource, which sets of resources share."""
    made = {} if made is None else made
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(resources):
        if resource not in made:
            made[resource] = _requests_of_one(pod, resource, wanted.classes[resource])
        more = made[resource]
        requests.extend(more.requests)
        mappings.extend(more.mappings)
    return Requests(requests=tuple(sorted(requests, key=lambda request: request.name)), mappings=tuple(mappings))


class _Need(msgspec.Struct, frozen=True):
    """What one container asks for of one resource. `index` numbers init containers, then containers."""

    index: int
    container: str
    request: str
    count: int


def _requests_of_one(pod: Pod, resource: str, device_class: str) -> Requests:
    """Long-lived containers get requests of their own. Short-lived containers borrow from containers that start later,
    and share one additional request for the largest rest. With more than `MAX_REQUESTS` no claim is made, so borrowing
    is not computed, and one request replaces all after the first that is too many.
    """
    lasting, passing = _needs(pod, resource)
    if len(lasting) > MAX_REQUESTS:
        ordered, passing = sorted(lasting, key=lambda need: need.request), []
        lasting, others = ordered[: MAX_REQUESTS + 1], ordered[MAX_REQUESTS + 1 :]
        lasting += [msgspec.structs.replace(need, count=sum(each.count for each in others)) for need in others[:1]]
    mappings = [ContainerExtendedResourceRequest(need.container, resource, need.request) for need in lasting]
    extra: _Need | None = None
    borrowed: list[tuple[_Need, list[str], int]] = []
    for need in passing:
        names, rest = _borrow(need, lasting)
        borrowed.append((need, names, rest))
        if rest > 0 and (extra is None or rest > extra.count):
            extra = msgspec.structs.replace(need, count=rest)
    for need, names, rest in borrowed:
        if rest > 0 and extra is not None:
            names = [*names, extra.request]
        mappings.extend(ContainerExtendedResourceRequest(need.container, resource, name) for name in names)
    needs = lasting if extra is None else [*lasting, extra]
    exact = partial(ExactDeviceRequest, device_class_name=device_class, allocation_mode="ExactCount")
    requests = tuple(DeviceRequest(need.request, exact(count=need.count)) for need in needs)
    return Requests(requests=requests, mappings=tuple(mappings))


def _needs(pod: Pod, resource: str) -> tuple[list[_Need], list[_Need]]:
    """The needs of long-lived and of short-lived containers, in order."""
    lasting: list[_Need] = []
    passing: list[_Need] = []
    init = pod.spec.init_containers
    for index, container in enumerate((*init, *pod.spec.containers)):
        amounts = container.resources.requests
        amount = amounts.get(resource)
        if amount is not None and amount.nano > 0:
            name = f"container-{index}-request-{sorted(amounts).index(resource)}"
            need = _Need(index, container.name, name, -(-amount.nano // NANO))
            short = index < len(init) and container.restart_policy != "Always"
            (passing if short else lasting).append(need)
    return lasting, passing


def _borrow(need: _Need, lasting: Iterable[_Need]) -> tuple[list[str], int]:
    """Names of the requests that serve the need, and how many devices are still missing."""
    names: list[str] = []
    rest = need.count
    for other in lasting:
        if rest <= 0:
            break
        if other.index >= need.index:
            names.append(other.request)
            rest -= other.count
    return names, max(rest, 0)


def synthetic_claim(pod: Pod, requests: Requests) -> ResourceClaim:
    """The claim before it exists. The allocator and the ledger know it by a UID derived from the pod's."""
    return ResourceClaim(
        metadata=ObjectMeta(name=SYNTHETIC_NAME, namespace=pod.metadata.namespace, uid=synthetic_uid(pod)),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests.requests)),
    )


def synthetic_uid(pod: Pod) -> str:
    return f"{SYNTHETIC_NAME}{pod.metadata.uid}"


def claim_name(pod: Pod) -> str:
    """The name of the pod's claim, derived from the pod's UID: creating it twice fails."""
    suffix = hashlib.sha256(pod.metadata.uid.encode()).hexdigest()[:10]
    return f"{pod.metadata.name}-extended-resources-"[:_NAME_PREFIX] + suffix


def claim_body(pod: Pod, claim: ResourceClaim) -> dict[str, Any]:
    meta = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True}
    return {
        "metadata": {
            "name": claim_name(pod),
            "namespace": meta.namespace,
            "annotations": {EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
            "ownerReferences": [owner],
        },
        "spec": claim.spec,
    }


def existing_claim(pod: Pod, owned: Iterable[ResourceClaim]) -> ResourceClaim | None:
    """The pod's claim from an earlier attempt. `owned`: the claims of its namespace whose controller has its UID."""
    for claim in owned:
        owner, marks = claim.metadata.controller, claim.metadata.annotations
        ours = owner is not None and owner.name == pod.metadata.name
        if ours and marks.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == "true":
            return claim
    return None


REMEMBERED_NAMES = 10_000


class ResourceNames:
    """`classes` is the live mapping of device classes by name."""

    def __init__(self, classes: Mapping[str, DeviceClass], clock: Clock, config: SchedulingConfig) -> None:
        self._classes = classes
        self._clock = clock
        self._config = config
        self._class_names: dict[str, str] | None = None
        self._provided: set[str] = set()
        """Names that classes provide or have provided."""
        self._asked: LRUCache[str, float] = LRUCache(REMEMBERED_NAMES)
        """Other names, and since when pods ask for them (monotonic seconds)."""

    def class_seen(self, device_class: DeviceClass) -> None:
        if device_class.spec.extended_resource_name:
            self._provided.add(device_class.spec.extended_resource_name)
        self.classes_changed()

    def classes_changed(self) -> None:
        self._class_names = None

    def asked_for(self, names: Iterable[str]) -> None:
        """A pod is about to be bound that asks for these, which neither its node nor a class provides."""
        now = self._clock.monotonic()
        for name in names:
            if name not in self._provided:
                self._asked.setdefault(name, now)

    def wanted(self, pod: Pod) -> ExtendedResources | None:
        """The extended resources of the pod that devices may provide; None for almost all pods."""
        if self._class_names is None:
            self._class_names = class_names(self._classes.values())
        return wanted(pod, self._class_names, self._classes)

    def is_orphaned(self, names: Iterable[str]) -> bool:
        """True when a class that was deleted, or was not watched yet, may provide one of the names. A name without any
        known class counts as provided elsewhere after `doubt_seconds`.
        """
        now, doubt = self._clock.monotonic(), self._config.doubt_seconds
        return any(name in self._provided or now - self._asked.get(name, now) < doubt for name in names)
