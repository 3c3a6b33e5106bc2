"""Filter, bind, explain and what-if all ask here; there is one allocator beneath.

Promises: nothing is changed by a question, nothing is raised for what claims or objects of the cluster contain, and
the same question on the same state has the same answer (share IDs apart). `verdicts` is `plan` on many nodes, from a
cache. `over` asks the same of a hypothetical state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Final

from cachetools import LRUCache

from app.allocation.allocator import Allocator
from app.allocation.cache.lens import Focus, Lens, focus
from app.allocation.cache.reduction import Reads, Reduction, reads_of
from app.allocation.cache.verdicts import Search, Table, Verdicts
from app.allocation.choice import Chooser, least
from app.allocation.explanation import explain
from app.allocation.plan import NOT_SYNCED, STEP_BUDGET, Explanation, Failure, Plan, Unfit
from app.allocation.requests import Filter, PreparedClaims, class_names, prepare
from app.allocation.result import ShareIDs
from app.allocation.score import PrioritizedList, Scorer
from app.api.resource import ResourceClaim
from app.devices.cluster import Cluster
from app.devices.content import digest
from app.devices.holdings import NodeHoldings
from app.devices.nodeview import NodeView
from app.devices.overlay import Overlay
from app.devices.poolstate import PoolStates

PRIORITIZED_LIST: Final = PrioritizedList()

REMEMBERED_TABLES = 256
REMEMBERED_LENSES = 256
REMEMBERED_REDUCTIONS = 16

Signature = tuple[tuple[bytes, ...], tuple[int, ...]]
"""What claims ask for, and the versions of the classes they ask for it."""


class _Memory:
    """What decisions on all states of one cluster share. `searches` counts those made for verdicts."""

    def __init__(self) -> None:
        self.searches = 0
        self.tables: LRUCache[Signature, Table | Failure] = LRUCache(REMEMBERED_TABLES)
        self.scored_tables: LRUCache[Signature, Table | Failure] = LRUCache(REMEMBERED_TABLES)
        """For a scorer that tells nodes apart which are one to the search."""
        self.lenses: LRUCache[Focus, Lens] = LRUCache(REMEMBERED_LENSES)
        self.reductions: LRUCache[Reads, Reduction] = LRUCache(REMEMBERED_REDUCTIONS)
        self.states = PoolStates()


class Decisions:
    """See the module. `share_ids` makes a new share ID (a UUID) at each call; `scorer` rates nodes that fit."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        share_ids: ShareIDs,
        step_budget: int = STEP_BUDGET,
        scorer: Scorer = PRIORITIZED_LIST,
    ) -> None:
        self.scorer = scorer
        self._cluster = cluster
        self._step_budget = step_budget
        self._share_ids = share_ids
        self._allocator = Allocator(step_budget=step_budget, share_ids=share_ids)
        self._memory = _Memory()
        self._overlay = Overlay(cluster)

    @property
    def searches(self) -> int:
        """Searches made so far for verdicts; all other verdicts came from the cache."""
        return self._memory.searches

    def over(self, overlay: Overlay) -> Decisions:
        """The decisions on the state that an overlay on the same cluster shows. Verdicts of nodes for which nothing
        differs come from the same cache.
        """
        found = copy(self)
        found._overlay = overlay
        return found

    # --- many nodes --------------------------------------------------------------------------------------------------

    def verdicts(self, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> Verdicts:
        """Which of the nodes can have the claims: those that need allocation, in the order of the pod's list."""
        names = nodes if isinstance(nodes, list | tuple) else list(nodes)
        if not claims:
            return Verdicts(list(names), {})
        table = self._table(claims)
        if isinstance(table, Failure):
            return Verdicts([], {}, self._problem(claims, table))
        return table.verdicts(names, self._search(claims), self._overlay)

    def scores(self, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> Mapping[str, int]:
        """The raw score that allocating the claims would give each node that fits; nothing when an error is fatal."""
        names = nodes if isinstance(nodes, list | tuple) else list(nodes)
        if not claims:
            return dict.fromkeys(names, 0)
        table = self._table(claims, scored=True)
        return {} if isinstance(table, Failure) else table.scores(names, self._search(claims), self._overlay)

    def _table(self, claims: Sequence[ResourceClaim], *, scored: bool = False) -> Table | Failure:
        classes = self._cluster.inventory.classes
        signature = (
            tuple(digest(claim.spec) for claim in claims),
            tuple(classes.stamp(name) for name in class_names(claims)),
        )
        scorer = self.scorer if scored and (self.scorer.reads_use or self.scorer.attributes) else None
        tables = self._memory.tables if scorer is None else self._memory.scored_tables
        table = tables.get(signature)
        if table is None:
            prepared = self._prepare(claims)
            table = prepared if isinstance(prepared, Failure) else self._table_of(prepared, scorer)
            tables[signature] = table
        return table

    def _table_of(self, prepared: PreparedClaims, scorer: Scorer | None) -> Table:
        return Table(self._lens(focus(prepared, scorer)), self._cluster.inventory.nodes, self._cluster.ledger)

    def _lens(self, focus: Focus) -> Lens:
        lens = self._memory.lenses.get(focus)
        if lens is None:
            reduction = self._reduction(focus.filters, focus.attributes)
            lens = self._memory.lenses[focus] = Lens(focus, reduction=reduction, states=self._memory.states)
        return lens

    def _reduction(self, filters: Sequence[Filter], attributes: Sequence[str]) -> Reduction:
        reads = reads_of(filters, attributes)
        reduction = self._memory.reductions.get(reads)
        if reduction is None:
            reduction = self._memory.reductions[reads] = Reduction(reads)
        return reduction

    def _problem(self, claims: Sequence[ResourceClaim], known: Failure) -> str:
        """The text names claims, so it is made anew for these."""
        prepared = self._prepare(claims)
        return prepared.error if isinstance(prepared, Failure) else known.error

    def _search(self, claims: Sequence[ResourceClaim]) -> Search:
        """A fresh search, prepared when it is needed."""
        prepared: list[PreparedClaims | Failure] = []

        def search(node: str) -> tuple[Plan | Unfit | Failure, int]:
            self._memory.searches += 1
            if not prepared:
                prepared.append(self._prepare(claims))
            return self._allocate(prepared[0], node, claims)

        return search

    # --- one node ----------------------------------------------------------------------------------------------------

    def plan(
        self, claims: Sequence[ResourceClaim], node: str, chooser: Chooser | None = None
    ) -> Plan | Unfit | Failure:
        """How to allocate the claims on the node now: with the first devices that fit, or those that cost least."""
        prepared = self._prepare(claims)
        found = self._allocate(prepared, node)[0]
        if chooser is None or not isinstance(found, Plan) or isinstance(prepared, Failure):
            return found
        return self._least(prepared, node, found, chooser)

    def _least(self, prepared: PreparedClaims, node: str, first: Plan, chooser: Chooser) -> Plan:
        def attempt(view: NodeView, budget: int) -> Plan | Unfit | Failure:
            allocator = Allocator(step_budget=budget, share_ids=self._share_ids)
            return allocator.allocate(prepared, view, self._holdings(view))

        return least(first, chooser.orders(prepared, self._view(node)), chooser.cost, attempt, self._step_budget)

    def explain(self, claims: Sequence[ResourceClaim], node: str) -> Explanation:
        """Why the node can or cannot have the claims."""
        view = self._view(node)
        return explain(self._prepare(claims), view, self._holdings(view), self._step_budget)

    def _prepare(self, claims: Sequence[ResourceClaim]) -> PreparedClaims | Failure:
        return prepare(claims, self._cluster.classes, self._cluster.features)

    def _allocate(
        self, prepared: PreparedClaims | Failure, node: str, rated: Sequence[ResourceClaim] = ()
    ) -> tuple[Plan | Unfit | Failure, int]:
        """The decision, and the raw score of the allocations of the claims to be rated."""
        if isinstance(prepared, Failure):
            return prepared, 0
        view = self._overlay.view(node)
        if view is None:
            return Unfit(NOT_SYNCED, 0), 0
        holdings = self._holdings(view)
        found = self._allocator.allocate(prepared, view, holdings)
        if isinstance(found, Plan) and rated:
            return found, self.scorer.score(zip(rated, found.allocations, strict=True), view, holdings)
        return found, 0

    def _view(self, node: str) -> NodeView:
        return self._overlay.view(node) or NodeView(node, (), NOT_SYNCED)

    def _holdings(self, view: NodeView) -> NodeHoldings:
        holdings = self._overlay.holdings
        return NodeHoldings(view, {pool.id: held for pool in view.pools if (held := holdings(pool.id))})
