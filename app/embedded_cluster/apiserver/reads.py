"""get, list and watch: selectors, pages, and where in history a watch begins."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from embedded_cluster.apiserver.representation import Representation, negotiate
from embedded_cluster.apiserver.requests import APIResponse, ResourceRequest, Streaming, truthy
from embedded_cluster.apiserver.selectors import Selector, parse
from embedded_cluster.apiserver.statuses import (
    JSON,
    FieldError,
    StatusError,
    bad_request,
    expired,
    forbidden,
    invalid,
    method_not_allowed,
    no_such_resource,
    unsupported,
)
from embedded_cluster.apiserver.storage import Collection, Key, Storage, Stored, page
from embedded_cluster.apiserver.verbs import ObjectVerbs
from embedded_cluster.apiserver.watch import Watcher

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


def _read_options(query: Mapping[str, str], *, watching: bool) -> ListOptions:
    """Raises 400 for malformed numbers, 422 for options that exclude each other."""
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


_SHORTEST_WATCH: Final = 1800.0
_CONTINUE: Final = "meta.k8s.io/v1"
_LAST_NAME: Final = "\U0010ffff"


def representation_of(call: ResourceRequest) -> Representation:
    """The form the client asked for; raises 400 or 406."""
    return negotiate(call.incoming.accept, call.incoming.query.get("includeObject", ""), call.resource)


def selector_of(call: ResourceRequest) -> Selector:
    """The selectors of a request; a name in the path selects too. Raises 400."""
    query, resource = call.incoming.query, call.resource
    fields = query.get("fieldSelector", "")
    if call.info.name:
        fields = f"metadata.name={call.info.name}" + (f",{fields}" if fields else "")
    known = {"metadata.name", *resource.kind.strategy.selectable}
    if resource.kind.namespaced:
        known.add("metadata.namespace")
    return parse(query.get("labelSelector", ""), fields, frozenset(known))


def require_subresource(call: ResourceRequest) -> None:
    """Only the object itself and /status can be read, replaced and patched; raises 404 or 405."""
    asked, kind = call.info.subresource, call.resource.kind
    if asked in kind.subresources:
        raise method_not_allowed()
    if asked and not (asked == "status" and kind.status):
        raise no_such_resource()


def get(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """One object."""
    require_subresource(call)
    return shown(call, verbs.get(call.resource, call.info.namespace, call.info.name))


def shown(call: ResourceRequest, stored: Stored, code: int = 200) -> APIResponse:
    """An object in the form the client asked for."""
    return APIResponse(code, representation_of(call).one(stored))


def in_namespace(items: list[Stored], namespace: str) -> list[Stored]:
    """The part of a sorted list that lies in `namespace`; all of it when that is empty."""
    if not namespace:
        return items
    return items[page(items, (namespace, "")) : page(items, (namespace, _LAST_NAME))]


def list_(storage: Storage, call: ResourceRequest) -> APIResponse:
    """All selected objects, or one page of them. Pages show the state at the revision of the first."""
    options = _read_options(call.incoming.query, watching=False)
    representation, selector = representation_of(call), selector_of(call)
    if options.revision and options.revision > storage.revision:
        raise _too_new(options.revision, storage)
    revision, after = storage.revision, None
    if options.token:
        revision, after = _continued(options.token)
    elif options.revision and options.match == EXACT:
        revision = options.revision
    items = in_namespace(_state(storage.collection(call.resource.kind), revision, storage), call.info.namespace)
    chosen = selector.choose(items[page(items, after) :] if after is not None else items)
    metadata: JSON = {"resourceVersion": str(revision)}
    if options.limit and len(chosen) > options.limit:
        metadata["continue"] = _token(revision, chosen[options.limit - 1].key)
        if selector.matches is None:
            metadata["remainingItemCount"] = len(chosen) - options.limit
        chosen = chosen[: options.limit]
    return APIResponse(200, representation.many(chosen, metadata))


def _state(collection: Collection, revision: int, storage: Storage) -> list[Stored]:
    if revision >= storage.revision:
        return collection.sorted()
    try:
        return collection.at(revision)
    except StatusError:
        raise expired("The provided continue parameter is too old to display a consistent list result.") from None


def _too_new(revision: int, storage: Storage) -> StatusError:
    message = f"Timeout: Too large resource version: {revision}, current: {storage.revision}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return StatusError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


def _continued(token: str) -> tuple[int, Key]:
    try:
        place = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(place["rv"]), (place["start"][0], place["start"][1])
    except (ValueError, KeyError, TypeError, IndexError):
        raise bad_request("continue key is not valid") from None


def _token(revision: int, last: Key) -> str:
    place = orjson.dumps({"v": _CONTINUE, "rv": revision, "start": list(last)})
    return base64.urlsafe_b64encode(place).rstrip(b"=").decode()


def watch(storage: Storage, call: ResourceRequest) -> Streaming:
    """A watch from the revision the request names; without one, it begins with what exists."""
    options = _read_options(call.incoming.query, watching=True)
    selector, collection = selector_of(call), storage.collection(call.resource.kind)
    watcher = Watcher(collection, call.resource, call.info.namespace, selector, representation_of(call))
    if options.initial_events or not options.revision:
        items = [] if options.initial_events is False else collection.sorted()
        end_at = storage.revision if options.initial_events and options.bookmarks else None
        chosen = selector.choose(in_namespace(items, call.info.namespace))
        watcher.start(storage.revision, initial=chosen, end_at=end_at)
    else:
        watcher.start(options.revision)
    return Streaming(watcher, call.resource, _lifetime(options), options.bookmarks)


def _lifetime(options: ListOptions) -> float:
    return options.timeout or _SHORTEST_WATCH * (1 + random.random())
