"""Logs of containers and commands in them. No container runs, and every answer states that.

Promises: the log of a container that runs is the variables that the example driver sets for its devices, as `export`
prints them in a shell, so that what tutorials look for is there. The log of the example driver's own containers tells
what is published for their node and prepared on it. Texts of errors are those of a real API server as far
as it would come before a container is asked.

Source of the variables: kubernetes-sigs/dra-example-driver; of the errors: Kubernetes 1.36,
pkg/registry/core/pod/strategy.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from embedded_cluster.apiserver.requests import APIResponse, ResourceRequest
from embedded_cluster.apiserver.statuses import JSON, StatusError, bad_request
from embedded_cluster.apiserver.verbs import ObjectVerbs

LOG: Final = "log"
CONNECTED: Final = ("attach", "exec", "portforward")
"""What a client would stay connected for."""

_NONE: Final = "# no containers run in this cluster"
_VARIABLES: Final = f"{_NONE}; its driver would set these variables:\n"
_DRIVEN: Final = f"{_NONE}; what it does for this driver on {{}}:\n"
_DRIVER_IMAGE: Final = "dra-example-driver"
_DRIVER: Final = "gpu.example.com"


def is_driver(image: str) -> bool:
    """True for an image of the example driver, of any registry and version."""
    return image.rpartition("/")[2].partition("@")[0].partition(":")[0] == _DRIVER_IMAGE


def is_meant(call: ResourceRequest) -> bool:
    """True for a request about the containers of a pod."""
    asked = call.info.subresource
    return call.resource.kind.key == ("", "pods") and (asked in CONNECTED or (asked == LOG and call.info.verb == "get"))


def answer(verbs: ObjectVerbs, call: ResourceRequest) -> APIResponse:
    """The log, or why there is nothing to connect to. Raises 400, 404, 501."""
    pod = verbs.get(call.resource, call.info.namespace, call.info.name).object
    name = call.info.name
    if call.info.subresource != LOG:
        raise StatusError(501, "NotImplemented", "no containers run here: this cluster only shows what is scheduled")
    container = _container(pod, name, call.incoming.query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return _text("")
    if pod.get("status", {}).get("phase") not in ("Running", "Succeeded", "Failed"):
        told = container["name"]
        raise bad_request(f'container "{told}" in pod "{name}" is waiting to start: ContainerCreating')
    if is_driver(container.get("image", "")):
        node = pod["spec"]["nodeName"]
        return _text(_DRIVEN.format(node) + "".join(_driven(verbs, node)))
    lines = list(_variables(verbs, pod, container))
    return _text(_VARIABLES + "".join(lines) if lines else f"{_NONE}\n")


def _text(content: str) -> APIResponse:
    return APIResponse(200, content.encode(), content_type="text/plain")


def _container(pod: JSON, name: str, wanted: str) -> JSON:
    containers: list[JSON] = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    if not wanted and len(pod["spec"]["containers"]) == 1:
        found: JSON = pod["spec"]["containers"][0]
        return found
    for container in containers:
        if container["name"] == wanted:
            return container
    names = " ".join(container["name"] for container in containers)
    if wanted:
        raise bad_request(f"container {wanted} is not valid for pod {name}")
    raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{names}]")


def _variables(verbs: ObjectVerbs, pod: JSON, container: JSON) -> Iterator[str]:
    """A device and the claim that it is from, for each device of the claims that the container uses."""
    statuses = pod["status"].get("resourceClaimStatuses", ())
    created = {status["name"]: status.get("resourceClaimName") for status in statuses}
    claims = {
        entry["name"]: entry.get("resourceClaimName") or created.get(entry["name"])
        for entry in pod["spec"].get("resourceClaims", ())
    }
    for used in container.get("resources", {}).get("claims", ()):
        name = claims.get(used["name"])
        claim = verbs.lookup("resourceclaims", pod["metadata"]["namespace"], name) if name else None
        allocation = (claim or {}).get("status", {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results", ()):
            if used.get("request") not in (None, "", result["request"].partition("/")[0]):
                continue
            number = result["device"].rpartition("-")[2]
            yield f'declare -x GPU_DEVICE_{number}="{result["device"]}"\n'
            yield f'declare -x GPU_DEVICE_{number}_RESOURCE_CLAIM="{(claim or {})["metadata"]["uid"]}"\n'


def _driven(verbs: ObjectVerbs, node: str) -> Iterator[str]:
    """What the example driver of a node would have done until now."""
    published = sum(
        len(found["spec"].get("devices") or ())
        for found in _stored(verbs, "resourceslices")
        if found["spec"]["driver"] == _DRIVER and found["spec"].get("nodeName") == node
    )
    yield f"published devices: {published}\n"
    prepared = 0
    for claim in _stored(verbs, "resourceclaims"):
        status, metadata = claim.get("status", {}), claim["metadata"]
        results = (status.get("allocation") or {}).get("devices", {}).get("results", ())
        mine = [result["device"] for result in results if (result["driver"], result["pool"]) == (_DRIVER, node)]
        if mine and status.get("reservedFor"):
            prepared += 1
            name = f"{metadata['namespace']}/{metadata['name']}"
            yield f"prepared devices of claim {name} ({metadata['uid']}): {', '.join(mine)}\n"
    yield f"prepared claims: {prepared}\n"


def _stored(verbs: ObjectVerbs, plural: str) -> Iterator[JSON]:
    collection = verbs.storage.collection(verbs.registry.stored_form(plural).kind)
    yield from (stored.object for stored in collection.sorted())
