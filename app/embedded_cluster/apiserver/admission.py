"""How a request's object becomes a stored one: canonical form, unknown fields, stored version, namespace, generated
name."""

from __future__ import annotations

import random
from typing import Final

from embedded_cluster.apiserver.options import WriteOptions
from embedded_cluster.apiserver.registry import Kind, ServedResource
from embedded_cluster.apiserver.schema import schema
from embedded_cluster.apiserver.statuses import JSON, bad_request, denied, not_found
from embedded_cluster.apiserver.strategy import Lookup

GENERATED_TRIES: Final = 8
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX: Final = 58


def admitted(resource: ServedResource, body: JSON, options: WriteOptions) -> JSON:
    """A new object in stored form from what a client sent for `resource`; raises 400."""
    kind = resource.kind.kind
    sent = body.get("apiVersion") or resource.api_version, body.get("kind") or kind
    if sent != (resource.api_version, kind):
        version = sent[0].rpartition("/")[2]
        why = f'no kind "{sent[1]}" is registered for version "{sent[0]}" here'
        raise bad_request(f'{sent[1]} in version "{version}" cannot be handled as a {kind}: {why}')
    obj, unknown = schema(resource.model).admit(body)
    if unknown:
        _report_unknown(resource, unknown, options)
    obj.setdefault("metadata", {})
    if resource.conversion is not None:
        obj = resource.conversion.to_stored(obj)
    obj["apiVersion"], obj["kind"] = resource.stored_api_version, kind
    if unvalidated := ", ".join(resource.kind.strategy.unvalidated(obj)):
        options.warnings.append(f"the embedded cluster stores {unvalidated} without validation")
    return obj


def _report_unknown(resource: ServedResource, unknown: list[str], options: WriteOptions) -> None:
    texts = [f'unknown field "{path}"' for path in unknown]
    if options.validation == "Strict":
        kind, version, listed = resource.kind.kind, resource.version, ", ".join(texts)
        why = f"strict decoding error: {listed}"
        raise bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')
    if options.validation == "Warn":
        options.warnings.extend(texts)


def place(kind: Kind, metadata: JSON, namespace: str) -> None:
    """Make the object's namespace that of the path; raises 400 when it says another."""
    if not kind.namespaced:
        metadata.pop("namespace", None)
        return
    if (metadata.get("namespace") or namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    metadata["namespace"] = namespace


def generate_name(metadata: JSON, chance: random.Random, *, again: bool) -> None:
    """Give an object with generateName a name, or another one when the first is taken."""
    prefix = metadata.get("generateName")
    if prefix and (again or not metadata.get("name")):
        metadata["name"] = prefix[:_LONGEST_PREFIX] + "".join(chance.choices(_SUFFIX, k=5))


def require_namespace(kind: Kind, namespace: str, name: str, lookup: Lookup) -> None:
    """Raises 404 when the namespace does not exist, 403 when it is going away."""
    if not kind.namespaced:
        return
    found = lookup("namespaces", "", namespace)
    if found is None:
        raise not_found("", "namespaces", namespace)
    if not found["metadata"].get("deletionTimestamp"):
        return
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    raise denied(kind.group, kind.plural, name, why, [cause])
