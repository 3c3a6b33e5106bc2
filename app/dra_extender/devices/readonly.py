"""Read-only protocols of the cluster, for questions.

`Cluster`, `Inventory` and `Ledger` implement these protocols. If code that gets a protocol changes the state, mypy
reports an error. The methods of the protocols change nothing. `holders` lists, for people, the claims and pods that use
a device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from dra_extender.api.core import Node
from dra_extender.api.events import Undecodable
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.api.quantity import Quantity
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.api.scheduling import PodGroup
from dra_extender.devices.audit import Compare
from dra_extender.devices.ledger import Hold
from dra_extender.devices.nodes import SeenNode
from dra_extender.devices.pools import NodeView
from dra_extender.devices.publishedpool import PublishedPool
from dra_extender.devices.usage import NOTHING, DeviceUse, PoolHoldings, PoolID, Uses
from dra_extender.devices.validity import ObjectProblem


class ReadOnlyLedger(Protocol):
    """Who holds which device. See `Ledger` for what the answers mean."""

    def get(self, namespace: str, name: str) -> ResourceClaim | None: ...
    def by_uid(self, uid: str) -> ResourceClaim | None: ...
    def claims(self) -> Iterable[ResourceClaim]: ...
    def owned_by(self, pod_uid: str) -> Sequence[ResourceClaim]: ...
    def watched_version(self, claim_uid: str) -> int: ...
    @property
    def newest(self) -> int: ...
    def held(self, claim_uid: str) -> Hold | None: ...
    def is_decided(self, claim_uid: str) -> bool: ...
    def holds(self) -> Sequence[Hold]: ...
    def uses(self, claim_uid: str) -> Uses: ...
    def holdings(self, pool: PoolID) -> PoolHoldings | None: ...
    def in_use(self, pool: PoolID) -> Mapping[str, DeviceUse]: ...
    def revision(self, pool: PoolID) -> int: ...
    def rivals(self, claim: ResourceClaim, compare: Compare = ...) -> Sequence[ResourceClaim]: ...
    def has_rivals(self, claim: ResourceClaim, compare: Compare) -> bool: ...
    def doubts_key(self, claim: ResourceClaim) -> Hashable: ...
    def contested(self, hold: Hold) -> bool: ...
    def is_unverifiable(self, claim: ResourceClaim) -> bool: ...


class ReadOnlyInventory(Protocol):
    """What devices exist. See `Inventory`."""

    @property
    def pools(self) -> Mapping[PoolID, PublishedPool]: ...
    def view(self, node: str) -> NodeView | None: ...
    def would_see(self, node: Node, slices: Sequence[ResourceSlice]) -> SeenNode: ...
    def pools_seen(self, node: str) -> Iterable[PoolID]: ...
    def own_slices(self, node: str) -> Iterator[ResourceSlice]: ...
    def nodes_seeing(self, pool: PoolID) -> Iterable[str]: ...
    def slices(self) -> Iterator[ResourceSlice]: ...


class ReadOnlyPodGroups(Iterable[PodGroup], Protocol):
    def get(self, api_group: str, namespace: str, name: str) -> PodGroup | None: ...


class ReadOnlyCluster(Protocol):
    """All state that decisions read. See `Cluster`."""

    @property
    def features(self) -> FeatureGates: ...
    @property
    def classes(self) -> Mapping[str, DeviceClass]: ...
    @property
    def nodes(self) -> Mapping[str, Node]: ...
    @property
    def knows(self) -> Callable[[str], bool]: ...
    @property
    def inventory(self) -> ReadOnlyInventory: ...
    @property
    def ledger(self) -> ReadOnlyLedger: ...
    @property
    def pod_groups(self) -> ReadOnlyPodGroups: ...
    @property
    def undecodable(self) -> Mapping[ObjectKey, Undecodable]: ...
    @property
    def undecodable_pods(self) -> Mapping[str, int]: ...
    @property
    def problems(self) -> Sequence[ObjectProblem]: ...


class ChangedCluster:
    """The cluster with these nodes added or replaced. Decisions also need the devices of added ones (`Overlay`)."""

    def __init__(self, cluster: ReadOnlyCluster, nodes: Mapping[str, Node]) -> None:
        self.features = cluster.features
        self.classes = cluster.classes
        self.nodes: Mapping[str, Node] = {**cluster.nodes, **nodes}
        self.knows = self.nodes.__contains__
        self.inventory = cluster.inventory
        self.ledger = cluster.ledger
        self.pod_groups = cluster.pod_groups
        self.undecodable = cluster.undecodable
        self.undecodable_pods = cluster.undecodable_pods
        self._cluster = cluster

    @property
    def problems(self) -> Sequence[ObjectProblem]:
        return self._cluster.problems


class DeviceHolder(msgspec.Struct, frozen=True):
    """A claim (namespace/name, or its UID before it is created) that has a device, or with `share` the share of
    that ID and the capacity it consumes. `pods` are the names of the consumers that the claim is reserved for.
    """

    claim: str
    pods: tuple[str, ...] = ()
    in_flight: bool = False
    """Decided by a bind under way; the API server does not have it yet."""
    share: str | None = None
    consumed: Mapping[str, Quantity] = NOTHING


def holders(ledger: ReadOnlyLedger, use: DeviceUse | None) -> Iterator[DeviceHolder]:
    """Who uses a device in this way (`ReadOnlyLedger.in_use`): owners, then shares. None stands for a free device."""
    if use is None:
        return
    for uid in sorted(use.owners):
        yield _holder(ledger, uid)
    for (uid, share), consumed in sorted(use.shares.items(), key=lambda item: item[0]):
        yield msgspec.structs.replace(_holder(ledger, uid), share=share, consumed=consumed)


def _holder(ledger: ReadOnlyLedger, uid: str) -> DeviceHolder:
    claim = ledger.by_uid(uid)
    if claim is None:  # one for extended resources that is about to be created
        return DeviceHolder(claim=uid, in_flight=True)
    pods = tuple(consumer.name for consumer in claim.status.reserved_for)
    return DeviceHolder(claim=claim.metadata.key, pods=pods, in_flight=claim.allocation is None)
