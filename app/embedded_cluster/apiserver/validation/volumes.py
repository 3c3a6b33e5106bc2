"""Field errors of the volumes of a pod: what they are called, and what they are made of.

Of the kinds of volumes that clusters without in-tree storage drivers have, everything is checked; of the others, that
there is one kind only.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from dra_extender.api.quantity import Quantity
from embedded_cluster.apiserver import names
from embedded_cluster.apiserver.statuses import (
    JSON,
    Problem,
    duplicate,
    forbidden,
    invalid_value,
    required,
    unsupported,
)
from embedded_cluster.apiserver.validation import environment, paths, volumeclaims
from embedded_cluster.apiserver.validation.parts import driver_problems, required_name_problems

_HOST_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_FILE_FIELDS: Final = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_SHORTEST_TOKEN: Final = 600
_LONGEST_TOKEN: Final = 1 << 32

Check = Callable[[JSON, str], list[Problem]]


def problems(volumes: Iterable[JSON], at: str, *, of_pod: bool) -> tuple[list[Problem], dict[str, JSON]]:
    """Of `volumes`, and those that can be mounted, by name: of a pod, or of a template."""
    found: list[Problem] = []
    good: dict[str, JSON] = {}
    for index, volume in enumerate(volumes):
        where, name = f"{at}[{index}]", volume.get("name", "")
        wrong = _kind_problems(volume, where)
        if "image" in volume and of_pod and not volume["image"].get("reference"):
            wrong.insert(0, required(f"{where}.image.reference"))
        wrong += required_name_problems(name, f"{where}.name", names.dns_label)
        if name in good:
            wrong.append(duplicate(f"{where}.name", name))
        if not wrong:
            good[name] = volume
        found += wrong
    return found, good


def _kind_problems(volume: JSON, at: str) -> list[Problem]:
    found: list[Problem] = []
    kinds = [kind for kind in volume if kind != "name"]
    if len(kinds) > 1:
        kinds.sort(key=_ORDER.get)  # type: ignore[arg-type]
    for number, kind in enumerate(kinds):
        if number:
            found.append(forbidden(f"{at}.{_CALLED.get(kind, kind)}", "may not specify more than 1 volume type"))
        elif kind in _KINDS:
            found += _KINDS[kind](volume[kind], f"{at}.{kind}")
    return found


def _nothing(source: JSON, at: str) -> list[Problem]:
    return []


def _empty(source: JSON, at: str) -> list[Problem]:
    limit = source.get("sizeLimit")
    if limit is None or Quantity.parse(limit).nano >= 0:
        return []
    return [forbidden(f"{at}.sizeLimit", "SizeLimit field must be a valid resource quantity")]


def _host(source: JSON, at: str) -> list[Problem]:
    path, kind = source.get("path", ""), source["type"]
    if not path:
        return [required(f"{at}.path")]
    found = paths.upward_problems(path, f"{at}.path")
    return found if kind in _HOST_TYPES else [*found, unsupported(f"{at}.type", kind, _HOST_TYPES)]


def _repository(source: JSON, at: str) -> list[Problem]:
    found = [] if source.get("repository") else [required(f"{at}.repository")]
    return found + paths.relative_problems(source.get("directory", ""), f"{at}.directory")


def _secret(source: JSON, at: str) -> list[Problem]:
    return _keys(source, at, "secretName")


def _config_map(source: JSON, at: str) -> list[Problem]:
    return _keys(source, at, "name")


def _keys(source: JSON, at: str, name: str) -> list[Problem]:
    found = [] if source.get(name) else [required(f"{at}.{name}")]
    found += paths.mode_problems(source, "defaultMode", at)
    for index, item in enumerate(source.get("items") or ()):
        found += _item_problems(item, f"{at}.items[{index}]")
    return found


def _item_problems(item: JSON, at: str) -> list[Problem]:
    found = [required(f"{at}.{part}") for part in ("key", "path") if not item.get(part)]
    found += paths.file_problems(item.get("path", ""), f"{at}.path")
    return found + paths.mode_problems(item, "mode", at)


def _claim(source: JSON, at: str) -> list[Problem]:
    return [] if source.get("claimName") else [required(f"{at}.claimName")]


def _nfs(source: JSON, at: str) -> list[Problem]:
    found = [required(f"{at}.{part}") for part in ("server", "path") if not source.get(part)]
    if not source.get("path", "").startswith("/"):
        found.append(invalid_value(f"{at}.path", source.get("path", ""), "must be an absolute path"))
    return found


def _csi(source: JSON, at: str) -> list[Problem]:
    found = driver_problems(source.get("driver"), f"{at}.driver")
    secret = source.get("nodePublishSecretRef")
    if secret is None:
        return found
    if not secret.get("name"):
        return [*found, required(f"{at}.nodePublishSecretRef.name")]
    wrong = names.dns_subdomain(secret["name"])
    return [*found, invalid_value(f"{at}.name", secret["name"], wrong)] if wrong else found


def _image(source: JSON, at: str) -> list[Problem]:
    policy = source["pullPolicy"]
    return [] if policy in PULL_POLICIES else [unsupported(f"{at}.pullPolicy", policy, PULL_POLICIES)]


def _ephemeral(source: JSON, at: str) -> list[Problem]:
    return volumeclaims.problems(source.get("volumeClaimTemplate"), f"{at}.volumeClaimTemplate")


def _downward(source: JSON, at: str) -> list[Problem]:
    found = paths.mode_problems(source, "defaultMode", at)
    for item in source.get("items") or ():
        found += _file_problems(item, at)
    return found


def _file_problems(item: JSON, at: str) -> list[Problem]:
    """A file with something of the pod; upstream does not say which file."""
    found = [] if item.get("path") else [required(f"{at}.path")]
    found += paths.file_problems(item.get("path", ""), f"{at}.path")
    if "fieldRef" in item:
        found += environment.field_problems(item["fieldRef"], f"{at}.fieldRef", _FILE_FIELDS)
        if "resourceFieldRef" in item:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            found.append(invalid_value(at, "resource", detail))
    elif "resourceFieldRef" in item:
        found += environment.amount_problems(item["resourceFieldRef"], f"{at}.resourceFieldRef", in_volume=True)
    else:
        found.append(required(at, "one of fieldRef and resourceFieldRef is required"))
    return found + paths.mode_problems(item, "mode", at)


def _projected(source: JSON, at: str) -> list[Problem]:
    found = paths.mode_problems(source, "defaultMode", at)
    taken: set[str] = set()
    for index, part in enumerate(source.get("sources") or ()):
        found += _part_problems(part, f"{at}.sources[{index}]", at, taken)
        if len(part) > 1:
            found.append(forbidden(f"{at}.sources[{index}]", "may not specify more than 1 volume type per source"))
    return found


def _part_problems(part: JSON, where: str, at: str, taken: set[str]) -> list[Problem]:
    """One source of a projected volume; `taken` are the paths of all of them."""
    found: list[Problem] = []
    for kind in ("secret", "configMap"):
        if kind in part:
            name = part[kind].get("name", "")
            found += [] if name else [required(f"{where}.{kind}.name")]
            for index, item in enumerate(part[kind].get("items") or ()):
                found += _item_problems(item, f"{where}.{kind}.items[{index}]")
                found += _taken_problems(item.get("path", ""), name, at, taken)
    for item in (part.get("downwardAPI") or {}).get("items") or ():
        found += _file_problems(item, f"{where}.downwardAPI")
        found += _taken_problems(item.get("path", ""), item.get("path", ""), at, taken)
    if "serviceAccountToken" in part:
        found += _token_problems(part["serviceAccountToken"], f"{where}.serviceAccountToken", at)
    return found


def _taken_problems(path: str, shown: str, at: str, taken: set[str]) -> list[Problem]:
    if path and path in taken:
        return [invalid_value(at, shown, "conflicting duplicate paths")]
    taken.add(path)
    return []


def _token_problems(token: JSON, where: str, at: str) -> list[Problem]:
    seconds, found = token["expirationSeconds"], []
    if seconds < _SHORTEST_TOKEN:
        detail = "may not specify a duration less than 10 minutes"
        found.append(invalid_value(f"{where}.expirationSeconds", seconds, detail))
    if seconds > _LONGEST_TOKEN:
        detail = "may not specify a duration larger than 2^32 seconds"
        found.append(invalid_value(f"{where}.expirationSeconds", seconds, detail))
    path = token.get("path", "")
    return found + (paths.file_problems(path, f"{at}.path") if path else [required(f"{at}.path")])


_KINDS: Final[dict[str, Check]] = {
    "emptyDir": _empty,
    "hostPath": _host,
    "gitRepo": _repository,
    "gcePersistentDisk": _nothing,
    "awsElasticBlockStore": _nothing,
    "secret": _secret,
    "nfs": _nfs,
    "iscsi": _nothing,
    "glusterfs": _nothing,
    "flocker": _nothing,
    "persistentVolumeClaim": _claim,
    "rbd": _nothing,
    "cinder": _nothing,
    "cephfs": _nothing,
    "quobyte": _nothing,
    "downwardAPI": _downward,
    "fc": _nothing,
    "flexVolume": _nothing,
    "configMap": _config_map,
    "azureFile": _nothing,
    "vsphereVolume": _nothing,
    "photonPersistentDisk": _nothing,
    "portworxVolume": _nothing,
    "azureDisk": _nothing,
    "storageos": _nothing,
    "projected": _projected,
    "scaleIO": _nothing,
    "csi": _csi,
    "ephemeral": _ephemeral,
    "image": _image,
}
"""Kind of volume -> its check, in the order in which the first of several counts."""

_ORDER: Final = {kind: number for number, kind in enumerate(_KINDS)}
_CALLED: Final = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""What messages call a kind, where that differs."""
