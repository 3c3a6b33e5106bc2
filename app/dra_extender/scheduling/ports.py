"""What scheduling needs from outside: the API server, worker processes, time, and metrics.

Every method that calls the API server raises only the errors of `api.errors`. They say whether the request was carried
out; only `OutcomeUnknownError` leaves that open. A method either returns the object as the server stored it or raises.
A method retries only a refusal (429), and ends within its own time limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from msgspec import UNSET, UnsetType

from dra_extender.allocation.workerrequests import TimedReply, WorkerRequest
from dra_extender.api.core import Pod
from dra_extender.api.resource import AllocationResult, ResourceClaim, ResourceClaimConsumerReference
from dra_extender.scheduling.outcomes import L, LabelledCounter, Step


class Ports(Protocol):
    """Everything that talks to the API server. `claim` has the name, UID and resourceVersion that a write requires.

    Preconditions: unless said otherwise a write of a claim fails with ConflictError when the stored claim has another
    resourceVersion, and with ConflictError or RejectedError (the real server says 409 or 422) when it has another UID.
    """

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim as stored now; None if it does not exist."""

    async def add_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        """Append the delete-protection finalizer to the claim (main resource)."""

    async def remove_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        """Take the delete-protection finalizer away (main resource). A claim that is being deleted is gone then."""

    async def write_status(
        self,
        claim: ResourceClaim,
        *,
        allocation: AllocationResult | UnsetType | None = UNSET,
        reserved_for: Sequence[ResourceClaimConsumerReference],
    ) -> ResourceClaim:
        """Set all of reservedFor, and the allocation too unless it is UNSET (= keep what is stored), in one write."""

    async def annotate(self, claim: ResourceClaim, annotations: Mapping[str, str]) -> ResourceClaim:
        """Set these annotations (main resource)."""

    async def deallocate(self, claim: ResourceClaim) -> ResourceClaim:
        """Clear allocation, reservedFor and devices in one write."""

    async def create_claim(self, namespace: str, body: Mapping[str, Any]) -> ResourceClaim:
        """Create a claim from its JSON (metadata, perhaps with generateName, and spec)."""

    async def delete_claim(self, claim: ResourceClaim) -> None:
        """Delete the claim if it still is the same one (UID) at the same version; gone already is fine."""

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as stored now; None if it does not exist."""

    async def bind_pod(self, namespace: str, name: str, uid: str, version: str, node: str) -> None:
        """POST the Binding; another UID or resourceVersion (unless `version` is empty), a pod that is bound already or
        being deleted is a ConflictError.
        """

    async def patch_pod_status(
        self, pod: Pod, status: Mapping[str, Any], *, version: str = "", ahead: bool = False
    ) -> Pod:
        """Merge these fields into the pod's status; None takes one away. The preconditions are the pod's UID and this
        resourceVersion, unless it is empty. `ahead`: this is an early nomination, which `nominated_ahead` recognizes.
        """

    async def nominated_ahead(self, pod: Pod) -> str:
        """The node of the pod's early nomination as stored now, by any replica; empty when it has none, or another
        writer has nominated it.
        """

    async def evict_pod(self, pod: Pod, *, dry_run: bool = False) -> None:
        """POST an Eviction with the pod's UID as precondition. A budget that forbids it is a DisruptionBudgetError, a
        pod that is gone a NotFoundError, another pod of its name a ConflictError. `dry_run`: would it be allowed?
        """

    def record_event(
        self,
        regarding: Pod | ResourceClaim,
        kind: Literal["Normal", "Warning"],
        reason: str,
        note: str,
        *,
        action: str = "Scheduling",
    ) -> None:
        """Report an event. Returns at once and never raises; events may be dropped when there are too many."""

    async def requeue(self) -> None:
        """Annotate the requeue claim: kube-scheduler then retries all unschedulable pods."""


class Workers(Protocol):
    """Answers requests that are too large for the event loop."""

    @property
    def capacity(self) -> int:
        """How many questions are answered at the same time."""

    async def answer(self, question: WorkerRequest) -> TimedReply:
        """The answer, `Overrun` when a limit ends the work. Does not raise."""


class Clock(Protocol):
    """Time. `monotonic` must be the event loop's time, so that waits and deadlines agree."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""

    def wall(self) -> datetime:
        """The time of day, with time zone UTC."""


class Observer(Protocol):
    """Counts and times what `dra_extender.scheduling.outcomes` defines."""

    def count(self, outcome: LabelledCounter[L], value: L) -> None:
        """The outcome came about once more, with this value of its label."""

    def took(self, step: Step, seconds: float) -> None:
        """One more step of this kind is done and took that long."""

    def waited(self, seconds: float, *, gang: bool = False) -> None:
        """A pod that uses devices was bound this time after its creation; `gang`: the last pod of a gang after the
        creation of the first.
        """


class Silent(Observer):
    """An observer that does not count."""
