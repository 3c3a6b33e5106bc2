"""resource.k8s.io/v1: slices, classes, claims and taint rules. Older versions are converted to these when decoded.

Source of fields and defaults: Kubernetes 1.36, staging/src/k8s.io/api/resource/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal

import msgspec
from msgspec.structs import force_setattr

from dra_extender.api.core import NodeSelector, Taint, Toleration
from dra_extender.api.decoding import TooDeepError, depth
from dra_extender.api.meta import Condition, Ignored, Object, ObjectMeta, StrictObject
from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import VersionText
from dra_extender.limits import DEPTH_OF_PARAMETERS, TOLERATIONS_OF_REQUEST

GROUP = "resource.k8s.io"
POD_GROUP_API = "scheduling.k8s.io"
FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
EXTENDED_RESOURCE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"

# Limits of the API, from types.go.
MAX_RESULTS = 32
MAX_DEVICES = 128  # of a slice
MAX_CONSUMERS = 256
MAX_REQUESTS = 32
MAX_ALTERNATIVES = 8
MAX_TOLERATIONS = 16
MAX_NAMES = 32  # attributes and capacities of a device

Scalar = int | bool | str | VersionText
AttributeValue = Scalar | tuple[Scalar, ...]


class DeviceAttribute(StrictObject, frozen=True, gc=False):
    """Exactly one field is set; the plural ones need the gate DRAListTypeAttributes."""

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None

    @property
    def value(self) -> AttributeValue | None:
        """The one value that is set, versions as `VersionText`, lists as tuples; None when none is (an unknown type).

        Several set fields have the order of dynamic-resource-allocation/cel/compile.go.
        """
        if self.ints is not None:
            return self.ints
        if self.bools is not None:
            return self.bools
        if self.strings is not None:
            return self.strings
        if self.versions is not None:
            return tuple(VersionText(version) for version in self.versions)
        if self.int_ is not None:
            return self.int_
        if self.bool_ is not None:
            return self.bool_
        if self.string is not None:
            return self.string
        if self.version is not None:
            return VersionText(self.version)
        return None


class CapacityRequestPolicyRange(StrictObject, frozen=True, gc=False):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(StrictObject, frozen=True, gc=False):
    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(StrictObject, frozen=True, gc=False):
    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class Counter(StrictObject, frozen=True, gc=False):
    value: Quantity


class CounterSet(StrictObject, frozen=True, gc=False):
    name: str
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(StrictObject, frozen=True, gc=False):
    counter_set: str
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Taint, frozen=True, gc=False, forbid_unknown_fields=True):
    time_added: str | None = None


class NodeAllocatableMapping(StrictObject, frozen=True, gc=False):
    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(StrictObject, frozen=True, gc=False):
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(StrictObject, frozen=True, gc=False):
    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(StrictObject, frozen=True, gc=False):
    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: Ignored | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] = {}
    """Needs DRANodeAllocatableResources of Kubernetes 1.37. The mappings are its form in 1.36, which has no effect."""


class ResourcePool(StrictObject, frozen=True, gc=False):
    name: str
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(StrictObject, frozen=True, gc=False):
    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    skip_node_operations: tuple[str, ...] = ()
    """Needs DRAOptionalNodeOperations of Kubernetes 1.37."""
    partition_type_attribute: str | None = None
    """For reports only: Kubernetes 1.37."""


class ResourceSlice(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: ResourceSliceSpec


class CELDeviceSelector(StrictObject, frozen=True, gc=False):
    expression: str = ""


class DeviceSelector(StrictObject, frozen=True, gc=False):
    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(StrictObject, frozen=True, gc=False):
    """`parameters` are bytes of JSON and are copied verbatim. Raises ValueError when they are nested too deeply: they
    have one level more in an allocation, and a decoder that gave up there would not see what the claim holds.
    """

    driver: str
    parameters: msgspec.Raw = msgspec.Raw(b"null")

    def __post_init__(self) -> None:
        # A decoded Raw is a view that keeps the whole message alive; a list of claims is tens of megabytes.
        msgspec.structs.force_setattr(self, "parameters", self.parameters.copy())
        if depth(bytes(self.parameters)) > DEPTH_OF_PARAMETERS:
            raise TooDeepError(f"opaque parameters are nested more than {DEPTH_OF_PARAMETERS} levels deep")


class DeviceClassConfiguration(StrictObject, frozen=True, gc=False):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(StrictObject, frozen=True, gc=False):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceToleration(Toleration, frozen=True, gc=False, forbid_unknown_fields=True):
    """Of the taints of devices."""


class CapacityRequirements(StrictObject, frozen=True, gc=False):
    requests: dict[str, Quantity] = {}

    def __post_init__(self) -> None:
        if len(self.requests) > MAX_NAMES:  # one more is kept: no device has them all
            force_setattr(self, "requests", dict(islice(self.requests.items(), MAX_NAMES + 1)))


class DeviceDerivedAttribute(StrictObject, frozen=True, gc=False):
    """An attribute that constraints see instead of the published one. Needs DRADerivedAttributes."""

    name: str
    expression: str


class RequestedDevices(StrictObject, frozen=True, gc=False, kw_only=True):
    """What a request and an alternative of one have in common. A limited number of tolerations is kept, and one more:
    too many are an error of the claim.
    """

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()

    def __post_init__(self) -> None:
        if len(self.tolerations) > TOLERATIONS_OF_REQUEST:
            force_setattr(self, "tolerations", self.tolerations[: TOLERATIONS_OF_REQUEST + 1])


class ExactDeviceRequest(RequestedDevices, frozen=True, gc=False):
    admin_access: bool | None = None


class DeviceSubRequest(RequestedDevices, frozen=True, gc=False):
    name: str


class DeviceRequest(StrictObject, frozen=True, gc=False):
    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(StrictObject, frozen=True, gc=False):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(StrictObject, frozen=True, gc=False):
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(StrictObject, frozen=True, gc=False):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(StrictObject, frozen=True, gc=True, weakref=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(Object, frozen=True, gc=False):
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = {}
    skip_node_operations: tuple[str, ...] = ()

    @property
    def id(self) -> DeviceID:
        return (self.driver, self.pool, self.device)


DeviceID = tuple[str, str, str]
"""(driver, pool, device): how allocations name a device."""


class DeviceAllocationConfiguration(Object, frozen=True, gc=False):
    source: Literal["FromClass", "FromClaim"]
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Object, frozen=True, gc=False):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Object, frozen=True, gc=False):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Object, frozen=True, gc=False):
    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""


class AllocatedDeviceStatus(Object, frozen=True, gc=False):
    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()


class ResourceClaimStatus(Object, frozen=True, gc=False):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def allocation(self) -> AllocationResult | None:
        return self.status.allocation

    def reserved_for(self, uid: str) -> bool:
        """True when the consumer with this UID is in status.reservedFor."""
        return any(consumer.uid == uid for consumer in self.status.reserved_for)

    def owned_by_group(self, name: str, uid: str = "") -> bool:
        """True when the claim was made for the PodGroup of this name, and of this UID if it is known."""
        owner, wanted = self.metadata.controller, ("PodGroup", name, POD_GROUP_API)
        if owner is None or uid not in ("", owner.uid):
            return False
        return (owner.kind, owner.name, owner.api_version.partition("/")[0]) == wanted

    def reserved_for_group(self, name: str, uid: str = "") -> ResourceClaimConsumerReference | None:
        """The entry of status.reservedFor for the PodGroup of this name, and of this UID if it is known."""
        wanted = (POD_GROUP_API, "podgroups", name)
        users = self.status.reserved_for if name else ()
        reserved = (entry for entry in users if not uid or entry.uid == uid)
        return next((entry for entry in reserved if (entry.api_group, entry.resource, entry.name) == wanted), None)


def class_names(claims: Sequence[ResourceClaim]) -> Iterator[str]:
    for claim in claims:
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                yield request.exactly.device_class_name
            for alternative in request.first_available:
                yield alternative.device_class_name


class DeviceTaintSelector(StrictObject, frozen=True, gc=False):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(StrictObject, frozen=True, gc=False):
    """A rule without `device_selector` selects nothing, `{}` selects every device."""

    taint: DeviceTaint
    device_selector: DeviceTaintSelector | None = None


class DeviceTaintRule(Object, frozen=True, gc=False):
    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
