"""The results of many nodes for one pod, from a cache that is never wrong.

Promises: the answer equals that of a new search on every node. `NodeResults` lists nodes in the caller's order. The
cache makes one search per distinct equivalence key: one for 5,000 equal nodes, and one more after an allocation on one
of them. The same question costs only look-ups. After a change, only the changed nodes get new keys.

Upstream evaluates nodes in parallel and reports the error of whichever fails first (Kubernetes 1.36,
pkg/scheduler/schedule_one.go). Here the first node in the caller's order decides, and later nodes are not evaluated.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import filterfalse, repeat
from operator import itemgetter
from typing import Final

import msgspec

from dra_extender.allocation.budget import UNLIMITED, Deferred, WorkBudget
from dra_extender.allocation.cache.equivalence import EquivalenceKey, EquivalenceKeys
from dra_extender.allocation.plan import NOT_SYNCED, Failure, NodeAmounts, Plan, Unfit
from dra_extender.devices.ledger import Ledger
from dra_extender.devices.nodes import HYPOTHETICAL, Nodes, SeenNode
from dra_extender.devices.overlay import Overlay

REMEMBERED_KEYS = 50_000
REMEMBERED_RESULTS = 50_000
"""The most results of one claim: each distinct score makes one."""

UNDECIDED = 0
"""The number of a result that is not known."""
NO_NODE = 1
FAILED = 2

KeyOfNode = dict[int, EquivalenceKey]
"""By index of the node."""

STATES: Final = 4
"""Hypothetical states for which the turns of a call keep the keys of nodes."""
NODE: Final = 4
"""Units of work that the key of a node costs."""

SearchNode = Callable[[str, Hashable], tuple[Plan | Unfit | Failure, int]]
"""A fresh search on the node of this name, and the raw score of what it found. Searches with equal keys, the second
argument, have the same answer. Raises TurnSpent and Deferred.
"""


class NodeResults(msgspec.Struct, frozen=True):
    """`fits` in the order asked; `refused`: node -> constant reason. Both are empty with `error`, fatal for the pod.

    `waiting`: some nodes are refused only because a worker has to answer first, or the call has reached its work.
    `amounts`: what the devices take of the CPU and memory of a node that fits, if they take any.
    """

    fits: list[str]
    refused: dict[str, str]
    error: str = ""
    waiting: bool = False
    amounts: Mapping[str, NodeAmounts] = {}


class NodeResult(msgspec.Struct, frozen=True):
    """What a search came to. `score` counts for nodes that fit."""

    fits: bool
    reason: str = ""
    score: int = 0
    waiting: bool = False
    amounts: NodeAmounts = ()


_FIXED = (NodeResult(False), NodeResult(False, NOT_SYNCED), NodeResult(False))
"""Those of UNDECIDED, NO_NODE and FAILED."""


class ResultCache:
    """The results for claims of one content."""

    def __init__(self, keys: EquivalenceKeys, nodes: Nodes, ledger: Ledger) -> None:
        self.keys = keys
        self._nodes = nodes
        self._seen_nodes, self._changed_pools = nodes.seen, nodes.changed_pools
        self._ledger = ledger
        self._position = -1
        self.has_large_search = False
        """True when a search was too large for a turn."""
        self._results = list(_FIXED)
        self._numbers: dict[NodeResult, int] = {}
        self._by_key: dict[EquivalenceKey, int] = {}
        self._key_of: KeyOfNode = {}
        """The keys that `classes` has computed."""
        self._by_node: array[int] = array("I")
        """Number of the result by index of the node; the last entry, index -1, stands for unknown nodes."""

    def results(
        self, names: Sequence[str], search: SearchNode, overlay: Overlay, budget: WorkBudget = UNLIMITED
    ) -> NodeResults:
        """The results for these nodes in the state that the overlay shows. `search` decides on the same state; it is
        called for nodes without a result, and for the text of an error. Nodes for which a worker has to answer first
        are refused. Raises TurnSpent.
        """
        row = self._row(names, search, overlay, budget)
        numbers = set(row)
        if FAILED in numbers:
            return self._failed(names, names[row.index(FAILED)], search, overlay, budget)
        results = self._results
        found_here = {(results[number].fits, results[number].reason) for number in numbers}
        waiting = any(results[number].waiting for number in numbers)
        taking = {number: results[number].amounts for number in numbers if results[number].amounts}
        pairs = zip(names, row, strict=True) if taking else ()
        amounts = {name: taking[number] for name, number in pairs if number in taking}
        if all(fits for fits, _ in found_here):
            return NodeResults(list(names), {}, amounts=amounts)
        if len(found_here) == 1:
            # Pending pods are refused everywhere for one reason, and filtered again and again.
            ((_, reason),) = found_here
            return NodeResults([], dict.fromkeys(names, reason), waiting=waiting)
        reasons = {number: results[number].reason for number in numbers if not results[number].fits}
        refused = {name: reasons[number] for name, number in zip(names, row, strict=True) if number in reasons}
        fits = list(filterfalse(refused.__contains__, names))
        return NodeResults(fits, refused, waiting=waiting, amounts=amounts)

    def _failed(
        self, names: Sequence[str], failed: str, search: SearchNode, overlay: Overlay, budget: WorkBudget
    ) -> NodeResults:
        """Search again for these claims, because the text names claims."""
        try:
            _, key = self._key(failed, None if overlay.is_empty else overlay, budget)
            found, _ = search(failed, (self, key))
        except Deferred as waiting:
            return NodeResults([], dict.fromkeys(names, str(waiting)), waiting=True)
        return NodeResults([], {}, found.error if isinstance(found, Failure) else "")

    def scores(
        self, names: Sequence[str], search: SearchNode, overlay: Overlay, budget: WorkBudget = UNLIMITED
    ) -> Mapping[str, int]:
        """The raw score of the new allocations on those of the nodes that fit; empty when an error is fatal. Raises
        TurnSpent.
        """
        row = self._row(names, search, overlay, budget)
        if FAILED in row:
            return {}
        results = self._results
        return {name: results[number].score for name, number in zip(names, row, strict=True) if results[number].fits}

    def classes(self, names: Sequence[str], overlay: Overlay, budget: WorkBudget) -> Iterable[Sequence[str]]:
        """The nodes of each equivalence class: equal also for several claims like these. Raises TurnSpent and
        Deferred.
        """
        self._catch_up()
        found: dict[EquivalenceKey, list[str]] = {}
        different = None if overlay.is_empty else overlay
        differing, others = self._differing_keys(overlay, budget), overlay.differing
        for name in names:
            index = self._nodes.index.get(name, HYPOTHETICAL)
            key = (differing if name in others else self._key_of).get(index)
            if key is None:
                seen, key = self._key(name, different, budget)
                if index != HYPOTHETICAL:
                    (differing if overlay.differs_for(seen) else self._key_of)[index] = key
            found.setdefault(key, []).append(name)
        return found.values()

    def _row(self, names: Sequence[str], search: SearchNode, overlay: Overlay, budget: WorkBudget) -> list[int]:
        """The result of each node. After a failed one the others are left out. Raises TurnSpent."""
        self._catch_up()
        index, by_node = self._nodes.index, self._by_node
        indexes = list(map(index.get, names, repeat(HYPOTHETICAL)))
        row = list(itemgetter(*indexes)(by_node)) if len(indexes) > 1 else [by_node[found] for found in indexes]
        differing = self._differing_keys(overlay, budget)
        if others := overlay.differing:
            for position in [number for number, name in enumerate(names) if name in others]:
                key = differing.get(indexes[position])
                row[position] = self._by_key.get(key, UNDECIDED) if key is not None else UNDECIDED
        if FAILED in row:
            del row[row.index(FAILED) + 1 :]
        if UNDECIDED in row:
            self._decide(row, names, search, overlay, differing, budget)
        return row

    def _decide(
        self,
        row: list[int],
        names: Sequence[str],
        search: SearchNode,
        overlay: Overlay,
        differing: KeyOfNode,
        budget: WorkBudget,
    ) -> None:
        """Fill in what is undecided, up to the first node that fails; the others are left out. Raises TurnSpent."""
        different, waited, position = None if overlay.is_empty else overlay, budget.waited, -1
        for _ in range(row.count(UNDECIDED)):
            position = row.index(UNDECIDED, position + 1)
            name = names[position]
            reason = waited.get((self, name), "") if waited else ""
            if not reason:
                try:
                    seen, key = self._key(name, different, budget)
                    number = self._by_key.get(key) or self._search(name, key, search)
                    row[position] = number
                    if different is None or not different.differs_for(seen):
                        self._by_node[seen.index] = number
                    elif seen.index != HYPOTHETICAL:
                        differing[seen.index] = key
                except Deferred as waiting:
                    reason = str(waiting)
                    budget.wait(self, name, reason)
            if reason:
                row[position] = self._number_of(NodeResult(False, reason, waiting=True))
            if row[position] == FAILED:
                del row[position + 1 :]
                return

    def _catch_up(self) -> None:
        changes = self._nodes.changes
        noted = changes.since(self._position)
        wanted = len(self._nodes.by_index) + 1
        if len(self._results) >= REMEMBERED_RESULTS:
            self._results, noted = list(_FIXED), None
            self._numbers.clear()
            self._by_key.clear()
        if noted is None:
            self._key_of.clear()
            self._by_node = array("I", [UNDECIDED]) * wanted
            self._by_node[-1] = NO_NODE
        else:
            by_node = self._by_node
            if len(by_node) < wanted:
                by_node[-1] = UNDECIDED
                by_node.extend([UNDECIDED] * (wanted - len(by_node)))
                by_node[-1] = NO_NODE
            for node in noted:
                by_node[node] = UNDECIDED
                self._key_of.pop(node, None)
        self._position = changes.position

    def _differing_keys(self, overlay: Overlay, budget: WorkBudget) -> KeyOfNode:
        """The keys of the nodes for which the overlay differs, as earlier turns of the call have found them. The last
        `STATES` overlays are remembered. A node that has changed since then has no key.
        """
        if overlay.is_empty or not budget.limited:
            return {}
        changes, state = self._nodes.changes, overlay.differences
        states: dict[Hashable, tuple[int, KeyOfNode]] = budget.found.setdefault(self.keys, {})
        position, known = states.pop(state, (-1, {}))
        if len(states) >= STATES:
            del states[next(iter(states))]
        noted = changes.since(position)
        keys: KeyOfNode = {} if noted is None else known
        for node in noted or ():
            keys.pop(node, None)
        states[state] = changes.position, keys
        return keys

    def _search(self, name: str, key: EquivalenceKey, search: SearchNode) -> int:
        """Raises TurnSpent and Deferred."""
        found, score = search(name, (self, key))
        if isinstance(found, Failure):
            number = FAILED
        elif isinstance(found, Unfit):
            number = self._number_of(NodeResult(False, found.reason))
        else:
            number = self._number_of(NodeResult(True, "", score, amounts=found.amounts))
        if len(self._by_key) >= REMEMBERED_KEYS:
            self._by_key.clear()
        self._by_key[key] = number
        return number

    def _key(self, name: str, overlay: Overlay | None, budget: WorkBudget) -> tuple[SeenNode, EquivalenceKey]:
        """The node, brought up to date, and its key. Raises TurnSpent and Deferred."""
        budget.spend(NODE)
        seen = (overlay.hypothetical(name) if overlay is not None else None) or self._seen_nodes[name]
        if seen.stale or seen.position < self._changed_pools.position:  # `is_current`, without a call for each node
            for units in self._nodes.refresh(seen):
                budget.spend(units)
        if seen.pools[NODE:]:
            budget.spend(len(seen.pools))
        return seen, self.keys.of(seen, self._ledger, overlay, budget)

    def _number_of(self, result: NodeResult) -> int:
        number = self._numbers.get(result)
        if number is None:
            number = self._numbers[result] = len(self._results)
            self._results.append(result)
        return number
