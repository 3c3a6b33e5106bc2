"""Pods from a file, with the claims and templates they name."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.errors import NotFoundError, RejectedError
from dra_extender.api.resource import GROUP, ResourceClaim, ResourceClaimSpec
from dra_extender.cli.cluster import connected
from dra_extender.cli.source import Source
from dra_extender.insight.why.draft import Draft, draft
from dra_extender.kube.resources import resource_claims


class Manifests(msgspec.Struct, frozen=True):
    """What a file has: pods, and by name the claims and templates beside them."""

    pods: tuple[Pod, ...]
    claims: Mapping[str, ResourceClaim]
    templates: Mapping[str, ResourceClaimSpec]


async def drafts(source: Source, file: str, namespace: str) -> list[Draft]:
    """The pods of a file, or of standard input for "-". Templates that are not in it are those of the cluster. Raises
    OSError, YAMLError, DecodeError, ApiError, CredentialsError, and ValueError when there is no pod.
    """
    found = manifests(file)
    stored = await _stored(source, found, namespace)
    return [
        draft(pod, found.claims, {**stored.get(pod.metadata.namespace or namespace, {}), **found.templates}, namespace)
        for pod in found.pods
    ]


def manifests(file: str) -> Manifests:
    """Raises OSError, YAMLError, DecodeError, and ValueError when there is no pod."""
    pods: list[Pod] = []
    claims: dict[str, ResourceClaim] = {}
    templates: dict[str, ResourceClaimSpec] = {}
    for document in objects(text_of(file)):
        meta = document.get("metadata") or {}
        name = str(meta.get("name") or "") if isinstance(meta, dict) else ""
        kind = document.get("kind")
        if kind == "Pod":
            pods.append(convert(Pod, document))
        elif kind == "ResourceClaim":
            claims[name] = _claim(document, document)
        elif kind == "ResourceClaimTemplate":
            templates[name] = _template(document)
    if not pods:
        raise ValueError(f"{file}: there is no object of kind Pod in it")
    return Manifests(tuple(pods), claims, templates)


async def _stored(source: Source, found: Manifests, namespace: str) -> dict[str, dict[str, ResourceClaimSpec]]:
    """By namespace and name, the templates that pods name and the file does not have. Those that do not exist, or that
    the user may not read, are left out; so are all of a snapshot, which has none.
    """
    wanted = {
        (pod.metadata.namespace or namespace, entry.resource_claim_template_name)
        for pod in found.pods
        for entry in pod.spec.resource_claims
        if entry.resource_claim_template_name and entry.resource_claim_template_name not in found.templates
    }
    templates: dict[str, dict[str, ResourceClaimSpec]] = {}
    if source.file or not wanted:
        return templates
    async with connected(source) as (client, served):
        kind = msgspec.structs.replace(resource_claims(served.version), plural="resourceclaimtemplates")
        for where, name in sorted(wanted):
            try:
                document = msgspec.json.decode(await client.get(kind.path(where, name)))
            except (NotFoundError, RejectedError):
                continue
            templates.setdefault(where, {})[name] = _template(document)
    return templates


def text_of(source: str) -> str:
    """The text of a file, or of standard input for "-". Raises OSError and UnicodeDecodeError."""
    return sys.stdin.read() if source == "-" else Path(source).read_text()


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Several documents, and lists of objects, are fine."""
    for document in yaml.safe_load_all(text):
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            yield from (item for item in document["items"] if isinstance(item, dict))
        elif isinstance(document, dict):
            yield document


def _template(document: dict[str, Any]) -> ResourceClaimSpec:
    """What claims of the template ask for."""
    spec = document.get("spec")
    inner = spec.get("spec") if isinstance(spec, dict) else None
    return _claim(document, {"metadata": {"name": "template"}, "spec": inner or {}}).spec


def _claim(document: dict[str, Any], body: dict[str, Any]) -> ResourceClaim:
    """In the version that the document names."""
    group, _, version = str(document.get("apiVersion") or "").partition("/")
    if group != GROUP or version not in ("v1", "v1beta2", "v1beta1"):
        raise ValueError(f"apiVersion {document.get('apiVersion')} is none of {GROUP}/v1, v1beta2, v1beta1")
    return resource_claims(version).decode(msgspec.json.encode(body))
