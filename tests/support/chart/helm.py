"""Helm and promtool as processes: what a chart renders to, and what they say of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.components import BUILT

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "dra-extender"
NAME, NAMESPACE = "dra-extender", "dra-system"
"""With these, the chart gives the names of the manifests."""
KUBERNETES = "v1.37.2"
"""The release that charts are rendered for without a cluster: the same as in the manifests."""

IMAGE = "dra-extender"
"""The image that values get which name none: the chart has no default."""

Values = Mapping[str, Any]
Document = dict[str, Any]


class HelmError(RuntimeError):
    """Helm refused; the text is what it said."""


def tool(name: str) -> Path | None:
    """Where a tool is: built here, or installed."""
    built = BUILT.parent / name
    if os.access(built, os.X_OK):
        return built
    found = shutil.which(name)
    return Path(found) if found else None


class Helm:
    """Helm with a home of its own; without a kubeconfig it can render only."""

    def __init__(self, home: Path, kubeconfig: Path | None = None) -> None:
        found = tool("helm")
        if found is None:
            raise HelmError("helm is missing: run `make charttools` (needs Go), or install it")
        self.path = found
        self._home = home
        self._kubeconfig = kubeconfig

    def environment(self) -> dict[str, str]:
        """What Helm is to be run with."""
        kubeconfig = str(self._kubeconfig) if self._kubeconfig else os.devnull
        places = {f"HELM_{kind}_HOME": str(self._home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        return {**os.environ, **places, "KUBECONFIG": kubeconfig}

    def run(self, *arguments: str, values: Values | None = None) -> str:
        """What it prints. Raises HelmError."""
        command = [str(self.path), *arguments, *(["--values=-"] if values is not None else [])]
        given = json.dumps(_with_image(values)) if values is not None else None
        done = subprocess.run(command, input=given, env=self.environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise HelmError(f"helm {arguments[0]}: {done.stderr.strip()}")
        return done.stdout

    def render(self, values: Values | None = None, *options: str, name: str = NAME) -> list[Document]:
        """The objects of a release, without installing it."""
        place = (f"--namespace={NAMESPACE}", f"--kube-version={KUBERNETES}")
        made = self.run("template", name, str(CHART), *place, *options, values=values or {})
        return [document for document in yaml.safe_load_all(made) if document]


def _with_image(values: Values) -> Values:
    return {**values, "image": {"repository": IMAGE, **values.get("image", {})}}


def one(documents: Sequence[Document], kind: str, name: str = NAME) -> Document:
    """The object of this kind and name."""
    (found,) = (each for each in documents if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def environment(deployment: Document) -> dict[str, str]:
    """The variables that a Deployment of the extender sets, except variables that come from the pod."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
