"""What the bind of a pod in a gang waits for.

Promises: a member without a plan, after a change of leader, gets one or is not bound. Members that share a claim wait
for the member that allocates it. Pods without a gang are left alone.
"""

from __future__ import annotations

from functools import partial

from dra_extender.api.core import Pod
from dra_extender.api.groups import group_of
from dra_extender.scheduling.bind.context import BindContext
from dra_extender.scheduling.bind.failure import BindFailure, CheckActive
from dra_extender.scheduling.claims import Unschedulable


class GangMember:
    """The pod of one bind to one node. `check_active` raises BindFailure when the bind has to end."""

    def __init__(self, context: BindContext, pod: Pod, node: str, check_active: CheckActive) -> None:
        self._context = context
        self._pod = pod
        self._node = node
        self._check_active = check_active
        self._has_group = group_of(pod) is not None

    async def plan(self, seconds: float) -> None:
        """Plan the pod's gang if it has no plan. Raises BindFailure when the pod cannot be on the node then."""
        if not self._has_group:
            return
        gangs = self._context.gangs
        plan = partial(gangs.plan_for_bind, node=self._node)
        found = await self._context.deferred.decide_within(seconds, self._pod, plan)
        if found is not None:
            gangs.keep(found[0], self._pod, (self._node,), found[1])
            if not found[1].node:
                raise BindFailure(found[1].reason or found[1].error, "refused")

    async def must_decide_again(self, decision: object, seconds: float) -> bool:
        """Wait up to `seconds` while another member allocates a claim that they share; True when it has done so."""
        if not self._has_group or not isinstance(decision, Unschedulable) or not decision.awaiting:
            return False
        view, uid = self._context.view, decision.awaiting

        def ended() -> bool:
            self._check_active()
            claim = view.ledger.by_uid(uid)
            return claim is None or not view.in_flight(claim)

        return await self._context.event_handler.signals.until(ended, (uid,), seconds)
