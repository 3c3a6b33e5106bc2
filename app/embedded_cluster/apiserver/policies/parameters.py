"""The parameters of a policy: the objects it is evaluated with, once with each.

Rules: Kubernetes 1.36, apiserver/pkg/admission/plugin/policy/generic/policy_dispatcher.go.
"""

from __future__ import annotations

from embedded_cluster.apiserver.labelselectors import selects
from embedded_cluster.apiserver.registry import Registry, Resource
from embedded_cluster.apiserver.statuses import JSON
from embedded_cluster.apiserver.storage import Storage, Stored


class Misconfigured(Exception):
    """There is no telling which parameters are meant; its text is what the API server says."""


class Parameters:
    """Finds the parameters among the stored objects."""

    def __init__(self, registry: Registry, storage: Storage) -> None:
        self._registry = registry
        self._storage = storage

    def kind(self, policy: JSON) -> Resource | None:
        """The resource of the policy's paramKind; None when it has none. Raises Misconfigured."""
        kind = policy["spec"].get("paramKind")
        if kind is None:
            return None
        resource = self._registry.of_object(kind["apiVersion"], kind["kind"])
        if resource is None:
            group, _, version = kind["apiVersion"].rpartition("/")
            named = f"{group}/{version}, Kind={kind['kind']}"
            raise Misconfigured(f"failed to find resource referenced by paramKind: '{named}'")
        return resource

    def found(self, resource: Resource | None, binding: JSON, namespace: str) -> list[JSON | None]:
        """What to evaluate with: nothing, the objects of the reference, or a single None. Raises Misconfigured."""
        reference = binding["spec"].get("paramRef")
        if resource is None or reference is None:
            return [None]
        space = self._space(resource, reference, namespace)
        chosen = [stored for stored in self._of(resource, space) if _meant(stored, reference)]
        if not chosen and reference.get("parameterNotFoundAction") == "Deny":
            raise Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [_form(stored.object, resource) for stored in chosen]

    def _space(self, resource: Resource, reference: JSON, namespace: str) -> str:
        said = str(reference.get("namespace") or "")
        if not resource.kind.namespaced:
            if said:
                raise Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
            return ""
        if not said and not namespace:
            raise Misconfigured(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            )
        return said or namespace

    def _of(self, resource: Resource, namespace: str) -> list[Stored]:
        return [each for each in self._storage.collection(resource.kind).sorted() if each.key[0] == namespace]


def _meant(stored: Stored, reference: JSON) -> bool:
    if reference.get("name"):
        return bool(stored.key[1] == reference["name"])
    return selects(reference.get("selector"), stored.labels)


def _form(obj: JSON, resource: Resource) -> JSON:
    if resource.conversion is not None:
        return resource.conversion.from_stored(obj)
    return {**obj, "apiVersion": resource.api_version}
