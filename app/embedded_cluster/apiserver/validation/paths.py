"""Field errors of paths in volumes and containers, and of the modes of files there.

Rules: Kubernetes 1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from typing import Final

from embedded_cluster.apiserver.statuses import JSON, Problem, invalid_value

_HIGHEST_MODE: Final = 0o777
_UP: Final = "must not contain '..'"


def upward_problems(path: str, at: str) -> list[Problem]:
    """A path that does not climb."""
    return [invalid_value(at, path, _UP)] if ".." in path.split("/") else []


def relative_problems(path: str, at: str) -> list[Problem]:
    """A path below something else."""
    found = [invalid_value(at, path, "must be a relative path")] if path.startswith("/") else []
    return found + upward_problems(path, at)


def file_problems(path: str, at: str) -> list[Problem]:
    """A file in a volume; names that begin with two dots belong to the kubelet."""
    found = relative_problems(path, at)
    if path.startswith("..") and not path.startswith("../"):
        found.append(invalid_value(at, path, "must not start with '..'"))
    return found


def mode_problems(source: JSON, name: str, at: str) -> list[Problem]:
    """The permissions of files, in the field `name`."""
    mode = source.get(name)
    if mode is None or 0 <= mode <= _HIGHEST_MODE:
        return []
    return [invalid_value(f"{at}.{name}", mode, "must be a number between 0 and 0777 (octal), both inclusive")]
