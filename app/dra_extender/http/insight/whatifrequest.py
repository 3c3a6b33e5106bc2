"""The body of a what-if request: decoded, validated, and turned into hypothetical changes.

Promises: every error is an `InvalidRequestError` with field, problem and remedy.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec

from dra_extender.api.core import Toleration
from dra_extender.api.decoding import UNDECODABLE
from dra_extender.api.resource import MAX_TOLERATIONS
from dra_extender.insight.requests import InvalidRequestError
from dra_extender.insight.whatif.whatif import MOST_ADDED, Changes

MOST_NAMES: Final = 1_000
"""Nodes to drain, or pods to delete."""
MOST_PODS: Final = 100
"""Pods that are placed at once."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Key = Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+$", max_length=507, description="NAMESPACE/NAME")]
Text = Annotated[str, msgspec.Meta(max_length=317)]


class NodesLike(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """So many more nodes like this one, with nothing on them."""

    like: Name
    count: Annotated[float, msgspec.Meta(ge=1, le=MOST_ADDED, multiple_of=1, extra_json_schema={"type": "integer"})] = 1
    """A whole number: to JSON 2.0 is one, too."""


class Tolerated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A toleration of pods and of their claims."""

    key: Annotated[Text, msgspec.Meta(min_length=1)]
    operator: Literal["Exists", "Equal", ""] = ""
    value: Text = ""
    effect: Literal["NoSchedule", "NoExecute", "PreferNoSchedule", "None", ""] = ""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The hypothetical changes. Without `pods`, all pods that wait for devices are placed."""

    add_nodes: Annotated[tuple[NodesLike, ...], msgspec.Meta(max_length=MOST_ADDED)] = ()
    without_pods: Annotated[tuple[Key, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    drain: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_NAMES)] = ()
    tolerations: Annotated[tuple[Tolerated, ...], msgspec.Meta(max_length=MAX_TOLERATIONS)] = ()
    pods: Annotated[tuple[Key, ...], msgspec.Meta(max_length=MOST_PODS)] = ()

    @property
    def changes(self) -> Changes:
        return Changes(
            added=tuple((item.like, int(item.count)) for item in self.add_nodes),
            without=self.without_pods,
            drained=self.drain,
            tolerations=tuple(
                Toleration(item.key, item.operator, item.value, item.effect) for item in self.tolerations
            ),
        )


_REMEDIES: Final = {
    "addNodes": f"give a list such as [{{like: NODE, count: 1}}], 1 to {MOST_ADDED} nodes",
    "withoutPods": f"give a list of NAMESPACE/NAME, at most {MOST_NAMES}",
    "drain": f"give a list of names of nodes, at most {MOST_NAMES}",
    "tolerations": f"give a list such as [{{key: KEY, operator: Exists}}], at most {MAX_TOLERATIONS}",
    "pods": f"give a list of NAMESPACE/NAME, at most {MOST_PODS}",
}
_ELSEWHERE: Final = f"give an object with any of {', '.join(_REMEDIES)}"
_LONGEST: Final = 300
"""Characters of a problem in an error."""

_body = msgspec.json.Decoder(Body)


def body_of(data: bytes) -> Body:
    """Raises InvalidRequestError."""
    try:
        return _body.decode(data)
    except UNDECODABLE as problem:
        what, _, path = (str(problem) or "is nested too deeply").partition(" - at `$")
    what = what.replace("`float`", "`int`").removesuffix(".0")  # `count` is the only one, and has to be whole
    field = path.rstrip("`").lstrip(".")
    first = re.match(r"\w*", field)
    remedy = _REMEDIES.get(first.group() if first else "", _ELSEWHERE)
    raise InvalidRequestError(field[:_LONGEST] or "the body", what[:_LONGEST], remedy)
