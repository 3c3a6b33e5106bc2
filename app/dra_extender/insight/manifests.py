"""Reads manifests that are not applied: pods with the claims they would have, hypothetical objects.

Promises: sets the defaults of the API server for all fields that decisions read, and creates claims from templates. It
does not validate objects: the API server does that. A file may have several YAML documents, and lists of objects.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import yaml
from msgspec.structs import replace

from dra_extender.api.core import Pod, PodResourceClaimStatus
from dra_extender.api.decoding import DecodeError, convert
from dra_extender.api.meta import ObjectMeta, OwnerReference
from dra_extender.api.resource import (
    GROUP,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
)
from dra_extender.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource, identify
from dra_extender.limits import CHARACTERS_OF_MANIFESTS

EXACT: Final = "ExactCount"
_VERSION: Final = f"{GROUP}/v1"
TEMPLATE: Final = "ResourceClaimTemplate"
_KINDS: Final[Mapping[str, Resource[Any]]] = {
    "ResourceSlice": RESOURCE_SLICES,
    "DeviceClass": DEVICE_CLASSES,
    "ResourceClaim": RESOURCE_CLAIMS,
    TEMPLATE: RESOURCE_CLAIMS,
}
CLAIMS: Final = ("ResourceClaim", TEMPLATE)
ADDED: Final = ("ResourceSlice", "DeviceClass", "ResourceClaim")
T = TypeVar("T", ExactDeviceRequest, DeviceSubRequest)

HypotheticalObject = ResourceSlice | DeviceClass | ResourceClaim
"""An object that a request adds to the cluster. It replaces an existing object of the same name."""


class Draft(NamedTuple):
    """A pod of a manifest and the claims that it would have; or a pod of the cluster and no claims."""

    pod: Pod
    claims: tuple[ResourceClaim, ...]


def draft(
    pod: Pod,
    claims: Mapping[str, ResourceClaim],
    templates: Mapping[str, ResourceClaimSpec],
    namespace: str = "default",
) -> Draft:
    """The pod with its claims. `claims` and `templates`: those of the manifest, by name. `namespace`: the default."""
    namespace = pod.metadata.namespace or namespace
    uid = pod.metadata.uid or f"draft-{namespace}/{pod.metadata.name}"
    meta = replace(pod.metadata, namespace=namespace, uid=uid)
    created: list[PodResourceClaimStatus] = []
    found: list[ResourceClaim] = []
    for entry in pod.spec.resource_claims:
        name, template = entry.resource_claim_name, entry.resource_claim_template_name
        if name and name in claims:
            found.append(hypothetical_claim(claims[name], namespace))
        elif template and template in templates:
            found.append(claim_from_template(meta, entry.name, templates[template]))
            created.append(PodResourceClaimStatus(entry.name, found[-1].metadata.name))
    status = replace(pod.status, resource_claim_statuses=tuple(created))
    return Draft(replace(pod, metadata=meta, status=status), tuple(found))


def claim_from_template(pod: ObjectMeta, entry: str, spec: ResourceClaimSpec) -> ResourceClaim:
    """The claim that the resource claim controller would create for this entry of the pod."""
    name = f"{pod.name}-{entry}"
    owner = OwnerReference(kind="Pod", name=pod.name, uid=pod.uid, api_version="v1", controller=True)
    meta = ObjectMeta(
        name=name, namespace=pod.namespace, uid=f"draft-{pod.namespace}/{name}", owner_references=(owner,)
    )
    return ResourceClaim(meta, defaulted(spec))


def hypothetical_claim(claim: ResourceClaim, namespace: str) -> ResourceClaim:
    """The claim right after its creation: it has no allocation, and a UID of its own."""
    meta = claim.metadata
    namespace = meta.namespace or namespace
    uid = f"hypothetical {namespace}/{meta.name}"
    return ResourceClaim(
        ObjectMeta(name=meta.name, namespace=namespace, uid=uid, labels=meta.labels), defaulted(claim.spec)
    )


def defaulted(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """The spec with the defaults of the API server (pkg/apis/resource/v1/defaults.go)."""

    def changed(request: DeviceRequest) -> DeviceRequest:
        exactly = _defaulted(request.exactly) if request.exactly is not None else None
        return replace(request, exactly=exactly, first_available=tuple(map(_defaulted, request.first_available)))

    return replace(spec, devices=replace(spec.devices, requests=tuple(map(changed, spec.devices.requests))))


def _defaulted(source: T) -> T:
    mode = source.allocation_mode or EXACT
    return replace(source, allocation_mode=mode, count=source.count or (1 if mode == EXACT else 0))


class Manifests(msgspec.Struct, frozen=True):
    """The pods of a file. The claims and the specs of templates in the same file, by name."""

    pods: tuple[Pod, ...]
    claims: Mapping[str, ResourceClaim]
    templates: Mapping[str, ResourceClaimSpec]


class _Loader(yaml.SafeLoader):
    """Refuses what is larger than `CHARACTERS_OF_MANIFESTS` when each alias is replaced by its value."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        if node is None:
            return None
        if is_alias and node not in self._sizes:
            raise yaml.YAMLError("a value contains itself")
        if not is_alias:
            parts = node.value if isinstance(node, yaml.CollectionNode) else ()
            parts = chain.from_iterable(parts) if isinstance(node, yaml.MappingNode) else parts
            self._sizes[node] = 16 + (sum(self._sizes[part] for part in parts) if parts else len(node.value))
        if self._sizes[node] > CHARACTERS_OF_MANIFESTS:
            raise yaml.YAMLError(
                f"the objects have more than {CHARACTERS_OF_MANIFESTS:,} characters, which is the limit"
            )
        return node


