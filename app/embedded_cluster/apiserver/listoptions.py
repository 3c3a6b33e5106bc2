"""Options of list and watch: the query of a request, checked as metav1.ListOptions are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from embedded_cluster.apiserver.statuses import FieldError, StatusError, bad_request, forbidden, invalid, unsupported

EXACT = "Exact"
NOT_OLDER_THAN = "NotOlderThan"


@dataclass(frozen=True, slots=True)
class ListOptions:
    """`revision` is None when the request names none; `initial_events` is None when it does not say; seconds for
    `timeout`."""

    limit: int = 0
    token: str = ""
    revision: int | None = None
    match: str = ""
    initial_events: bool | None = None
    bookmarks: bool = False
    timeout: float = 0.0


def truthy(value: str | None) -> bool:
    """A boolean query parameter: present and not false."""
    return value is not None and value.lower() not in ("false", "0")


def read(query: Mapping[str, str], *, watching: bool) -> ListOptions:
    """Raises 400 for numbers that are none, 422 for options that do not go together."""
    said, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    initial = truthy(query["sendInitialEvents"]) if "sendInitialEvents" in query else None
    problems = _initial_problems(initial, match) if watching else _match_problems(said, match, query)
    if not watching and initial is not None:
        problems.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if problems:
        raise invalid("meta.k8s.io", "ListOptions", "", problems)
    if query.get("continue") and said not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return ListOptions(
        limit=_number(query.get("limit", "")),
        token=query.get("continue", ""),
        revision=_revision(said, watching=watching),
        match=match,
        initial_events=initial,
        bookmarks=truthy(query.get("allowWatchBookmarks")),
        timeout=float(_number(query.get("timeoutSeconds", ""))),
    )


def _match_problems(revision: str, match: str, query: Mapping[str, str]) -> list[FieldError]:
    if not match:
        return []
    problems: list[FieldError] = []
    if not revision:
        detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        problems.append(forbidden("resourceVersionMatch", detail))
    if query.get("continue"):
        detail = "resourceVersionMatch is forbidden when continue is provided"
        problems.append(forbidden("resourceVersionMatch", detail))
    if match not in (EXACT, NOT_OLDER_THAN):
        problems.append(unsupported("resourceVersionMatch", match, (EXACT, NOT_OLDER_THAN, "")))
    elif match == EXACT and revision == "0":
        detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        problems.append(forbidden("resourceVersionMatch", detail))
    return problems


def _initial_problems(initial: bool | None, match: str) -> list[FieldError]:
    problems: list[FieldError] = []
    if initial is not None and match != NOT_OLDER_THAN:
        detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        problems.append(forbidden("resourceVersionMatch", detail))
    if initial is None and match:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        problems.append(forbidden("resourceVersionMatch", detail))
    if match not in ("", NOT_OLDER_THAN) and initial is not None:
        problems.append(unsupported("resourceVersionMatch", match, (NOT_OLDER_THAN,)))
    return problems


def _number(text: str) -> int:
    try:
        return int(text) if text else 0
    except ValueError:
        raise bad_request(f'parsing "{text}": invalid syntax') from None


def _revision(text: str, *, watching: bool) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    if watching:
        raise StatusError(500, "", f'resourceVersion: Invalid value: "{text}": invalid syntax')
    raise bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}": invalid syntax')
