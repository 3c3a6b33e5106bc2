"""get, list and watch: selectors, pages, tables, and where in history a watch begins."""

from __future__ import annotations

import base64
import random
import time
from typing import Final

import orjson

from app.embedded.apiserver import tables
from app.embedded.apiserver.registry import Resource
from app.embedded.apiserver.requests import Answer, Call, Streaming
from app.embedded.apiserver.routing import truthy
from app.embedded.apiserver.selectors import Selector, parse
from app.embedded.apiserver.statuses import (
    JSON,
    StatusError,
    bad_request,
    expired,
    method_not_allowed,
    no_such_resource,
)
from app.embedded.apiserver.storage import Key, Storage, Stored, page
from app.embedded.apiserver.verbs import Verbs
from app.embedded.apiserver.watch import Watcher

_SHORTEST_WATCH: Final = 1800.0
_CONTINUE: Final = "meta.k8s.io/v1"


def wants_table(accept: str) -> bool:
    """Whether the client prefers a table."""
    return "as=Table" in accept.partition(",")[0].replace(" ", "")


def encoded(resource: Resource, stored: Stored) -> bytes:
    """An object as the answer to get."""
    return resource.type_meta + stored.encoded(resource)


def selector_of(call: Call) -> Selector:
    """The selectors of a request; a name in the path selects too."""
    query, resource = call.incoming.query, call.resource
    fields = query.get("fieldSelector", "")
    if call.info.name:
        fields = f"metadata.name={call.info.name}" + (f",{fields}" if fields else "")
    known = {"metadata.name", *resource.kind.strategy.field_names}
    if resource.kind.namespaced:
        known.add("metadata.namespace")
    return parse(query.get("labelSelector", ""), fields, frozenset(known))


def require_subresource(call: Call) -> None:
    """Only the object itself and /status can be read, replaced and patched; raises 404 or 405."""
    asked, kind = call.info.subresource, call.resource.kind
    if asked in kind.subresources:
        raise method_not_allowed()
    if asked and not (asked == "status" and kind.status):
        raise no_such_resource()


def get(verbs: Verbs, call: Call) -> Answer:
    """One object."""
    require_subresource(call)
    stored = verbs.get(call.resource, call.info.namespace, call.info.name)
    return shown(call, stored)


def shown(call: Call, stored: Stored, code: int = 200) -> Answer:
    """An object in the form the client asked for."""
    if wants_table(call.incoming.accept):
        include = call.incoming.query.get("includeObject", "Metadata")
        metadata = {"resourceVersion": str(stored.revision)}
        body = tables.table(call.resource, [stored], metadata, time.time(), include)
    else:
        body = encoded(call.resource, stored)
    return Answer(code, body)


def _revision(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        raise bad_request(f'resourceVersion: Invalid value: "{text}": invalid resource version')
    return int(text)


def _too_new(revision: int, storage: Storage) -> StatusError:
    message = f"Timeout: Too large resource version: {revision}, current: {storage.revision}"
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return StatusError(504, "Timeout", message, details)


def _continued(token: str) -> tuple[int, Key]:
    try:
        place = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(place["rv"]), (place["start"][0], place["start"][1])
    except (ValueError, KeyError, TypeError, IndexError):
        raise bad_request("continue key is not valid") from None


def _token(revision: int, last: Key) -> str:
    place = orjson.dumps({"v": _CONTINUE, "rv": revision, "start": list(last)})
    return base64.urlsafe_b64encode(place).rstrip(b"=").decode()


def list_(storage: Storage, call: Call) -> Answer:
    """All selected objects, or one page of them. Pages show the state at the revision of the first."""
    query, resource = call.incoming.query, call.resource
    collection = storage.collection(resource.kind)
    limit, token = int(query.get("limit") or 0), query.get("continue", "")
    asked, match = _revision(query.get("resourceVersion", "")), query.get("resourceVersionMatch", "")
    after: Key | None = None
    revision = storage.revision
    if asked and asked > storage.revision:
        raise _too_new(asked, storage)
    if token:
        revision, after = _continued(token)
    elif asked and match == "Exact":
        revision = asked
    try:
        items = collection.at(revision) if revision < storage.revision else collection.sorted()
    except StatusError:
        raise expired("The provided continue parameter is too old to display a consistent list result.") from None
    selector = selector_of(call)
    if call.info.namespace:
        low, high = page(items, (call.info.namespace, "")), page(items, (call.info.namespace, "\U0010ffff"))
        items = items[low:high]
    chosen = selector.choose(items[page(items, after) :] if after is not None else items)
    metadata: JSON = {"resourceVersion": str(revision)}
    if limit and len(chosen) > limit:
        metadata["continue"] = _token(revision, chosen[limit - 1].key)
        if selector.matches is None:
            metadata["remainingItemCount"] = len(chosen) - limit
        chosen = chosen[:limit]
    return Answer(200, _list_body(call, chosen, metadata))


def _list_body(call: Call, items: list[Stored], metadata: JSON) -> bytes:
    resource = call.resource
    if wants_table(call.incoming.accept):
        return tables.table(
            resource, items, metadata, time.time(), call.incoming.query.get("includeObject", "Metadata")
        )
    head = b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[' % (
        resource.kind.kind.encode(),
        resource.api_version.encode(),
        orjson.dumps(metadata),
    )
    if resource.conversion is None:
        bodies = [item.body for item in items]
    else:
        bodies = [item.encoded(resource) for item in items]
    if not bodies:
        return head + b"]}"
    return head + b"{" + b",{".join(bodies) + b"]}"


def watch(storage: Storage, call: Call) -> Streaming:
    """A watch from the revision the request names; without one, it first tells what exists."""
    query, resource = call.incoming.query, call.resource
    asked = _revision(query.get("resourceVersion", ""))
    bookmarks = truthy(query.get("allowWatchBookmarks"))
    initial_wanted = truthy(query.get("sendInitialEvents"))
    if initial_wanted and query.get("resourceVersionMatch") != "NotOlderThan":
        raise bad_request(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
    selector = selector_of(call)
    encoder = None
    if wants_table(call.incoming.accept):
        encoder = tables.TableEncoder(resource, time.time(), query.get("includeObject", "Metadata"))
    collection = storage.collection(resource.kind)
    watcher = Watcher(collection, resource, call.info.namespace, selector, encoder)
    if initial_wanted or not asked:
        tell = initial_wanted or query.get("sendInitialEvents") is None
        items = selector.choose(collection.sorted()) if tell else []
        if call.info.namespace:
            items = [item for item in items if item.key[0] == call.info.namespace]
        end_at = storage.revision if initial_wanted and bookmarks else None
        watcher.start(storage.revision, initial=items, end_at=end_at)
    else:
        watcher.start(asked)
    timeout = float(query.get("timeoutSeconds") or 0) or _SHORTEST_WATCH * (1 + random.random())
    return Streaming(watcher, resource, timeout, bookmarks)
