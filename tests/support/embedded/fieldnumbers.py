"""Writes app/embedded_cluster/apiserver/fieldnumbers.json from the .proto files of Kubernetes' Go modules.

    python -m tests.support.embedded.fieldnumbers $(go env GOMODCACHE)/k8s.io v0.36.3

Needed again only when a newer Kubernetes has new fields. One line per message: field number -> `name type`, where a
type is a scalar, a message, `[]type`, `{}type` (a map from strings) or `=message`, whose fields JSON has in its place.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import kubernetes_asyncio.client.models as models

from embedded_cluster.apiserver import topology
from embedded_cluster.apiserver.kinds import RESOURCE_VERSIONS, registry
from embedded_cluster.apiserver.protobuf import TABLE, message_of

OTHERS = (("v1", "Binding"), ("autoscaling/v1", "Scale"), ("policy/v1", "Eviction"), ("v1", "DeleteOptions"))
REVIEW = ("authorization.k8s.io/v1", "SelfSubjectAccessReview")

_PACKAGE = re.compile(r"^package k8s\.io\.(?:api|apimachinery\.pkg\.apis|apimachinery\.pkg)\.([\w.]+);", re.MULTILINE)
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^  (?:(optional|repeated) )?(map<string, ([\w.]+)>|[\w.]+) (\w+) = (\d+);", re.MULTILINE)
_FAR = re.compile(r"^\.?k8s\.io\.(?:api|apimachinery\.pkg\.apis|apimachinery\.pkg)\.")
_SCALARS = ("string", "bytes", "bool", "int32", "int64", "uint32", "uint64", "double")


def _type(name: str, package: str) -> str:
    if name in _SCALARS:
        return name
    return _FAR.sub("", name) if "." in name else f"{package}.{name}"


def messages(source: str) -> dict[str, dict[str, str]]:
    """Every message of one .proto file."""
    package = _PACKAGE.search(source)
    assert package is not None
    found: dict[str, dict[str, str]] = {}
    for name, body in _MESSAGE.findall(source):
        fields: dict[str, str] = {}
        for label, kind, mapped, field, number in _FIELD.findall(body):
            if mapped:
                fields[number] = f"{field} {{}}{_type(mapped, package[1])}"
            else:
                fields[number] = f"{field} {'[]' if label == 'repeated' else ''}{_type(kind, package[1])}"
        found[f"{package[1]}.{name}"] = fields
    return found


def inline(every: dict[str, dict[str, str]]) -> None:
    """Mark the messages that are embedded in Go: in JSON, their fields stand among those of the message around them."""
    names: dict[str, set[str]] = {}
    for name in dir(models):
        model = getattr(models, name)
        if hasattr(model, "attribute_map"):
            names.setdefault(topology.base_name(name), set()).update(model.attribute_map.values())
    for name, fields in every.items():
        known = names.get(name.rpartition(".")[2])
        for number, spec in fields.items():
            field, kind = spec.split(" ")
            if known and field not in known and kind in every:
                fields[number] = f"{field} ={kind}"


def reachable(every: dict[str, dict[str, str]], roots: set[str]) -> dict[str, dict[str, str]]:
    """The messages that `roots` consist of."""
    needed: set[str] = set()
    waiting = sorted(roots)
    while waiting:
        name = waiting.pop()
        if name in needed or name not in every:
            continue
        needed.add(name)
        waiting += [spec.split(" ")[1].lstrip("[]{}=") for spec in every[name].values()]
    return {name: every[name] for name in sorted(needed)}


def main(modules: str, version: str) -> None:
    """Read the modules `api` and `apimachinery` at `version` below the folder `modules`."""
    every: dict[str, dict[str, str]] = {}
    for module in ("api", "apimachinery"):
        for path in sorted(Path(modules, f"{module}@{version}").rglob("generated.proto")):
            if _PACKAGE.search(path.read_text()):
                every |= messages(path.read_text())
    inline(every)
    kinds = [(resource.api_version, resource.kind.kind) for resource in registry(RESOURCE_VERSIONS).resources]
    chosen = reachable(every, {message_of(*kind) for kind in (*kinds, *OTHERS, REVIEW)})
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in chosen.items())
    TABLE.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
