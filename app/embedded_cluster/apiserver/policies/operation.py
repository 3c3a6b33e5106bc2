"""One write that policies may have something against, and how their expressions see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from embedded_cluster.apiserver.access import groups_of
from embedded_cluster.apiserver.options import Options
from embedded_cluster.apiserver.registry import Resource
from embedded_cluster.apiserver.statuses import JSON

Verb = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True)
class Operation:
    """`new` and `old` are stored objects, of which one may be missing, or `new` is what is posted below an object: then
    `posted` is the API version of that."""

    verb: Verb
    resource: Resource
    namespace: str
    name: str
    new: JSON | None
    old: JSON | None
    options: Options
    subresource: str = ""
    posted: str = ""

    @property
    def objects(self) -> tuple[JSON, ...]:
        """What there is of the two."""
        return tuple(each for each in (self.new, self.old) if each is not None)

    def seen_as(self, obj: JSON | None, resource: Resource) -> JSON | None:
        """One of the objects in the version of `resource`."""
        if obj is None or self.posted:
            return obj
        if resource.conversion is not None:
            return resource.conversion.from_stored(obj)
        return {**obj, "apiVersion": resource.api_version}

    def request(self, matched: Resource) -> JSON:
        """The AdmissionRequest, for a policy that matches it as `matched`."""
        kind, resource = self._identity(matched)
        own_kind, own_resource = self._identity(self.resource)
        caller, namespaced = self.options.caller, self.resource.kind.namespaced
        request: JSON = {
            "kind": kind,
            "resource": resource,
            "requestKind": own_kind,
            "requestResource": own_resource,
            "name": self.name,
            "namespace": self.namespace if namespaced else "",
            "operation": self.verb,
            "userInfo": {"username": caller.user, "groups": groups_of(caller.user)},
            "dryRun": self.options.dry_run,
            "options": {"kind": f"{self.verb.title()}Options", "apiVersion": "meta.k8s.io/v1"},
        }
        if self.subresource:
            request |= {"subResource": self.subresource, "requestSubResource": self.subresource}
        return {name: value for name, value in request.items() if value != ""}

    def _identity(self, resource: Resource) -> tuple[JSON, JSON]:
        group, version, kind = resource.kind.group, resource.version, resource.kind.kind
        named = {"group": group, "version": version, "resource": resource.kind.plural}
        if self.posted and self.new is not None:
            group, _, version = self.posted.rpartition("/")
            kind = str(self.new.get("kind"))
        return {"group": group, "version": version, "kind": kind}, named
