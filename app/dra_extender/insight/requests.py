"""Why a request cannot be answered, and the objects that a request names."""

from __future__ import annotations

from collections.abc import Container, Iterable

from dra_extender.api.core import Pod
from dra_extender.scheduling.view import KnownPods


class InvalidRequestError(ValueError):
    """A request that cannot be answered. `field` is its place in the body of an HTTP request, if it has one."""

    def __init__(self, field: str, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}: {remedy}" if remedy else problem)
        self.field = field

    @property
    def sentence(self) -> str:
        """With the field, for programs."""
        return f"{self.field}: {self}" if self.field else str(self)


class UnknownObjectError(InvalidRequestError):
    """The request names an object that does not exist."""


def pod_named(pods: KnownPods, key: str, field: str = "", remedy: str = "") -> Pod:
    """The pod (namespace/name). Raises UnknownObjectError."""
    namespace, _, name = key.partition("/")
    pod = pods.named(namespace, name) if name else None
    if pod is None:
        raise UnknownObjectError(field, f"pod {key} not found: it does not exist or has finished", remedy)
    return pod


def nodes_named(nodes: Container[str], names: Iterable[str], field: str = "") -> list[str]:
    """The names in order, each once. Raises UnknownObjectError for a node that does not exist."""
    found = sorted(set(names))
    for name in found:
        if name not in nodes:
            raise UnknownObjectError(field, f"node {name} not found")
    return found
