"""The cluster as questions may use it: everything that answers, nothing that writes.

`Cluster`, `Inventory` and `Ledger` fulfil these protocols. Who is handed one of them cannot change what it stands for
without mypy's objection; that asking has no effect is what their methods promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from dra_extender.api.core import Node
from dra_extender.api.events import Undecodable
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from dra_extender.devices.audit import Violation
from dra_extender.devices.catalogue import PublishedPool
from dra_extender.devices.holdings import PoolHoldings
from dra_extender.devices.ledger import Hold
from dra_extender.devices.nodes import SeenNode
from dra_extender.devices.nodeview import NodeView
from dra_extender.devices.usage import DeviceUse
from dra_extender.devices.uses import PoolID, Uses
from dra_extender.devices.validity import ObjectProblem


class ReadOnlyLedger(Protocol):
    """Who holds which device. See `Ledger` for what the answers mean."""

    def get(self, namespace: str, name: str) -> ResourceClaim | None: ...

    def by_uid(self, uid: str) -> ResourceClaim | None: ...

    def claims(self) -> Iterable[ResourceClaim]: ...

    def owned_by(self, pod_uid: str) -> Sequence[ResourceClaim]: ...

    def seen(self, claim_uid: str) -> int: ...

    def held(self, claim_uid: str) -> Hold | None: ...

    def holds(self) -> Sequence[Hold]: ...

    def uses(self, claim_uid: str) -> Uses: ...

    def holdings(self, pool: PoolID) -> PoolHoldings | None: ...

    def in_use(self, pool: PoolID) -> Mapping[str, DeviceUse]: ...

    def revision(self, pool: PoolID) -> int: ...

    def rivals(self, claim: ResourceClaim) -> Sequence[ResourceClaim]: ...

    def contested(self, hold: Hold) -> bool: ...

    def is_unverifiable(self, claim: ResourceClaim) -> bool: ...

    def violations(self) -> Sequence[Violation]: ...

    def violations_of(self, claim: ResourceClaim) -> Sequence[Violation]: ...


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

    def check_pools(self) -> Iterator[None]: ...

    def problems(self) -> Iterator[ObjectProblem]: ...


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
    def undecodable(self) -> Mapping[ObjectKey, Undecodable]: ...

    @property
    def problems(self) -> Sequence[ObjectProblem]: ...
