"""The contexts of kubeconfigs, and the namespace of one: where commands look for objects that are named without it.

Promises: files are merged as kubectl does, the first that says something wins; nothing is asked of the API server, and
whatever is missing or unreadable leaves the namespace at "default".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

DEFAULT: Final = "default"
_MOUNTED: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def namespace_of(kubeconfig: str = "", context: str = "") -> str:
    """The namespace of the context, or of the current one; in a pod without a kubeconfig that of the pod."""
    named = kubeconfig or os.environ.get("KUBECONFIG", "")
    if not named and not context and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _text(_MOUNTED).strip() or DEFAULT
    configs = list(_configs(named or "~/.kube/config"))
    current = context or next((str(found) for config in configs if (found := config.get("current-context"))), "")
    for config in configs:
        for entry in config.get("contexts") or ():
            if isinstance(entry, dict) and entry.get("name") == current:
                return str((entry.get("context") or {}).get("namespace") or DEFAULT)
    return DEFAULT


def names_of(kubeconfig: str) -> list[str]:
    """The contexts of these files, in the order in which they are written."""
    entries = (entry for config in _configs(kubeconfig) for entry in config.get("contexts") or ())
    return [str(entry["name"]) for entry in entries if isinstance(entry, dict) and entry.get("name")]


def _configs(paths: str) -> Iterator[dict[str, Any]]:
    for part in filter(None, paths.split(os.pathsep)):
        try:
            config = yaml.safe_load(_text(Path(part).expanduser()))
        except yaml.YAMLError:
            continue
        if isinstance(config, dict):
            yield config


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
