"""Why a request cannot be answered, and the objects that a request names."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final, TypeVar

from dra_extender.api.core import Pod
from dra_extender.api.decoding import UNDECODABLE
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


def nodes_named(nodes: Container[str], names: Iterable[str], field: str = "", remedy: str = "") -> list[str]:
    """The names in order, each once. Raises UnknownObjectError for a node that does not exist."""
    found = sorted(set(names))
    for name in found:
        if name not in nodes:
            raise UnknownObjectError(field, f"node {name} not found", remedy)
    return found


T = TypeVar("T")
LONGEST: Final = 300
"""Characters of a problem in an error."""


def parsed(parse: Callable[[Any], T], given: object, remedies: Mapping[str, str], at: str = "") -> T:
    """What a reader sent at this field of the body. Whole numbers have type float. Raises InvalidRequestError."""
    try:
        return parse(given)
    except UNDECODABLE as problem:
        what, _, path = (str(problem) or "is nested too deeply").partition(" - at `$")
    what = what.replace("`float`", "`int`").removesuffix(".0")
    field = f"{at}{path.rstrip('`')}".lstrip(".")
    first = re.match(r"\w*", field)
    elsewhere = f"give an object with any of {', '.join(remedies)}"
    remedy = remedies.get(first.group() if first else "", elsewhere)
    raise InvalidRequestError(field[:LONGEST] or "the body", what[:LONGEST], remedy)
