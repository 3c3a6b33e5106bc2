"""Manifests as people write them: read from files, applied through the API as `kubectl apply --server-side` does.

The samples are found in a checkout (manifests/samples) and in an installed package (app/embedded_cluster/samples).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dra_extender.kube.client import KubeClient

APPLY = "application/apply-patch+yaml"
FIELD_MANAGER = "kubectl"
"""The manager of `kubectl apply --server-side`: who applies a sample again with kubectl meets no other owner."""


Manifest = dict[str, Any]

FIRST_SAMPLES = (
    "tutorial", "all", "shared", "deployment", "matched-pair", "prioritized", "placement", "placement-pairs",
    "gang", "preemption", "preemption-urgent", "unschedulable",
)  # fmt: skip
"""The samples that the demo applies, in this order, each when the pods of those before it have got what they get; each
needs the GPUs of the embedded cluster, or brings its own.

`all` comes early: it wants every small GPU of a node, and others are content with any.
"""

_PLURALS = {"DeviceClass": "deviceclasses", "PriorityClass": "priorityclasses"}
_CLUSTER_WIDE = frozenset(
    ("Namespace", "Node", "DeviceClass", "ResourceSlice", "DeviceTaintRule", "PriorityClass", "ClusterRole",
     "ClusterRoleBinding")
)  # fmt: skip


def samples() -> Path:
    """The directory of the samples. Raises FileNotFoundError when neither place has them."""
    here = Path(__file__).resolve()
    for directory in (here.parent / "samples", here.parents[2] / "manifests" / "samples"):
        if directory.is_dir():
            return directory
    raise FileNotFoundError(f"no samples in {here.parent / 'samples'}: is the package installed completely?")


def read(source: str | Path) -> list[Manifest]:
    """The documents of a YAML file, or of a text that contains at least one line break."""
    text = source if isinstance(source, str) and "\n" in source else Path(source).read_text()
    return [document for document in yaml.safe_load_all(text) if document]


def path_of(manifest: Manifest) -> str:
    """The URL path of the object; namespaced ones without a namespace are in `default`."""
    kind, metadata = manifest["kind"], manifest["metadata"]
    version = manifest["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    where = "" if kind in _CLUSTER_WIDE else f"/namespaces/{metadata.get('namespace', 'default')}"
    return f"{root}{where}/{plural}/{metadata['name']}"


async def apply(client: KubeClient, manifests: Iterable[Manifest]) -> list[Manifest]:
    """Server-side apply, in order; returns the stored objects. Raises ApiError."""
    return [await _apply(client, manifest) for manifest in manifests]


async def _apply(client: KubeClient, manifest: Manifest) -> Manifest:
    reply = await client.request(
        "PATCH",
        path_of(manifest),
        params={"fieldManager": FIELD_MANAGER, "force": "true"},
        body=msgspec.json.encode(manifest),
        content_type=APPLY,
    )
    stored: Manifest = msgspec.json.decode(reply)
    return stored