def objects(file: str) -> list[dict[str, Any]]:
    """The objects of a file, or of standard input for "-"; also those of lists. Raises OSError and ValueError."""
    with nullcontext(sys.stdin) if file == "-" else Path(file).open() as source:
        text = source.read(CHARACTERS_OF_MANIFESTS + 1)
    if len(text) > CHARACTERS_OF_MANIFESTS:
        raise ValueError(f"{file} has more than {CHARACTERS_OF_MANIFESTS:,} characters, which is the limit")
    try:
        documents = [found for found in yaml.load_all(text, _Loader) if isinstance(found, dict)]
        msgspec.json.encode(documents)  # YAML also allows keys that are not text
    except RecursionError:
        raise ValueError(f"{file}: the objects are nested too deeply") from None
    except yaml.YAMLError as problem:
        raise ValueError(f"{file}: {' '.join(str(problem).split())}") from None
    except (AttributeError, IndexError, TypeError):  # PyYAML raises the first two
        raise ValueError(f"{file}: a key that is not text, or a value that its tag does not allow: quote it") from None
    lists = (found["items"] if isinstance(found.get("items"), list) else [found] for found in documents)
    return [item for items in lists for item in items if isinstance(item, dict)]


def manifests(documents: Iterable[dict[str, Any]]) -> Manifests:
    """Raises DecodeError and ValueError."""
    pods: list[Pod] = []
    claims: dict[str, ResourceClaim] = {}
    templates: dict[str, ResourceClaimSpec] = {}
    for document in documents:
        kind = document.get("kind")
        if kind == "Pod":
            pods.append(convert(Pod, document))
        elif kind in CLAIMS:
            claim = decoded(document)
            if kind == TEMPLATE:
                templates[claim.metadata.name] = claim.spec
            else:
                claims[claim.metadata.name] = claim
    return Manifests(tuple(pods), claims, templates)


def pods_of(file: str, documents: Iterable[dict[str, Any]]) -> Manifests:
    """`file` is named in errors. Raises DecodeError, and ValueError without a pod."""
    found = manifests(documents)
    if not found.pods:
        raise ValueError(f"{file} contains no object of kind Pod")
    return found


def decoded(document: dict[str, Any]) -> Any:
    """The slice, class or claim; of a ResourceClaimTemplate, a claim with its name. A status is left out. The default
    apiVersion is v1. Raises DecodeError.
    """
    kind, spec = document["kind"], document.get("spec")
    if kind == TEMPLATE and isinstance(spec, dict):
        spec = spec.get("spec")
    body = msgspec.json.encode({"metadata": document.get("metadata") or {}, "spec": spec or {}})
    if (version := document.get("apiVersion") or _VERSION) != _VERSION:
        raise DecodeError(kind, identify(body).key, f"apiVersion {version} is not supported: use {_VERSION}")
    return _KINDS[kind].decode(body)


def hypothetical(document: dict[str, Any], namespace: str) -> HypotheticalObject:
    """As `decoded`, right after its creation. `namespace`: the default."""
    found: HypotheticalObject = decoded(document)
    return hypothetical_claim(found, namespace) if isinstance(found, ResourceClaim) else found


def hypothetical_objects(
    file: str, namespace: str = "default", kinds: Sequence[str] = ADDED
) -> list[HypotheticalObject]:
    """The objects of a file. Raises OSError, DecodeError, and ValueError for other kinds and without an object."""
    documents = objects(file)
    for each in documents:
        if each.get("kind") not in kinds:
            what = f"{each.get('apiVersion') or ''} {each.get('kind') or 'an object without a kind'}".strip()
            raise ValueError(f"{file}: {what} is not supported: give objects of kind {', '.join(kinds)}")
    if not documents:
        raise ValueError(f"{file} contains no object of kind {', '.join(kinds)}")
    return [hypothetical(each, namespace) for each in documents]


def claims_of(file: str) -> list[ResourceClaim]:
    """The claims of a file, and one claim per template. Raises as `hypothetical_objects`."""
    found = (each for each in hypothetical_objects(file, kinds=CLAIMS) if isinstance(each, ResourceClaim))
    return [replace(each, metadata=replace(each.metadata, name=each.metadata.name or "(unnamed)")) for each in found]
