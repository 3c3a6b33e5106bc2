"""All state that decisions read: the devices (inventory), the claims that hold them (ledger), and the pods.

Promises: only `apply` changes the state, except for the holds of binds; only the event loop writes. An undecodable
object is reported as a problem and counts as absent. Claims and pods keep their last readable version instead, and a
claim also keeps the devices that can be read of its allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from dra_extender.api.core import Node, Pod
from dra_extender.api.events import Applied, ClusterEvent, Removed, Undecodable
from dra_extender.api.features import FeatureGates
from dra_extender.api.meta import ObjectKey
from dra_extender.api.policy import PodDisruptionBudget
from dra_extender.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dra_extender.devices.continuity import Continuity
from dra_extender.devices.inventory import Inventory
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.pods import Pods
from dra_extender.devices.undecodable import UndecodableObjects, is_placeholder
from dra_extender.devices.validity import ObjectProblem

CLAIM: Final = ResourceClaim.__name__


class Effects(msgspec.Struct, frozen=True):
    """What follows from an event."""

    requeue: bool = False
    """A refused pod may fit now. False for a new claim: it helps only pods that wait for it (`appeared`)."""
    recovered: bool = False
    """The object could not be decoded before; it can be now, or is gone."""
    bound: bool = False
    """The pod has a node now, and had none before."""


class Cluster:
    """Questions read its attributes; only `apply` and binds change them."""

    def __init__(self, features: FeatureGates) -> None:
        self.features = features
        self.inventory = Inventory(features)
        self.ledger = Ledger(features, self.inventory, self.inventory.nodes.use_changed)
        self.pods = Pods()
        self.continuity = Continuity(self.ledger, self.pods)
        self.budgets: dict[str, dict[str, PodDisruptionBudget]] = {}
        """By namespace, then by `namespace/name`; empty unless PodDisruptionBudgets are watched."""
        self.undecodable = UndecodableObjects(self.ledger, self.inventory.pools_of)
        self._drops: dict[str, Callable[[str], bool]] = {
            Node.__name__: self.inventory.nodes.drop,
            ResourceSlice.__name__: self.inventory.drop_slice,
            DeviceClass.__name__: self.inventory.classes.drop,
            DeviceTaintRule.__name__: self.inventory.drop_rule,
        }

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        return self.inventory.classes

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self.inventory.nodes

    @property
    def knows(self) -> Callable[[str], bool]:
        """Whether the node exists. Faster than `in nodes`: filter asks for thousands of nodes."""
        return self.inventory.nodes.index.__contains__

    def claim(self, key: str) -> ResourceClaim | None:
        """The last readable version of a claim that exists in the API server, by `namespace/name`."""
        return None if is_placeholder(key) else self.ledger.by_key(key)

    @property
    def problems(self) -> Sequence[ObjectProblem]:
        """Undecodable objects, and slices that make pools unusable, sorted by object."""
        return sorted(chain(self.undecodable.problems, self.inventory.problems()))

    # --- events -----------------------------------------------------------------------------------------------------

    def apply(self, event: ClusterEvent) -> Effects:
        """Apply an event of a watch, a list or a reply."""
        if isinstance(event, Undecodable):
            freed = self.undecodable.put(event)
            return Effects(freed or self._drop(event.key))
        recovered = freed = False
        if event.source != "reply":
            recovered, freed = self.undecodable.drop(event.key)
        elif isinstance(event, Removed):
            self.continuity.gone(event.key)
        if isinstance(event, Applied) and isinstance(event.object, Pod):
            bound = self.pods.apply(event.object, reply=event.source == "reply")
            if event.source == "watch":
                self.pods.watched = max(self.pods.watched, event.object.metadata.version)
            return Effects(recovered=recovered, bound=bound)
        improved = self._put(event) if isinstance(event, Applied) else self._remove(event)
        waited_for = recovered and event.key.kind == CLAIM
        return Effects(improved or freed or waited_for, recovered)

    def _put(self, event: Applied) -> bool:
        match event.object:
            case ResourceClaim() as claim:
                return self._observe(claim, event)
            case PodDisruptionBudget() as budget:
                self.budgets.setdefault(budget.metadata.namespace, {})[budget.metadata.key] = budget
            case ResourceSlice() as item:
                improved = self.inventory.put_slice(item)
                if item.spec.node_name:
                    self.undecodable.published(item.spec.node_name)
                return improved
            case Node() as node:
                return self.inventory.nodes.put(node)
            case DeviceClass() as device_class:
                return self.inventory.classes.put(device_class)
            case DeviceTaintRule() as rule:
                return self.inventory.put_rule(rule)
            case _:
                raise TypeError(f"{event.key} is not of a kind that the state contains")
        return False

    def _remove(self, event: Removed) -> bool:
        if event.uid is None:
            return False
        if event.key.kind == CLAIM:
            return self.ledger.forget(event.key.name, event.uid)
        if event.key.kind == Pod.__name__:
            self.pods.remove(event.uid)
        elif event.key.kind == PodDisruptionBudget.__name__:
            namespace = event.key.name.partition("/")[0]
            remaining = self.budgets.get(namespace, {})
            remaining.pop(event.key.name, None)
            if not remaining:
                self.budgets.pop(namespace, None)
        return self._drop(event.key)

    def _drop(self, key: ObjectKey) -> bool:
        """Remove an object from the inventory."""
        drop = self._drops.get(key.kind)
        return drop is not None and drop(key.name)

    def _observe(self, claim: ResourceClaim, event: Applied) -> bool:
        """True when devices became free, when a shared claim was allocated, or when more pods can use the claim. A
        version older than the known one changes nothing: watches deliver these after our own write replies.
        """
        uid = claim.metadata.uid
        before, in_flight = self.ledger.by_uid(uid), self.ledger.held(uid)
        freed = self.ledger.observe(claim, watched=event.source != "reply", after_gap=event.source == "list")
        if before is None:
            return False
        now = self.ledger.by_uid(uid) or claim
        settled = in_flight is not None and self.ledger.held(uid) is None
        allocated = before.allocation is None and now.allocation is not None
        shared = now.metadata.controller is None
        return freed or (shared and (settled or allocated)) or _shrunk(before, now) or _got_ready(before, now)


def _shrunk(before: ResourceClaim, after: ResourceClaim) -> bool:
    """Whether the claim has fewer consumers: another pod can share it, or it can be deallocated."""
    return len(after.status.reserved_for) < len(before.status.reserved_for)


def _got_ready(before: ResourceClaim, after: ResourceClaim) -> bool:
    """Whether a driver has changed the binding conditions of the devices."""
    if after.allocation is None or before.status.devices == after.status.devices:
        return False
    return any(result.binding_conditions for result in after.allocation.devices.results)
