"""The pod that a call of bind names, as the API server has it at this moment: the watch may be behind."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError
from dra_extender.api.extender import ExtenderBindingArgs
from dra_extender.scheduling.bind.actions import Actions
from dra_extender.scheduling.bind.failure import UNREADABLE, BindFailure, Undecided
from dra_extender.scheduling.bind.retry import RetryPolicy, answered, retried

log = structlog.get_logger(__name__)


class LivePod:
    """`uid` is that of the call: a pod of the same name with another UID is another pod."""

    def __init__(self, actions: Actions, args: ExtenderBindingArgs) -> None:
        self.key = f"{args.PodNamespace}/{args.PodName}"
        self.uid = args.PodUID
        self._args = args
        self._act = actions
        self._view = actions.view

    async def read(self, go_on: Callable[[], None]) -> Pod | None:
        """The pod as stored now; None when it is gone. Raises BindFailure when it cannot be read."""
        try:
            return self._learned(await answered(self._read, self._view.config, go_on))
        except ApiError as error:
            log.warning("a pod cannot be read", pod=self.uid, error=repr(error))
            raise BindFailure(UNREADABLE) from None

    async def insist(self, policy: RetryPolicy) -> Pod | None:
        """The same for those who cannot do without: raises Undecided."""
        try:
            return self._learned(await retried(self._read, policy, self._view.config, self._view.clock))
        except ApiError as error:
            if self._view.pods.get(self.uid) is None and self._view.pods.leaving(self.uid):
                return None  # the watch has shown its end
            raise Undecided(f"pod {self.key} cannot be read", error) from None

    async def is_bound_to(self, node: str, policy: RetryPolicy) -> bool:
        """True when the pod is bound to this node, by whomever. Raises Undecided."""
        pod = self._view.pods.get(self.uid)
        if pod is None or not pod.spec.node_name:  # a binding is never taken back: once seen it need not be looked up
            pod = await self.insist(policy)
        return pod is not None and pod.spec.node_name == node

    async def _read(self) -> Pod | None:
        return await self._act.ports.read_pod(self._args.PodNamespace, self._args.PodName)

    def _learned(self, pod: Pod | None) -> Pod | None:
        if pod is None or pod.metadata.uid != self.uid:
            return None
        self._act.intake.learn_pod(pod)
        return pod
