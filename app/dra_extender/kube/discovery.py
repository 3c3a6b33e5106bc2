"""Which versions of the resource API a server offers, and which of them to speak.

Promises the newest version that is served: v1, else v1beta2, else v1beta1; and taint rules where any version has them.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dra_extender.api.errors import ApiError, NotFoundError, RejectedError
from dra_extender.api.resource import GROUP
from dra_extender.kube.client import KubeClient

CLAIM_VERSIONS = ("v1", "v1beta2", "v1beta1")
RULE_VERSIONS = ("v1", "v1beta2", "v1alpha3")

T = TypeVar("T")


class Served(msgspec.Struct, frozen=True):
    """`version` has claims, slices and classes; `taint_rules` is the version that has DeviceTaintRules, or empty."""

    version: str
    taint_rules: str = ""
    server_version: str = ""


class _GroupVersion(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True):
    versions: tuple[_GroupVersion, ...] = ()


class _Resource(msgspec.Struct, frozen=True):
    name: str


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()


class _ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


async def discover(client: KubeClient) -> Served:
    """Ask the server. Raises RejectedError when it has no resource API, and other ApiErrors as the client does."""
    try:
        group = await _get(client, f"/apis/{GROUP}", _Group)
    except NotFoundError:
        raise RejectedError(404, "NotServed", _nothing_served(())) from None
    offered = {entry.version for entry in group.versions}
    resources = {version: await _resources(client, version) for version in CLAIM_VERSIONS if version in offered}
    best = next((version for version in CLAIM_VERSIONS if "resourceclaims" in resources.get(version, ())), None)
    if best is None:
        raise RejectedError(404, "NotServed", _nothing_served(offered))
    for version in RULE_VERSIONS:
        if version in offered and version not in resources:
            resources[version] = await _resources(client, version)
    rules = next((version for version in RULE_VERSIONS if "devicetaintrules" in resources.get(version, ())), "")
    return Served(best, rules, await _server_version(client))


async def _resources(client: KubeClient, version: str) -> frozenset[str]:
    found = await _get(client, f"/apis/{GROUP}/{version}", _Resources)
    return frozenset(resource.name for resource in found.resources)


async def _server_version(client: KubeClient) -> str:
    try:
        return (await _get(client, "/version", _ServerVersion)).git_version
    except ApiError:
        return ""


async def _get(client: KubeClient, path: str, kind: type[T]) -> T:
    """Raises ApiError, also for an answer that makes no sense: a proxy may show a page while the server is away."""
    try:
        return msgspec.json.decode(await client.get(path), type=kind)
    except (msgspec.DecodeError, ValueError) as problem:
        raise ApiError(0, "Malformed", f"{path}: {problem}") from None


def _nothing_served(offered: object) -> str:
    versions = ", ".join(sorted(offered)) if isinstance(offered, set) else ""
    return (
        f"the API server serves no usable version of {GROUP} ({versions or 'none'}); "
        f"one of {', '.join(CLAIM_VERSIONS)} is needed (Kubernetes 1.34 or newer, or --runtime-config)"
    )
