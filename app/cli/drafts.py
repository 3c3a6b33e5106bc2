"""Pods from a file, with the claims and templates beside them. Loads YAML and the decoders: import it when needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from app.api.core import Pod
from app.api.decoding import convert
from app.api.resource import GROUP, ResourceClaim, ResourceClaimSpec
from app.kube.resources import resource_claims
from app.scheduling.diagnosis.draft import Draft, draft


def drafts(source: str, namespace: str) -> list[Draft]:
    """The pods of a file, or of standard input for "-". Raises OSError, YAMLError, DecodeError, and ValueError when
    there is no pod.
    """
    pods: list[Pod] = []
    claims: dict[str, ResourceClaim] = {}
    templates: dict[str, ResourceClaimSpec] = {}
    for document in objects(text_of(source)):
        meta = document.get("metadata") or {}
        name = str(meta.get("name") or "") if isinstance(meta, dict) else ""
        kind = document.get("kind")
        if kind == "Pod":
            pods.append(convert(Pod, document))
        elif kind == "ResourceClaim":
            claims[name] = _claim(document, document)
        elif kind == "ResourceClaimTemplate":
            spec = document.get("spec")
            inner = spec.get("spec") if isinstance(spec, dict) else None
            templates[name] = _claim(document, {"metadata": {"name": name}, "spec": inner or {}}).spec
    if not pods:
        raise ValueError(f"{source}: there is no object of kind Pod in it")
    return [draft(pod, claims, templates, namespace) for pod in pods]


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


def _claim(document: dict[str, Any], body: dict[str, Any]) -> ResourceClaim:
    """In the version that the document names."""
    group, _, version = str(document.get("apiVersion") or "").partition("/")
    if group != GROUP or version not in ("v1", "v1beta2", "v1beta1"):
        raise ValueError(f"apiVersion {document.get('apiVersion')} is none of {GROUP}/v1, v1beta2, v1beta1")
    return resource_claims(version).decode(msgspec.json.encode(body))
