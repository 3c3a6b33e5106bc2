"""From a request to its answer: everything the server serves, except the bytes on the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dra_extender.unexpected import unexpected
from embedded_cluster.apiserver import containers, discovery, reads, subresources, writes
from embedded_cluster.apiserver.access import Access, Attributes, AuditEvent, AuditLog
from embedded_cluster.apiserver.discovery import Discovery
from embedded_cluster.apiserver.faults import ConnectionDropped, Faults
from embedded_cluster.apiserver.garbage import Garbage
from embedded_cluster.apiserver.openapi import OpenAPI
from embedded_cluster.apiserver.requests import (
    APIResponse,
    Incoming,
    RequestInfo,
    ResourceRequest,
    Streaming,
    document,
    failure,
    options_of,
    resource_request,
)
from embedded_cluster.apiserver.reviews import AccessReviews
from embedded_cluster.apiserver.statuses import StatusError, bad_request, method_not_allowed, no_such_resource
from embedded_cluster.apiserver.verbs import ObjectVerbs

_ANSWERS: Final[dict[str, Callable[[ObjectVerbs, ResourceRequest], APIResponse]]] = {
    "get": reads.get,
    "create": writes.create,
    "update": writes.update,
    "patch": writes.patch,
    "deletecollection": writes.delete_collection,
}
_HEALTH: Final = ("/healthz", "/livez", "/readyz")


class Handling:
    """Answers requests; holds no state of its own."""

    def __init__(
        self,
        verbs: ObjectVerbs,
        garbage: Garbage,
        access: Access,
        reviews: AccessReviews,
        faults: Faults,
        audit: AuditLog,
    ) -> None:
        self._registry = verbs.registry
        self._verbs = verbs
        self._garbage = garbage
        self._access = access
        self._reviews = reviews
        self._faults = faults
        self._audit = audit
        self._discovery = Discovery(verbs.registry)
        self._openapi = OpenAPI(verbs.registry)

    async def handle(self, incoming: Incoming) -> APIResponse | Streaming:
        """The answer to any request; raises ConnectionDropped when there is to be none."""
        info = resource_request(incoming.method, incoming.path, incoming.query)
        if info is None:
            try:
                return self._document(incoming)
            except StatusError as error:
                return failure(error)
        user = self._reviews.user(incoming.headers.get("Authorization", ""))
        code = 0
        try:
            answer = await self._through_faults(info, incoming, user)
            code = answer.code if isinstance(answer, APIResponse) else 200
            return answer
        finally:
            where = info.verb, info.target, info.namespace, info.name
            self._audit.note(AuditEvent(*where, user, incoming.user_agent, code))

    async def _through_faults(self, info: RequestInfo, incoming: Incoming, user: str) -> APIResponse | Streaming:
        before, after = self._faults.judge(info, incoming.user_agent)
        warnings: list[str] = []
        try:
            await before.undergo()
            answer = self._resource(info, incoming, user, warnings)
            await after.undergo()
        except StatusError as error:
            answer = failure(error)
        except ConnectionDropped:
            raise
        except Exception as error:
            unexpected("apiserver", error, verb=info.verb, path=incoming.path)
            answer = failure(StatusError(500, "InternalError", f"Internal error occurred: {error!r}", {}))
        return replace(answer, warnings=tuple(warnings)) if warnings and isinstance(answer, APIResponse) else answer

    # documents about the server

    def _document(self, incoming: Incoming) -> APIResponse:
        path = "/" + incoming.path.strip("/")
        if path in _HEALTH or path.startswith(("/healthz/", "/livez/", "/readyz/")):
            return APIResponse(200, b"ok", content_type="text/plain; charset=utf-8")
        if path == "/version":
            return document(discovery.VERSION)
        if path.startswith("/openapi/"):
            return self._openapi.answer(path)
        found = None
        parts = path.split("/")[1:]
        if path == "/api":
            found = self._discovery.versions(incoming.headers.get("Host", ""))
        elif path == "/apis":
            found = self._discovery.groups()
        elif parts[0] == "api" and len(parts) == 2:
            found = self._discovery.resources("", parts[1])
        elif parts[0] == "apis" and len(parts) == 2:
            found = self._discovery.group(parts[1])
        elif parts[0] == "apis" and len(parts) == 3:
            found = self._discovery.resources(parts[1], parts[2])
        if found is None:
            return _unknown_path()
        return document(found)

    # resources

    def _resource(
        self, info: RequestInfo, incoming: Incoming, user: str, warnings: list[str]
    ) -> APIResponse | Streaming:
        attributes = Attributes(user, info.verb, info.group, info.resource, info.subresource, info.namespace, info.name)
        reviewed = self._reviews.answer(info, incoming, user)
        if reviewed is not None:
            return reviewed
        resource = self._registry.find(info.group, info.version, info.resource)
        if resource is None:
            if info.group not in self._registry.groups():
                return _unknown_path()
            raise no_such_resource()
        warnings.extend(resource.warnings)
        self._access.require(attributes)
        if resource.kind.namespaced and not info.namespace and info.verb not in ("list", "watch"):
            raise (
                bad_request("an empty namespace may not be set during creation")
                if info.verb == "create"
                else no_such_resource()
            )
        options = options_of(incoming, self._access.caller(user), warnings)
        return self._verb(ResourceRequest(info, resource, incoming, options))

    def _verb(self, call: ResourceRequest) -> APIResponse | Streaming:
        verb, verbs = call.info.verb, self._verbs
        if containers.is_meant(call):
            return containers.answer(verbs, call)
        if verb not in call.resource.kind.verbs:
            raise method_not_allowed()
        if (
            call.info.subresource == "scale"
            and "scale" in call.resource.kind.subresources
            and verb in subresources.SCALE
        ):
            return subresources.SCALE[verb](verbs, call)
        if verb in ("list", "watch"):
            return (reads.list_ if verb == "list" else reads.watch)(verbs.storage, call)
        if verb == "delete":
            return writes.delete(verbs, self._garbage, call)
        if verb not in _ANSWERS:
            raise method_not_allowed()
        return _ANSWERS[verb](verbs, call)


def _unknown_path() -> APIResponse:
    return APIResponse(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")
