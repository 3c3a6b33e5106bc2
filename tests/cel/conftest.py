"""A device to ask about, and how to ask."""

from collections.abc import Callable
from typing import Any

import pytest

from dra_extender.api.semver import VersionText
from dra_extender.cel import CelCompileError, CelGates, CelRuntimeError, DeviceView, Program
from tests.support.cel.devices import view_of

Verdict = Callable[..., str]

ATTRIBUTES: dict[str, Any] = {
    "model": "A100", "index": 3, "neg": -7, "big": 9223372036854775807, "zero": 0, "ecc": True, "mig": False,
    "version": VersionText("1.3.0"), "pre": VersionText("2.0.0-rc.1+b7"), "empty": "", "uni": "café", "num": "42",
    "other.example.com/zone": "z1",
}  # fmt: skip
LISTS: dict[str, Any] = {
    "ints": [1, 2, 3], "features": ["a", "b"], "bools": [True, False],
    "versions": [VersionText("1.0.0"), VersionText("2.0.0")],
}  # fmt: skip
CAPACITY = {"memory": "40Gi", "cores": "108", "frac": "1500m"}


@pytest.fixture
def view() -> DeviceView:
    return view_of("gpu.example.com", ATTRIBUTES, CAPACITY, False)


@pytest.fixture
def verdict() -> Verdict:
    """The answer to an expression about the device; `$A` and `$C` are its own attributes and capacities."""

    def ask(expression: str, lists: bool = False) -> str:
        expression = expression.replace("$A", 'device.attributes["gpu.example.com"]')
        expression = expression.replace("$C", 'device.capacity["gpu.example.com"]')
        gates = CelGates(list_attributes=lists)
        view = view_of("gpu.example.com", ATTRIBUTES | (LISTS if lists else {}), CAPACITY, False, gates)
        try:
            return str(Program(expression, gates).evaluate(view)).lower()
        except CelCompileError:
            return "reject"
        except CelRuntimeError:
            return "error"

    return ask
