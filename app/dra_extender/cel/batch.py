"""One question of `selector --batch`: does this device match this selector?"""

from __future__ import annotations

from typing import Any, Final

from dra_extender.api.decoding import DecodeError, convert
from dra_extender.api.resource import Device
from dra_extender.cel.device import CelGates, DeviceView, PublishedDevice
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import Programs

GATES: Final = {"default": CelGates(), "lists": CelGates(list_attributes=True)}


class _Malformed(ValueError):
    """Input of another shape; the text names the field."""


def answer(case: Any, programs: Programs | None = None) -> dict[str, Any]:
    """The answer to one case: `{"name", "result": "true"|"false"|"error"|"reject", "message"?}`. Never raises."""
    name = case.get("name", "") if isinstance(case, dict) else ""
    try:
        expression, gates = _question(case)
        try:
            program = (programs or Programs(0)).compile(expression, gates)
        except CelCompileError as error:
            return {"name": name, "result": "reject", "message": str(error)}
        matches = program.evaluate(_view(case.get("device"), gates))
    except (CelRuntimeError, _Malformed) as error:
        return {"name": name, "result": "error", "message": str(error)}
    return {"name": name, "result": "true" if matches else "false"}


def _question(case: Any) -> tuple[str, CelGates]:
    if not isinstance(case, dict):
        raise _Malformed("a case must be an object with expression and device")
    expression = case.get("expression")
    if not isinstance(expression, str):
        raise _Malformed("expression: must be a string")
    gates = case.get("gates", "default")
    if not isinstance(gates, str) or gates not in GATES:
        raise _Malformed(f"gates: must be one of {', '.join(GATES)}")
    return expression, GATES[gates]


def _view(device: Any, gates: CelGates) -> DeviceView:
    if not isinstance(device, dict | None):
        raise _Malformed("device: must be an object")
    fields = {"name": "device", **(device or {})}
    driver = fields.pop("driver", "")
    if not isinstance(driver, str):
        raise _Malformed("device.driver: must be a string")
    try:
        return DeviceView.build(PublishedDevice.of(driver, convert(Device, fields)), gates)
    except DecodeError as error:
        raise _Malformed(f"device: {error.problem}") from None
    except (ValueError, OverflowError) as error:
        raise _Malformed(f"device: {error}") from None
