"""Selectors and claims whose decisions take long, by family."""

from __future__ import annotations

from typing import Any, Final

from dra_extender.api.decoding import convert
from dra_extender.api.resource import ResourceClaim

Json = dict[str, Any]

LOOPS: Final = "lists.range(200).all(x, lists.range(200).all(y, y >= 0))"
"""True, after 40,000 rounds."""

REPLACED: Final = f"'{'a' * 100}'.replace('a', '{'b' * 300}').findAll('').size() > 0"
"""Makes a list of 30,001 texts; upstream estimates a cost of 22."""


def long_selector(comment: str = "", size: int = 9_000) -> str:
    """True, and so long that compiling it takes a while. A `comment` makes it unlike others."""
    part = "true"
    return " && ".join([part] * (size // (len(part) + 4))) + f" // {comment}"


def knapsack(name: str = "hard", *, requests: int = 24, namespace: str = "default") -> ResourceClaim:
    """Shares that fill six devices of 100 without a gap; finding out which takes a search."""
    sizes = (3, 3, 3, 7, 8, 10, 11, 14, 15, 17, 18, 20, 21, 24, 25, 27, 31, 34, 37, 40, 49, 51, 66, 66)
    one: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    asked: list[Json] = [
        {"name": f"r{i}", "exactly": {**one, "capacity": {"requests": {"memory": f"{size}"}}}}
        for i, size in enumerate(sizes[:requests])
    ]
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return convert(ResourceClaim, {"metadata": metadata, "spec": {"devices": {"requests": asked}}})


def selecting(name: str, *expressions: str, namespace: str = "default", count: int = 1) -> ResourceClaim:
    """A claim for devices that satisfy these selectors."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": selectors}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return convert(ResourceClaim, {"metadata": metadata, "spec": spec})
