"""A pod in a cluster, as they are or as they would be after some changes: what every trial of a remedy is made on.

Promises: immutable, and asking has no effect. A claim or a pod that was changed counts instead of the one that is
known; pods that are gone hold no devices, no room and no ports, and a claim that only they use is not allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from dra_extender.allocation.plan import Plan, Unfit
from dra_extender.api.core import Node, Pod
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus, ResourceSlice
from dra_extender.devices.overlay import Overlay
from dra_extender.scheduling.claims import known_claims, resolve_claims
from dra_extender.scheduling.feasibility import (
    PreFilterResult,
    PreFilterState,
    node_statuses,
    pending_claims,
    pre_filter,
)
from dra_extender.scheduling.noderules import Obstacle, Tenants, Wants, conflicting, ports
from dra_extender.scheduling.view import View

CLAIM: Final = 10
"""Units of work that a claim or a container of the pod takes."""
_NO_CLAIMS: Final[Mapping[str, ResourceClaim]] = {}
_NO_NODES: Final[Mapping[str, Node]] = {}


class Situation(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """See the module. `claims`: changed or not yet made, by namespace/name. `nodes`: changed or added, by name."""

    view: View
    pod: Pod
    tenants: Tenants
    overlay: Overlay
    claims: Mapping[str, ResourceClaim] = _NO_CLAIMS
    nodes: Mapping[str, Node] = _NO_NODES
    removed: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    """UIDs of claims that are gone, or not allocated any more, with the removed pods."""

    # --- changes ----------------------------------------------------------------------------------------------------

    def with_pod(self, pod: Pod) -> Situation:
        return msgspec.structs.replace(self, pod=pod)

    def with_claim(self, claim: ResourceClaim) -> Situation:
        return msgspec.structs.replace(self, claims={**self.claims, claim.metadata.key: claim})

    def with_node(self, node: Node) -> Situation:
        """A node that is there, changed in what devices do not depend on."""
        return msgspec.structs.replace(self, nodes={**self.nodes, node.name: node})

    def with_new_node(self, node: Node, slices: Iterable[ResourceSlice]) -> Situation:
        return msgspec.structs.replace(
            self, nodes={**self.nodes, node.name: node}, overlay=self.overlay.with_nodes([node], slices)
        )

    def without_claim(self, claim: ResourceClaim) -> Situation:
        """As if the claim had no devices any more."""
        return msgspec.structs.replace(
            self, overlay=self.overlay.without([claim]), gone=self.gone | {claim.metadata.uid}
        )

    def without_pods(self, uids: Iterable[str]) -> Situation:
        """As if these pods had ended, and the claims that nobody else uses were free again."""
        gone_pods = frozenset(uids)
        removed = self.removed | gone_pods
        freed = [
            claim
            for claim in self._used_by(gone_pods)
            if claim.allocation is not None
            and claim.status.reserved_for
            and all(user.uid in removed for user in claim.status.reserved_for)
        ]
        gone = self.gone | {claim.metadata.uid for claim in freed}
        return msgspec.structs.replace(self, removed=removed, gone=gone, overlay=self.overlay.without(freed))

    def _used_by(self, uids: Iterable[str]) -> Iterator[ResourceClaim]:
        """The claims that these pods name, and those that are theirs."""
        ledger = self.view.ledger
        found: dict[str, ResourceClaim] = {}
        for uid in uids:
            pod = self.view.pods.get(uid)
            claims = known_claims(pod, ledger) if pod is not None else ledger.owned_by(uid)
            found.update((claim.metadata.uid, claim) for claim in claims)
        yield from found.values()

    # --- questions --------------------------------------------------------------------------------------------------

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim as it would be."""
        found = self.claims.get(f"{namespace}/{name}") or self.view.ledger.get(namespace, name)
        if found is not None and found.metadata.uid in self.gone:
            return msgspec.structs.replace(found, status=ResourceClaimStatus())
        if found is not None and self.removed and any(user.uid in self.removed for user in found.status.reserved_for):
            users = tuple(user for user in found.status.reserved_for if user.uid not in self.removed)
            return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, reserved_for=users))
        return found

    @cached_property
    def prefiltered(self) -> PreFilterResult:
        """The pod, ready to be decided on; or why it is not."""
        found = resolve_claims(self.pod, self.claim, self.view.features)
        return pre_filter(self.view, self.pod, found)

    @cached_property
    def wants(self) -> Wants:
        wanted = self.view.wanted(self.pod)
        return Wants(self.pod, frozenset(wanted.classes) if wanted is not None else frozenset())

    @cached_property
    def cost(self) -> int:
        """Units of work that making the pod ready to be decided on takes."""
        return (len(self.pod.spec.resource_claims) + len(self.pod.spec.containers)) * CLAIM + self.wants.cost

    def cost_of(self, name: str) -> int:
        """Units of work that a look at the node takes."""
        node = self.node(name)
        return self.wants.cost + len(self.tenants.on(name)) + (len(node.spec.taints) if node is not None else 0)

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name) or self.view.cluster.nodes.get(name)

    def obstacles(self, node: Node) -> Iterator[Obstacle]:
        """What keeps the pod from the node, devices aside."""
        used, count, taken = self.tenants.used(node.name, self.removed)
        for found in self.wants.obstacles(node, used, count, taken):
            yield msgspec.structs.replace(found, has=self._listener(node)) if found.rule == "host port" else found
        prefiltered = self.prefiltered
        if isinstance(prefiltered, PreFilterState):
            for claim, reach in prefiltered.reaches:
                if not reach(node):
                    yield Obstacle("claim elsewhere", claim.metadata.key)

    def _listener(self, node: Node) -> str:
        """The first pod on the node with a port that the pod wants (namespace/name)."""
        for pod in self.tenants.on(node.name):
            if pod.metadata.uid not in self.removed and conflicting(self.wants.ports, ports(pod)) is not None:
                return pod.metadata.key
        return ""

    def is_gated(self) -> str:
        """The rule that keeps the pod from being scheduled at all; empty when none does."""
        if self.pod.spec.scheduling_gates:
            return "scheduling gate"
        served = self.view.config.scheduler_names
        return "scheduler" if served and self.scheduler not in served else ""

    @property
    def scheduler(self) -> str:
        """The name of the pod's scheduler."""
        return self.pod.spec.scheduler_name or "default-scheduler"

    def fitting(self, view: View, names: Sequence[str]) -> list[str]:
        """On which of these nodes devices for the pod are left. `view`: that of this turn of the event loop. Raises
        TurnSpent and Waiting; a node that nobody can say anything about yet may be left out.
        """
        view = msgspec.structs.replace(view, decisions=view.decisions.with_state(self.overlay))
        prefiltered = self.prefiltered
        if not isinstance(prefiltered, PreFilterState):
            return []
        known = [name for name in names if name in view.cluster.nodes]
        fits = node_statuses(view, prefiltered, known).fits if known else []
        return [*fits, *(name for name in names if name not in view.cluster.nodes and self._is_new_home(view, name))]

    def _is_new_home(self, view: View, name: str) -> bool:
        """Whether a node that is not there yet would have devices for the pod."""
        prefiltered, node = self.prefiltered, self.nodes.get(name)
        if node is None or not isinstance(prefiltered, PreFilterState):
            return False
        pending = pending_claims(prefiltered, node)
        if isinstance(pending, Unfit) or not all(reach(node) for _, reach in prefiltered.reaches):
            return False
        return not pending.claims or isinstance(view.decisions.plan(pending.claims, name), Plan)


def situation(view: View, pod: Pod, claims: Iterable[ResourceClaim] = (), tenants: Tenants | None = None) -> Situation:
    """As things are. `claims`: some that do not exist yet; `tenants`: those of the view, where they are known."""
    apart = msgspec.structs.replace(view, decisions=view.decisions.with_own_results())
    made = {claim.metadata.key: claim for claim in claims}
    living = Tenants(view.pods) if tenants is None else tenants
    return Situation(view=apart, pod=pod, tenants=living, overlay=view.overlay(), claims=made)
