"""Filter, bind, explain and what-if all ask here; there is one allocator beneath.

Promises: nothing is changed by a question, nothing is raised for what claims or objects of the cluster contain, and
the same question on the same state has the same answer (share IDs apart). `verdicts` is `plan` on many nodes, from a
cache. `with_state` asks the same of a hypothetical state, `with_budget` in a budget: then every question may raise
`TurnSpent`, and what workers have to answer first is refused, or raises `Deferred`, as it says.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from typing import Final

from cachetools import LRUCache
from msgspec.structs import replace

from dra_extender.allocation.allocator import Allocator
from dra_extender.allocation.budget import SEARCHING, UNLIMITED, Deferred, TurnSpent, WorkBudget
from dra_extender.allocation.cache.lens import Focus, Lens, focus
from dra_extender.allocation.cache.reduction import Reduction, reads_of
from dra_extender.allocation.cache.verdicts import Search, Table, Verdicts
from dra_extender.allocation.choice import Chooser, least
from dra_extender.allocation.contents import contents
from dra_extender.allocation.explanation import explain
from dra_extender.allocation.looks import Reads
from dra_extender.allocation.plan import NO_SOLUTION, NOT_SYNCED, STEP_BUDGET, Explanation, Failure, Plan, Unfit
from dra_extender.allocation.questions import Answer, Overrun, Searched, SearchQuestion
from dra_extender.allocation.requests import Filter, PreparedClaims, Ready, class_names, filter_of, prepare
from dra_extender.allocation.result import ShareIDs
from dra_extender.allocation.score import PrioritizedList, Scorer
from dra_extender.allocation.tally import NodeTally
from dra_extender.allocation.tallying import tally
from dra_extender.api.resource import ResourceClaim
from dra_extender.cel import Work, WorkExceeded
from dra_extender.devices.cluster import Cluster
from dra_extender.devices.holdings import NodeHoldings, PoolHoldings
from dra_extender.devices.nodeview import NodeView
from dra_extender.devices.overlay import Overlay
from dra_extender.devices.pools import Pool
from dra_extender.devices.poolstate import PoolStates
from dra_extender.devices.uses import PoolID

PRIORITIZED_LIST: Final = PrioritizedList()

REMEMBERED_TABLES = 256
REMEMBERED_LENSES = 256
REMEMBERED_BYTES: Final = 2**27
"""What tables may keep, and what lenses may: filters with their compiled selectors."""

REMEMBERED_REDUCTIONS = 16

LATER_SHARE = 8
"""When one search for claims was too large to be done on the spot, further ones get this part of the allowance."""

Signature = tuple[tuple[bytes, ...], tuple[int, ...]]
"""What claims ask for, and the versions of the classes they ask for it."""


def _size(kept: int, entries: int) -> int:
    """What one of at most so many entries counts for: there is room for four, however large they are."""
    return min(max(kept, REMEMBERED_BYTES // entries), REMEMBERED_BYTES // 4)


def _table_size(table: Table | Failure) -> int:
    return _size(table.size if isinstance(table, Table) else 0, REMEMBERED_TABLES)


def _prepared_size(claims: Sequence[Ready]) -> int:
    filters = {ask.filter for requests, _ in claims for request in requests for ask in request.asks}
    return _size(sum(filter.size for filter in filters), REMEMBERED_TABLES)


class _Memory:
    """What decisions on all states of one cluster share. `searches` counts those made for verdicts."""

    def __init__(self) -> None:
        self.searches = 0
        self.tables: LRUCache[Signature, Table | Failure] = LRUCache(REMEMBERED_BYTES, _table_size)
        self.scored_tables: LRUCache[Signature, Table | Failure] = LRUCache(REMEMBERED_BYTES, _table_size)
        """For a scorer that tells nodes apart which are one to the search."""
        self.lenses: LRUCache[Focus, Lens] = LRUCache(
            REMEMBERED_BYTES, lambda lens: _size(lens.size, REMEMBERED_LENSES)
        )
        self.prepared: LRUCache[Signature, list[Ready]] = LRUCache(REMEMBERED_BYTES, _prepared_size)
        """As far as they are: who goes on with a question finds there what its filters know."""
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
        self._budget: WorkBudget = UNLIMITED

    @property
    def searches(self) -> int:
        """Searches made so far for verdicts; all other verdicts came from the cache."""
        return self._memory.searches

    def with_state(self, overlay: Overlay) -> Decisions:
        """The decisions on the state that an overlay on the same cluster shows. Verdicts of nodes for which nothing
        differs come from the same cache.
        """
        found = copy(self)
        found._overlay = overlay
        return found

    def with_budget(self, budget: WorkBudget) -> Decisions:
        """The decisions on the same state, with work counted by the budget."""
        found = copy(self)
        found._budget = budget
        return found

    def spend(self, units: int) -> None:
        """Count work that somebody does to ask the next question. Raises TurnSpent and Deferred."""
        self._budget.spend(units)

    def contents(self, claims: Iterable[ResourceClaim]) -> tuple[bytes, ...]:
        """What each claim asks for, to tell claims apart. Raises TurnSpent and Deferred."""
        return contents(claims, self._budget)

    def apart(self) -> Decisions:
        """The decisions on the same state, with a memory of their own: for questions about claims that nobody has made,
        which would push out what is remembered of those that somebody did.
        """
        found = copy(self)
        found._memory = _Memory()
        return found

    def on(self, cluster: Cluster) -> Decisions:
        """The same decisions about another cluster, with a memory of their own."""
        return Decisions(cluster, share_ids=self._share_ids, step_budget=self._step_budget, scorer=self.scorer)

    def alike(
        self, claims: Sequence[ResourceClaim], nodes: Iterable[str], attributes: Iterable[str] = ()
    ) -> Mapping[str, Hashable]:
        """A key for each node that is known, the same for nodes that only their names tell apart: to these claims, to
        others with the same selectors for any class, and to constraints on these attributes as well. Raises TurnSpent
        and Deferred.
        """
        cluster, budget = self._cluster, self._budget
        prepared = self._prepare(claims)
        looked = focus(prepared) if isinstance(prepared, PreparedClaims) else None
        filters = [filter_of(known, cluster.features) for known in cluster.classes.values()]
        names = set(attributes).union(looked.attributes if looked is not None else ())
        reads = reads_of((*filters, *(looked.filters if looked is not None else ())), sorted(names), budget)
        if reads not in self._memory.reductions:
            self._memory.reductions[reads] = Reduction(reads)
        reduction, states = self._memory.reductions[reads], self._memory.states
        found: dict[str, Hashable] = {}
        for name in nodes:
            seen = cluster.inventory.nodes.seen.get(name)
            if seen is None:
                continue
            seen = cluster.inventory.nodes.current(seen)
            pools = [item for item in seen.pools if item.pool is not None]
            found[name] = seen.error or tuple(
                (reduction.shape(item, item.pool, budget), states.of(item.pool, cluster.ledger.holdings(item.pool.id)))
                for item in pools
                if item.pool is not None
            )
        return found

    # --- many nodes --------------------------------------------------------------------------------------------------

    def verdicts(self, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> Verdicts:
        """Which of the nodes can have the claims: those that need allocation, in the order of the pod's list."""
        names = nodes if isinstance(nodes, list | tuple) else list(nodes)
        if not claims:
            return Verdicts(list(names), {})
        try:
            table = self._table(claims)
        except Deferred as waiting:
            return Verdicts([], dict.fromkeys(names, str(waiting)), waiting=True)
        if isinstance(table, Failure):
            return Verdicts([], {}, self._problem(claims, table))
        return table.verdicts(names, self._search(claims, table), self._overlay, self._budget)

    def scores(self, claims: Sequence[ResourceClaim], nodes: Iterable[str]) -> Mapping[str, int]:
        """The raw score that allocating the claims would give each node that fits; nothing when an error is fatal, or
        nobody knows yet.
        """
        names = nodes if isinstance(nodes, list | tuple) else list(nodes)
        if not claims:
            return dict.fromkeys(names, 0)
        try:
            table = self._table(claims, scored=True)
        except Deferred:
            return {}
        if isinstance(table, Failure):
            return {}
        return table.scores(names, self._search(claims, table), self._overlay, self._budget)

    def _table(self, claims: Sequence[ResourceClaim], *, scored: bool = False) -> Table | Failure:
        signature = self._signature(claims)
        scorer = self.scorer if scored and (self.scorer.reads_use or self.scorer.attributes) else None
        tables = self._memory.tables if scorer is None else self._memory.scored_tables
        table = tables.get(signature)
        if table is None:
            prepared = self._prepare(claims)
            table = prepared if isinstance(prepared, Failure) else self._table_of(prepared, scorer)
            tables[signature] = table
        return table

    def _signature(self, claims: Sequence[ResourceClaim]) -> Signature:
        stamp = self._cluster.inventory.classes.stamp
        return contents(claims, self._budget), tuple(map(stamp, class_names(claims)))

    def _table_of(self, prepared: PreparedClaims, scorer: Scorer | None) -> Table:
        return Table(self._lens(focus(prepared, scorer)), self._cluster.inventory.nodes, self._cluster.ledger)

    def _lens(self, focus: Focus) -> Lens:
        lens = self._memory.lenses.get(focus)
        if lens is None:
            reduction = self._reduction(focus.filters, focus.attributes)
            lens = self._memory.lenses[focus] = Lens(focus, reduction=reduction, states=self._memory.states)
        return lens

    def _reduction(self, filters: Sequence[Filter], attributes: Sequence[str]) -> Reduction:
        reads = reads_of(filters, attributes, self._budget)
        reduction = self._memory.reductions.get(reads)
        if reduction is None:
            reduction = self._memory.reductions[reads] = Reduction(reads)
        return reduction

    def _problem(self, claims: Sequence[ResourceClaim], known: Failure) -> str:
        """The text names claims, so it is made anew for these."""
        prepared = self._prepare(claims)
        return prepared.error if isinstance(prepared, Failure) else known.error

    def _search(self, claims: Sequence[ResourceClaim], table: Table) -> Search:
        """A fresh search, prepared when it is needed."""
        prepared: list[PreparedClaims | Failure] = []

        def search(node: str, key: Hashable) -> tuple[Plan | Unfit | Failure, int]:
            self._memory.searches += 1
            if not prepared:
                prepared.append(self._prepare(claims))
            if isinstance(prepared[0], Failure):
                return prepared[0], 0
            question = self._question(prepared[0], node)
            if question is None:
                return Unfit(NOT_SYNCED, 0), 0
            asked, found = self._decide(question, key, table)
            if isinstance(found, Plan):
                return found, self._score(asked, found)
            return found, 0

        return search

    def _score(self, question: SearchQuestion, plan: Plan) -> int:
        claims = [prepared.claim for prepared in question.prepared.claims]
        return self.scorer.score(zip(claims, plan.allocations, strict=True), question.view, question.holdings)

    # --- one node ----------------------------------------------------------------------------------------------------

    def plan(
        self, claims: Sequence[ResourceClaim], node: str, chooser: Chooser | None = None
    ) -> Plan | Unfit | Failure:
        """How to allocate the claims on the node now: with the first devices that fit, or those that cost least. Raises
        Deferred.
        """
        prepared = self._prepare(claims)
        if isinstance(prepared, Failure):
            return prepared
        question = self._question(prepared, node)
        if question is None:
            return Unfit(NOT_SYNCED, 0)
        key = question.view, tuple(map(self._held_in, question.view.pools)), *self._signature(claims)
        found = self._decide(question, key)[1]
        if chooser is None or not isinstance(found, Plan):
            return found
        return self._least(prepared, node, found, chooser)

    def _least(self, prepared: PreparedClaims, node: str, first: Plan, chooser: Chooser) -> Plan:
        """What would take too long is not tried: the plan is a good one all the same."""

        def attempt(view: NodeView, steps: int) -> Plan | Unfit | Failure:
            allocator = Allocator(step_budget=steps, share_ids=self._share_ids)
            budget, holdings = self._budget, self._holdings(view)
            try:
                return budget.attempt(lambda work: allocator.allocate(prepared, view, holdings, budget, work))
            except (WorkExceeded, TurnSpent, Deferred):
                return Unfit(SEARCHING, steps)

        return least(first, chooser.orders(prepared, self._view(node)), chooser.cost, attempt, self._step_budget)

    def explain(self, claims: Sequence[ResourceClaim], node: str) -> Explanation:
        """Why the node can or cannot have the claims. Raises Deferred."""
        view, budget, prepared = self._view(node), self._budget, self._prepare(claims)
        holdings, steps = self._holdings(view), self._step_budget
        try:
            return budget.attempt(lambda work: explain(prepared, view, holdings, steps, budget, work))
        except WorkExceeded:
            raise Deferred(SEARCHING) from None

    def tally(self, claims: Sequence[ResourceClaim], node: str) -> NodeTally:
        """How many devices of the node each rule leaves the claims. Raises Deferred."""
        view, budget, prepared = self._view(node), self._budget, self._prepare(claims)
        holdings, steps = self._holdings(view), self._step_budget
        try:
            return budget.attempt(lambda work: tally(prepared, view, holdings, steps, budget, work))
        except WorkExceeded:
            raise Deferred(SEARCHING) from None

    def _prepare(self, claims: Sequence[ResourceClaim]) -> PreparedClaims | Failure:
        signature = self._signature(claims)
        known = self._memory.prepared.get(signature, [])
        before = len(known)
        try:
            return prepare(claims, self._cluster.classes, self._cluster.features, known, self._budget.spend)
        finally:
            if len(known) > before:
                self._memory.prepared[signature] = known

    def _question(self, prepared: PreparedClaims, node: str) -> SearchQuestion | None:
        view = self._overlay.view(node)
        if view is None:
            return None
        held = self._held(view)
        return SearchQuestion(prepared, view, held, NodeHoldings(view, held))

    def _decide(
        self, question: SearchQuestion, key: Hashable, table: Table | None = None
    ) -> tuple[SearchQuestion, Plan | Unfit | Failure]:
        """The decision, and the question that it answers: with the same key, perhaps about another node. An answer of
        a worker is for claims of the same content, and becomes one about these.
        """
        budget = self._budget
        known = budget.known(key)
        if known is not None and isinstance(known.question, SearchQuestion):
            asked = replace(known.question, prepared=question.prepared)
            return asked, self._worked_out(asked, known.answer)
        if not budget.is_left(key):
            share = LATER_SHARE if table is not None and table.is_hard else 1
            try:
                return question, budget.attempt(lambda work: self._allocate(question, work), share)
            except WorkExceeded:
                if table is not None:
                    table.is_hard = True
        raise budget.leave(key, question, SEARCHING)

    def _allocate(self, question: SearchQuestion, work: Work | None) -> Plan | Unfit | Failure:
        return self._allocator.allocate(question.prepared, question.view, question.holdings, self._budget, work)

    def _worked_out(self, question: SearchQuestion, answer: Answer) -> Plan | Unfit | Failure:
        """What a worker's answer comes to. Raises TurnSpent and Deferred."""
        if isinstance(answer, Searched):
            return self._allocator.replay(question.prepared, question.view, question.holdings, answer, self._budget)
        return Unfit(f"search {answer.text}" if isinstance(answer, Overrun) else NO_SOLUTION, 0)

    def _view(self, node: str) -> NodeView:
        return self._overlay.view(node) or NodeView(node, (), NOT_SYNCED)

    def _holdings(self, view: NodeView) -> NodeHoldings:
        return NodeHoldings(view, self._held(view))

    def _held_in(self, pool: Pool) -> Hashable:
        """What is held in the pool, to be compared: by content where it is not what the cluster has."""
        if self._overlay.touches(pool.id):
            return self._memory.states.of(pool, self._overlay.holdings(pool.id))
        return self._cluster.ledger.revision(pool.id)

    def _held(self, view: NodeView) -> dict[PoolID, PoolHoldings]:
        holdings = self._overlay.holdings
        return {pool.id: held for pool in view.pools if (held := holdings(pool.id))}
