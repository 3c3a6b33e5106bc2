"""The authorizer's functions (apiserver pkg/cel/library/authz.go, 1.36).

They exist, but nothing in a selector is an authorizer: a call that compiles fails for every device.
"""

from __future__ import annotations

from typing import Any, Final

from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault

LIBRARY: Final = Library()

_METHODS: Final = (
    ("Authorizer", "group", "string", "GroupCheck"),
    ("Authorizer", "path", "string", "PathCheck"),
    ("Authorizer", "serviceAccount", "string, string", "Authorizer"),
    ("GroupCheck", "resource", "string", "ResourceCheck"),
    ("PathCheck", "check", "string", "Decision"),
    ("ResourceCheck", "check", "string", "Decision"),
    ("ResourceCheck", "fieldSelector", "string", "ResourceCheck"),
    ("ResourceCheck", "labelSelector", "string", "ResourceCheck"),
    ("ResourceCheck", "name", "string", "ResourceCheck"),
    ("ResourceCheck", "namespace", "string", "ResourceCheck"),
    ("ResourceCheck", "subresource", "string", "ResourceCheck"),
    ("Decision", "allowed", "", "bool"),
    ("Decision", "error", "", "string"),
    ("Decision", "errored", "", "bool"),
    ("Decision", "reason", "", "string"),
)


def _never(*_: Any) -> Any:
    raise Fault("no such overload")


for _receiver, _name, _params, _result in _METHODS:
    _params = f", {_params}" if _params else ""
    LIBRARY.method(_name, f"{_receiver}{_params} -> {_result}")(_never)
