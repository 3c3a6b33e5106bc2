"""The decisions of filter, bind, explain and what-if, all by one allocator.

Promises: a call changes no later answer, and no content of claims or cluster objects makes it raise. On the same state
it returns the same answer, except for share IDs. `node_results` gives the answers of `plan` for many nodes, from the
equivalence cache. `with_state` returns the decisions on a hypothetical state. `with_budget` returns decisions that
count their work: every method may then raise `TurnSpent`. If a worker has to answer first, a method refuses the node or
raises `Deferred`; its docstring says which.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Final

from cachetools import LRUCache

from dra_extender.allocation.allocator import Allocator, PlanChooser, ShareIDs, least
from dra_extender.allocation.budget import SEARCHING, UNLIMITED, Deferred, TurnSpent, WorkBudget
from dra_extender.allocation.cache.equivalence import EquivalenceKeys, NodeReads, node_reads
from dra_extender.allocation.cache.results import NodeResults, ResultCache, SearchNode
from dra_extender.allocation.constraints import Values
from dra_extender.allocation.plan import NO_SOLUTION, NOT_SYNCED, STEP_BUDGET, Failure, Plan, Unfit, score_of
from dra_extender.allocation.requests import Filters, PreparedClaims, Ready, prepare
from dra_extender.allocation.signatures import AttributeReads, ClaimSignatures, PoolSignatures, of_few_values, reads_of
from dra_extender.allocation.tally import NodeTally
from dra_extender.allocation.tallying import tally
from dra_extender.allocation.workerrequests import Overrun, SearchReply, SearchRequest
from dra_extender.api.resource import RequestedDevices, ResourceClaim, class_names
from dra_extender.cel import WorkExceeded
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.holdings import NodeHoldings, PoolStates
from dra_extender.devices.nodes import SeenPool
from dra_extender.devices.overlay import Overlay
from dra_extender.devices.pools import NodeView, Pool
from dra_extender.devices.usage import PoolHoldings, PoolID

REMEMBERED_CLAIMS = 256
REMEMBERED_READS = 16
REMEMBERED_BYTES: Final = 2**27
"""What results may keep: filters with their compiled selectors, and what they have found of nodes."""

LATER_SHARE = 8
"""After one search for these claims was too large for a turn, each further search gets one eighth of the ceiling."""

ClaimsKey = tuple[tuple[bytes, ...], tuple[int, ...], Values]
"""The signatures of claims, the versions of the classes that they name, and the values that devices must have."""


def _size(kept: int) -> int:
    """The size of an entry in a cache of at most `REMEMBERED_CLAIMS`: at least four fit, however large they are."""
    return min(max(kept, REMEMBERED_BYTES // REMEMBERED_CLAIMS), REMEMBERED_BYTES // 4)


def _prepared_size(claims: Sequence[Ready]) -> int:
    filters = {ask.filter for requests, _ in claims for request in requests for ask in request.asks}
    return _size(sum(filter.size for filter in filters))


class _Caches:
    """The caches that decisions on all states of one cluster share. `searches` counts searches for node results."""

    def __init__(self, filters: Filters, signatures: ClaimSignatures) -> None:
        self.searches = 0
        self.filters = filters
        self.signatures = signatures
        self.results: LRUCache[ClaimsKey, ResultCache | Failure] = LRUCache(REMEMBERED_CLAIMS)
        self.keys: LRUCache[NodeReads, EquivalenceKeys] = LRUCache(REMEMBERED_BYTES, lambda keys: _size(keys.size))
        """Those of results, which several may share: results go with their keys."""
        self.latest: EquivalenceKeys | None = None
        self.prepared: LRUCache[ClaimsKey, list[Ready]] = LRUCache(REMEMBERED_BYTES, _prepared_size)
        """Perhaps the first claims only: the next turn of a call goes on from there."""
        self.states = PoolStates()
        self._pools: LRUCache[AttributeReads, PoolSignatures] = LRUCache(REMEMBERED_READS)
        self.common: PoolSignatures | None = None
        """For all attributes with few values."""

    def use(self, keys: EquivalenceKeys) -> int:
        """Read these keys. Those that were read before have grown: their size counts now. The units of work that it
        took to find the results of keys that had to go.
        """
        count = len(self.keys)
        for each in (self.latest, keys):
            if each is keys or (each is not None and self.keys.get(each.reads) is each):
                count += each.reads not in self.keys
                self.keys[each.reads] = each
        self.latest = keys
        if len(self.keys) == count:
            return 0
        kept = {*map(id, self.keys.values())}
        listed = [*self.results.items()]
        for key, found in listed:
            if isinstance(found, ResultCache) and id(found.keys) not in kept:
                del self.results[key]
        return len(listed)

    def clear(self) -> None:
        self.latest = self.common = None
        for cache in (self.keys, self.results, self.prepared, self._pools):
            cache.clear()
        self.filters.clear()

    def pools(self, reads: AttributeReads) -> PoolSignatures:
        found = self._pools.get(reads)
        if found is None:
            covers = reads is not None and self.common is not None and reads <= (self.common.reads or frozenset())
            found = self._pools[reads] = PoolSignatures(reads, self.common if covers else None)
        return found


class Decisions:
    """Decides on one state of one cluster. `share_ids` makes a new share ID (a UUID) at each call."""

    def __init__(self, cluster: Cluster, *, share_ids: ShareIDs, step_budget: int = STEP_BUDGET) -> None:
        self._cluster = cluster
        self._step_budget = step_budget
        self._share_ids = share_ids
        self._allocator = Allocator(step_budget=step_budget, share_ids=share_ids)
        self.filters = Filters()
        """Of claims and classes."""
        self._caches = _Caches(self.filters, ClaimSignatures())
        self._overlay = Overlay(cluster)
        self._values: Values = ()
        self.budget: WorkBudget = UNLIMITED
        """What the caller charges its own work to, as well."""

    @property
    def searches(self) -> int:
        """Searches made so far for results of nodes; all other results came from the cache."""
        return self._caches.searches

    def forget(self) -> None:
        """Free what is remembered. Later decisions are the same, and find it out again."""
        self._caches.clear()

    def with_state(self, overlay: Overlay) -> Decisions:
        """The decisions on the state of an overlay on the same cluster. Results of nodes for which nothing differs come
        from the same cache.
        """
        found = copy(self)
        found._overlay = overlay
        return found

    def with_values(self, values: Values) -> Decisions:
        """The decisions on the same state, if all devices must have these values."""
        found = copy(self)
        found._values = values
        return found

    def with_budget(self, budget: WorkBudget) -> Decisions:
        """The decisions on the same state, with work counted by the budget."""
        found = copy(self)
        found.budget = budget
        return found

    def signatures(self, claims: Iterable[ResourceClaim]) -> tuple[bytes, ...]:
        """The signature of each claim: equal for claims with equal specs. Raises TurnSpent and Deferred."""
        return self._caches.signatures.of(claims, self.budget)

    def with_own_results(self) -> Decisions:
        """The decisions on the same state, with a result cache of their own. Questions about hypothetical claims use
        it, so that their results do not displace those of existing claims.
        """
        found = copy(self)
        found._caches = _Caches(self._caches.filters, self._caches.signatures)
        return found

    def on(self, cluster: Cluster) -> Decisions:
        """The same decisions about another cluster, with caches of their own."""
        return Decisions(cluster, share_ids=self._share_ids, step_budget=self._step_budget)

    def learn_attributes(self) -> Iterator[None]:
        """Look at the devices that nodes see, one pool at a step. Then the first question that reads only attributes
        with few values does not look at each device.
        """
        pools: dict[int, tuple[SeenPool, Pool]] = {}
        for node in list(self._cluster.inventory.nodes.seen.values()):
            yield
            pools.update((id(item), (item, item.pool)) for item in node.pools if item.pool is not None)
        self._caches.common = yield from of_few_values(list(pools.values()), self._caches.common)

    def alike(
        self, claims: Sequence[ResourceClaim], nodes: Iterable[str], attributes: Iterable[str] = ()
    ) -> Mapping[str, Hashable]:
        """A key for each known node. Nodes with equal keys give equal decisions: for these claims, for claims with the
        same selectors and any class, and with constraints on these attributes. Raises TurnSpent and Deferred.
        """
        cluster, budget, caches = self._cluster, self.budget, self._caches
        prepared = self._prepare(claims)
        own = node_reads(prepared) if isinstance(prepared, PreparedClaims) else None
        filters = [caches.filters.of(known, RequestedDevices(), cluster.features) for known in cluster.classes.values()]
        names = set(attributes).union(own.attributes if own is not None else ())
        exact = own is not None and own.exact
        every = (*filters, *(own.filters if own is not None else ()))
        signatures = caches.pools(None if exact else reads_of(every, sorted(names), budget))
        found: dict[str, Hashable] = {}
        for seen in filter(None, map(cluster.inventory.nodes.seen.get, nodes)):
            for units in cluster.inventory.nodes.refresh(seen):
                budget.spend(units)
            found[seen.node.name] = seen.error or tuple(
                (signatures.of(item, pool, budget), caches.states.of(pool, cluster.ledger.holdings(pool.id)))
                for item in seen.pools
                if (pool := item.pool) is not None
            )
        return found

    def node_results(self, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> NodeResults:
        """Which of the nodes can have these unallocated claims, given in the order of the pod's list."""
        names = nodes if isinstance(nodes, list | tuple) else list(nodes)
        if not claims:
            return NodeResults(list(names), {})
        try:
            results = self._results(claims)
        except Deferred as waiting:
            return NodeResults([], dict.fromkeys(names, str(waiting)), waiting=True)
        if isinstance(results, Failure):
            prepared = self._prepare(claims)  # again, because the text names the claims
            return NodeResults([], {}, prepared.error if isinstance(prepared, Failure) else results.error)
        return results.results(names, self._search(claims, results), self._overlay, self.budget)

    def classes(self, claims: Sequence[ResourceClaim], nodes: Sequence[str]) -> Iterable[Sequence[str]]:
        """The nodes by what they have for claims like these, in any number. Raises TurnSpent and Deferred."""
        results = self._results(claims) if claims and nodes else None
        return results.classes(nodes, self._overlay, self.budget) if isinstance(results, ResultCache) else (nodes,)

    def scores(self, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> Mapping[str, int]:
        """The raw score that allocating the claims would give each node that fits; empty when an error is fatal, or the
        result is unknown because workers have to answer first.
        """
        names = nodes if isinstance(nodes, list | tuple) else list(nodes)
        if not claims:
            return dict.fromkeys(names, 0)
        try:
            results = self._results(claims)
        except Deferred:
            return {}
        if isinstance(results, Failure):
            return {}
        return results.scores(names, self._search(claims, results), self._overlay, self.budget)

    def _results(self, claims: Sequence[ResourceClaim]) -> ResultCache | Failure:
        caches, key = self._caches, self._key(claims)
        found = caches.results.get(key)
        if found is None:
            prepared = self._prepare(claims)
            found = prepared if isinstance(prepared, Failure) else self._results_of(prepared)
            caches.results[key] = found
        if isinstance(found, ResultCache) and found.keys is not caches.latest:
            self.budget.spend(caches.use(found.keys))
        return found

    def _key(self, claims: Sequence[ResourceClaim]) -> ClaimsKey:
        stamp = self._cluster.inventory.classes.stamp
        return self.signatures(claims), tuple(map(stamp, class_names(claims))), self._values

    def _results_of(self, prepared: PreparedClaims) -> ResultCache:
        reads, caches = node_reads(prepared), self._caches
        keys = caches.keys.get(reads)
        if keys is None:
            pools = caches.pools(None if reads.exact else reads_of(reads.filters, reads.attributes, self.budget))
            keys = EquivalenceKeys(reads, pools=pools, states=caches.states)
        return ResultCache(keys, self._cluster.inventory.nodes, self._cluster.ledger)

    def _search(self, claims: Sequence[ResourceClaim], results: ResultCache) -> SearchNode:
        """A fresh search, prepared when it is needed."""
        prepared: list[PreparedClaims | Failure] = []

        def search(node: str, key: Hashable) -> tuple[Plan | Unfit | Failure, int]:
            self._caches.searches += 1
            if not prepared:
                prepared.append(self._prepare(claims))
            if isinstance(prepared[0], Failure):
                return prepared[0], 0
            request = self._request(prepared[0], node)
            if request is None:
                return Unfit(NOT_SYNCED, 0), 0
            found = self._search_or_defer(request, key, results)
            return found, score_of(zip(claims, found.allocations, strict=True)) if isinstance(found, Plan) else 0

        return search

    def plan(
        self, claims: Sequence[ResourceClaim], node: str, chooser: PlanChooser | None = None, *, once: bool = False
    ) -> Plan | Unfit | Failure:
        """How to allocate the claims on the node now. The search takes the first devices that fit. With a `chooser`, it
        takes the cheapest ones, unless these take CPU or memory of the node: filter has compared only what the first
        ones take. `once`: the turns of a call search once, and get the same share IDs. Raises Deferred.
        """
        prepared = self._prepare(claims)
        if isinstance(prepared, Failure):
            return prepared
        request = self._request(prepared, node)
        if request is None:
            return Unfit(NOT_SYNCED, 0)
        key = request.view, tuple(map(self._held_in, request.view.pools)), *self._key(claims)
        plans = self.budget.found if once else {}
        found: Plan | Unfit | Failure | None = plans.get(key)
        if found is None:
            found = plans[key] = self._search_or_defer(request, key)
        if chooser is None or not isinstance(found, Plan):
            return found
        chosen = self._least(prepared, node, found, chooser)
        return found if chosen.amounts else chosen

    def plan_together(self, claims: Sequence[ResourceClaim], nodes: Sequence[Sequence[str]]) -> Plan | Unfit | Failure:
        """How to allocate the claims at once, each for use on all of its `nodes`. Raises TurnSpent and Deferred."""
        prepared = self._prepare(claims)
        if isinstance(prepared, Failure):
            return prepared
        views, budget = {name: self._view(name) for of in nodes for name in of}, self.budget
        together = partial(self._allocator.allocate_together, prepared, nodes, views, self._holdings, budget)
        try:
            return budget.attempt(together)
        except WorkExceeded:
            raise Deferred(SEARCHING) from None

    def _least(self, prepared: PreparedClaims, node: str, first: Plan, chooser: PlanChooser) -> Plan:
        """Orders that would take too long are skipped: the first plan is valid in any case."""

        def attempt(view: NodeView, steps: int) -> Plan | Unfit | Failure:
            allocator = Allocator(step_budget=steps, share_ids=self._share_ids)
            budget, holdings = self.budget, self._holdings(view)
            try:
                return budget.attempt(lambda work: allocator.allocate(prepared, view, holdings, budget, work))
            except (WorkExceeded, TurnSpent, Deferred):
                return Unfit(SEARCHING, steps)

        return least(first, chooser.orders(prepared, self._view(node)), chooser.cost, attempt, self._step_budget)

    def tally(self, claims: Sequence[ResourceClaim], node: str) -> NodeTally:
        """How many devices of the node each rule leaves the claims. Raises Deferred."""
        view, budget, prepared = self._view(node), self.budget, self._prepare(claims)
        holdings, steps = self._holdings(view), self._step_budget
        try:
            return budget.attempt(lambda work: tally(prepared, view, holdings, steps, budget, work))
        except WorkExceeded:
            raise Deferred(SEARCHING) from None

    def _prepare(self, claims: Sequence[ResourceClaim]) -> PreparedClaims | Failure:
        key, caches, cluster = self._key(claims), self._caches, self._cluster
        filters, spend, known = caches.filters, self.budget.spend, caches.prepared.get(key, [])
        before = len(known)
        try:
            return prepare(claims, cluster.classes, cluster.features, filters, self._values, begun=known, spend=spend)
        finally:
            if len(known) > before:
                caches.prepared[key] = known

    def _request(self, prepared: PreparedClaims, node: str) -> SearchRequest | None:
        view = self._overlay.view(node)
        return SearchRequest(prepared, view, self._held(view)) if view is not None else None

    def _search_or_defer(
        self, request: SearchRequest, key: Hashable, results: ResultCache | None = None
    ) -> Plan | Unfit | Failure:
        """A worker's reply is for a request with the same key: claims of the same content, perhaps on another node. It
        is applied to these claims.
        """
        budget = self.budget
        known = budget.known(key)
        if known is not None and isinstance(known.request, SearchRequest):
            if isinstance(known.reply, SearchReply):
                return self._allocator.replay(request.prepared, known.request.view, known.reply, budget)
            return Unfit(f"search {known.reply.text}" if isinstance(known.reply, Overrun) else NO_SOLUTION, 0)
        if not budget.is_deferred(key):
            asked = request.prepared, request.view, NodeHoldings(request.view, request.held), self.budget
            share = LATER_SHARE if results is not None and results.has_large_search else 1
            try:
                return budget.attempt(lambda work: self._allocator.allocate(*asked, work), share)
            except WorkExceeded:
                if results is not None:
                    results.has_large_search = True
        raise budget.defer(key, request, SEARCHING)

    def _view(self, node: str) -> NodeView:
        return self._overlay.view(node) or NodeView(node, (), NOT_SYNCED)

    def _holdings(self, view: NodeView) -> NodeHoldings:
        return NodeHoldings(view, self._held(view))

    def _held_in(self, pool: Pool) -> Hashable:
        """What is held in the pool, as a key: by content where the overlay differs from the cluster."""
        if pool.id in self._overlay.touched:
            return self._caches.states.of(pool, self._overlay.holdings(pool.id))
        return self._cluster.ledger.revision(pool.id)

    def _held(self, view: NodeView) -> dict[PoolID, PoolHoldings]:
        """A device with shares that is not shareable any more counts as owned; the allocator would hand it out."""
        found = {pool.id: held for pool in view.pools if (held := self._overlay.holdings(pool.id))}
        for pool, held in [item for item in found.items() if item[1].shared]:
            bits = {name: view.bits.get((*pool, name)) for name in held.shared}
            if lost := {name for name, bit in bits.items() if bit is not None and not view.multi >> bit & 1}:
                found[pool] = PoolHoldings(held.owned | lost, held.shared)
        return found
