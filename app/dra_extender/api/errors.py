"""What can go wrong between us and the API server, as exceptions that say what is known about the outcome.

Two questions decide what a caller does next: was the request carried out, and may it be sent again?
`OutcomeUnknownError` is the only one for which the first answer is "perhaps"; after every other one the server is
known to have done nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

CONFLICT, FORBIDDEN, GONE, NOT_FOUND, TOO_MANY_REQUESTS, INTERNAL_ERROR = 409, 403, 410, 404, 429, 500


class FailureStatus(msgspec.Struct, frozen=True):
    """metav1.Status, as far as errors need it."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None
    detail: str = ""
    """The message of a service behind the API server."""


class ApiError(Exception):
    """The API server answered, and it did not do what was asked.

    `status` is the HTTP status, `reason` the machine-readable reason of the Status object ("AlreadyExists",
    "Invalid", ...), `message` its text for people.
    """

    def __init__(self, status: int, reason: str = "", message: str = "") -> None:
        super().__init__(message or reason or f"HTTP {status}")
        self.status = status
        self.reason = reason
        self.message = message or reason or f"HTTP {status}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.status}, {self.reason!r}, {self.message!r})"


class ConflictError(ApiError):
    """409: the object is not at the version, has not the UID, or is not in the state that the request was made for."""


class NotFoundError(ApiError):
    """404: the API server names the object that does not exist."""


class NotServedError(ApiError):
    """404 that names no object: a resource that is not served now, a missing namespace, a wrong path, or the answer of
    a proxy. The request was not carried out, and nothing is known about the object.
    """


class GoneError(ApiError):
    """410: the resourceVersion or continue token of a list or watch is too old; list again."""


class SetBackError(ApiError):
    """The API server shows an older state than before: an administrator restored a backup, or an older copy answers."""

    def __init__(self, shown: str) -> None:
        super().__init__(0, "SetBack", shown)


class RejectedError(ApiError):
    """400, 401, 403, 405, 413, 415, 422: the request itself is refused; the same request will be refused again.

    A redirect (3xx) is refused too: the API server sends none.
    """


class ThrottledError(ApiError):
    """429: the request was refused before anything was done."""

    retry_after = 1.0
    """Seconds to wait before the next attempt."""


class DisruptionBudgetError(ThrottledError):
    """429 of an eviction: a PodDisruptionBudget forbids it now."""


class OutcomeUnknownError(ApiError):
    """Time-out, lost connection or 5xx: the server may or may not have done it. Read before deciding what to undo.

    A 503 that asks to come back later (Retry-After) is one of them: proxies before the API server send it also when
    the server was lost after it had the request. The API server itself refuses with 429.

    `status` is 0 without an answer.
    """


class TooLargeError(ApiError):
    """The answer is larger than the caller has room for; it was not read to its end. `status`: of the answer."""


class UndecodableError(OutcomeUnknownError):
    """A success whose object cannot be decoded: the request was carried out, and what is stored now is unknown. The
    same request brings the same answer until the object changes. `status` is 0.
    """


class UnreachableError(ApiError):
    """No connection came about, so the request never left: nothing was done. `status` is 0."""


def is_passing(error: ApiError) -> bool:
    """True if the server did not decide, and may answer the same request a moment later. An object that cannot be
    decoded stays so until it changes, a request that is refused until it is allowed.
    """
    if isinstance(error, UndecodableError):
        return False
    return isinstance(error, OutcomeUnknownError | ThrottledError | UnreachableError | NotServedError)


def is_outage(error: ApiError) -> bool:
    """True if the server may answer requests about other objects in the same way. False for 500: the API server sends
    it also when one object is too large for etcd with the change, and it does so each time.
    """
    return is_passing(error) and error.status != INTERNAL_ERROR


def error_from_status(
    status: int,
    reason: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    *,
    retry_after: float | None = None,
) -> ApiError:
    """The exception for an HTTP answer without success. `retry_after`: seconds of the Retry-After header, if sent."""
    if status == TOO_MANY_REQUESTS:
        refusal = DisruptionBudgetError if _names_budget(details) else ThrottledError
        refused = refusal(status, reason, message)
        refused.retry_after = refusal.retry_after if retry_after is None else retry_after
        return refused
    if status >= 500:
        return OutcomeUnknownError(status, reason, message)
    if status == NOT_FOUND and not _names_object(details):
        return NotServedError(status, reason, message)
    kind = {CONFLICT: ConflictError, NOT_FOUND: NotFoundError, GONE: GoneError}.get(status, RejectedError)
    return kind(status, reason, message)


def _names_object(details: Mapping[str, Any] | None) -> bool:
    """True when the details of a 404 name an object that is no namespace: creating in a missing namespace is a 404."""
    kind, name = (details or {}).get("kind"), (details or {}).get("name")
    return bool(kind and name) and kind != "namespaces"


def _names_budget(details: Mapping[str, Any] | None) -> bool:
    """True when the causes of a refusal name a PodDisruptionBudget (`policy/v1`, DisruptionBudgetCause)."""
    causes = (details or {}).get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "DisruptionBudget" for cause in causes
    )
