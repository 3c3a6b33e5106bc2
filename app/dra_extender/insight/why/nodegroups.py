"""Nodes of which the same is to be said, with the account of one of them.

Promises: at most `EXAMINED` groups of nodes are looked at in detail, the largest first; the others are told by number.
Names of devices and nodes do not tell nodes apart: thousands of equal nodes are one group.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import islice
from typing import Final

import msgspec

from dra_extender.allocation.plan import NO_SOLUTION, Failure, Feasibility, Unfit
from dra_extender.allocation.tally import NodeTally, RequestTally
from dra_extender.devices.readonly import holders
from dra_extender.insight.why.ground import Ground
from dra_extender.insight.why.report import BindingRule, Constraint, Holder, NodeGroup, Request
from dra_extender.insight.why.situation import Situation
from dra_extender.scheduling.claims import Unschedulable
from dra_extender.scheduling.feasibility import pending_claims
from dra_extender.scheduling.noderules import NodeRule
from dra_extender.scheduling.slices import QueryBudget, Slices
from dra_extender.scheduling.view import View

EXAMINED: Final = 48
NAMED: Final = 5
HOLDERS: Final = 256
"""Holders that are told of the devices of one request."""
COST: Final = 4
"""Units of work that telling one takes."""
UNKNOWN: Final = "nobody can say yet"


class _Account(msgspec.Struct, frozen=True):
    """What is said of the devices of a node."""

    fits: bool
    reason: str
    tally: NodeTally | None = None


def node_groups(ground: Ground, budget: QueryBudget) -> Slices[list[NodeGroup]]:
    """All nodes, the largest groups first."""
    kinds: dict[Hashable, int] = {}
    members: dict[tuple[int, tuple[NodeRule, ...]], list[str]] = {}
    accounts: dict[tuple[int, tuple[NodeRule, ...]], _Account] = {}
    for number, group in enumerate(ground.groups):
        account: _Account | None = None
        if number < EXAMINED and not budget.spent():
            account = yield from _account(ground.base, group[0], budget)
            yield
        else:
            budget.complete = False
        what = account and (account.fits, account.reason, account.tally and account.tally.anonymous())
        kind = kinds.setdefault(what, len(kinds))
        for name in group:
            key = kind, tuple(found.rule for found in ground.obstacles[name])
            members.setdefault(key, []).append(name)
            if account is not None:
                accounts.setdefault(key, account)
            if budget.must_yield(1 + len(ground.obstacles[name]) // 4):
                yield
    found: list[NodeGroup] = []
    for key, names in members.items():
        found.append((yield from _group(ground, names, accounts.get(key), budget)))
    return sorted(found, key=lambda group: -group.count)


def _account(base: Situation, name: str, budget: QueryBudget) -> Slices[_Account | None]:
    prefiltered, node = base.prefiltered, base.node(name)
    if isinstance(prefiltered, Unschedulable):
        return _Account(False, prefiltered.reason)
    if isinstance(prefiltered, Failure):
        return _Account(False, prefiltered.error)
    if node is None:  # gone since the last step
        return _Account(False, UNKNOWN)
    pending = pending_claims(prefiltered, node)
    if isinstance(pending, Unfit):
        return _Account(False, pending.reason)
    if not pending.claims:
        return _Account(True, "")
    found = yield from budget.turn(lambda view: view.decisions.tally(pending.claims, name))
    if found is None:
        return _Account(False, UNKNOWN)
    return _Account(found.verdict == "fits", found.reason, found)


def _group(ground: Ground, names: Sequence[str], account: _Account | None, budget: QueryBudget) -> Slices[NodeGroup]:
    if budget.must_yield(1):
        yield
    shown = tuple(names[:NAMED])
    obstacles = ground.obstacles[names[0]]
    if account is None:
        return NodeGroup(len(names), shown, "undecided", NO_SOLUTION, obstacles, examined=False)
    tally = account.tally
    if tally is None:
        verdict: Feasibility = "fits" if account.fits else "refused"
        return NodeGroup(len(names), shown, verdict, account.reason, obstacles, example=names[0])
    requests: list[Request] = []
    for request in tally.requests:
        told = yield from _holders(ground.base.view, request, budget)
        requests.append(Request(request, _binding(request), told))
    return NodeGroup(
        count=len(names),
        nodes=shown,
        verdict=tally.verdict,
        reason=tally.reason,
        obstacles=obstacles,
        example=tally.node,
        requests=tuple(requests),
        constraints=tuple(Constraint(**msgspec.structs.asdict(found)) for found in tally.constraints),
        pools=tally.pools,
        cause=tally.stuck.cause if tally.stuck is not None and not tally.stuck.after else "",
        wanted=tally.wanted,
        available=tally.available,
    )


def _binding(request: RequestTally) -> BindingRule:
    """The rule after which too few devices were left; empty when there are enough."""
    if request.left >= request.wanted:
        return ""
    left = request.offered
    if left < request.wanted:
        return "class" if not left else "offered"
    for loss in request.losses:
        left -= loss.count
        if left < request.wanted:
            return loss.rule
    return "offered"


# --- holders ----------------------------------------------------------------------------------------------------------


def _holders(view: View, request: RequestTally, budget: QueryBudget) -> Slices[tuple[Holder, ...]]:
    """Who has devices of the request, most of them first; `HOLDERS` at most."""
    found: dict[str, Holder] = {}
    for device in request.held:
        use = view.ledger.in_use((device.driver, device.pool)).get(device.device)
        if use is None:
            continue
        if budget.must_yield(1 + len(use.owners) + len(use.shares)):
            yield
        if len(found) >= HOLDERS or budget.spent():
            budget.complete = False
            break
        for holder in islice(holders(view.ledger, use), HOLDERS):
            namespace, slash, _ = holder.claim.partition("/")
            known = found.get(holder.claim)
            count = known.devices + 1 if known is not None else 1
            pods = tuple(f"{namespace}/{name}" for name in holder.pods) if slash else ()
            if budget.must_yield(COST + len(pods)):
                yield
            found[holder.claim] = Holder(holder.claim, pods, count, holder.in_flight)
    return tuple(sorted(found.values(), key=lambda holder: (-holder.devices, holder.claim)))
