"""The releases of Kubernetes whose answers were recorded, and how releases compare."""

from __future__ import annotations

RELEASE = "v1.37"
OLDER = "v1.36"
"""The other release that was recorded."""


def release_of(version: str) -> str:
    """The release of a version: v1.36 of v1.36.3."""
    return ".".join(version.split(".")[:2])


def is_since(release: str, first: str) -> bool:
    """True when `release` is not older than `first`, which may be empty."""
    return not first or _numbers(release) >= _numbers(first)


def nearest(release: str) -> str:
    """The recorded release whose answers those of `release` resemble most."""
    return RELEASE if is_since(release, RELEASE) else OLDER


def _numbers(release: str) -> list[int]:
    return [int(number) for number in release.removeprefix("v").split(".")]
