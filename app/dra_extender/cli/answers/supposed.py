"""What `whatif` supposes besides nodes and pods: objects of a file, and tolerations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Toleration
from dra_extender.api.meta import ObjectMeta
from dra_extender.api.resource import GROUP, ResourceClaim
from dra_extender.cli.answers.drafts import objects, text_of
from dra_extender.insight.whatif.changes import Supposed
from dra_extender.insight.why.draft import defaulted
from dra_extender.kube.resources import Resource, device_classes, resource_claims, resource_slices

_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_KINDS: Final[Mapping[str, Callable[[str], Resource[Any]]]] = {
    "ResourceSlice": resource_slices,
    "DeviceClass": device_classes,
    "ResourceClaim": resource_claims,
}
_TOLERATION: Final = re.compile(r"(?P<key>[^=:\s]+)(=(?P<value>[^=:\s]*))?(:(?P<effect>[A-Za-z]+))?")


def supposed(source: str, namespace: str) -> list[Supposed]:
    """The slices, classes and claims of a file, or of standard input for "-". Raises OSError, YAMLError, DecodeError,
    and ValueError for anything else in it.
    """
    found: list[Supposed] = []
    for document in objects(text_of(source)):
        group, _, version = str(document.get("apiVersion") or "").partition("/")
        kind = str(document.get("kind") or "")
        if group != GROUP or version not in _VERSIONS or kind not in _KINDS:
            raise ValueError(
                f"{source}: {document.get('apiVersion')} {kind or 'without a kind'} cannot be supposed: give objects "
                f"of kind {', '.join(_KINDS)} of {GROUP}/{', '.join(_VERSIONS)}"
            )
        item: Supposed = _KINDS[kind](version).decode(msgspec.json.encode(document))
        found.append(_unmade(item, namespace) if isinstance(item, ResourceClaim) else item)
    if not found:
        raise ValueError(f"{source}: there is no object of kind {', '.join(_KINDS)} in it")
    return found


def _unmade(claim: ResourceClaim, namespace: str) -> ResourceClaim:
    """As nobody has made it yet: without devices."""
    where = claim.metadata.namespace or namespace
    name = claim.metadata.name
    return ResourceClaim(ObjectMeta(name=name, namespace=where, uid=f"supposed {where}/{name}"), defaulted(claim.spec))


def toleration(text: str) -> Toleration:
    """Reads KEY[=VALUE][:EFFECT], as `kubectl taint` writes taints; `*` stands for every key. Raises ValueError."""
    found = _TOLERATION.fullmatch(text)
    if found is None:
        raise ValueError(f"--toleration {text}: it has to be KEY, KEY=VALUE or KEY=VALUE:EFFECT; * stands for all")
    key, value, effect = found["key"], found["value"], found["effect"] or ""
    made = Toleration(key="" if key == "*" else key, operator="Exists", effect=effect)
    return made if value is None else replace(made, operator="Equal", value=value)
