"""One question of `selector --batch`: does this device match this selector?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dra_extender.api.quantity import Quantity
from dra_extender.api.semver import VersionText
from dra_extender.cel.device import DeviceView
from dra_extender.cel.environment import CelGates
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import compile_selector

GATES: Final = {"default": CelGates(), "lists": CelGates(list_attributes=True)}


class _Malformed(ValueError):
    """Input that is not what it should be; the text names the field."""


def answer(case: Any) -> dict[str, Any]:
    """The answer to one case: `{"name", "result": "true"|"false"|"error"|"reject", "message"?}`. Never raises."""
    name = case.get("name", "") if isinstance(case, dict) else ""
    try:
        expression, gates = _question(case)
        try:
            program = compile_selector(expression, gates)
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


def _object(value: Any, field: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Malformed(f"{field}: must be an object")
    return value


def _view(device: Any, gates: CelGates) -> DeviceView:
    fields = _object(device, "device")
    driver = fields.get("driver", "")
    if not isinstance(driver, str):
        raise _Malformed("device.driver: must be a string")
    attributes = {
        name: _attribute(_object(value, f"device.attributes.{name}"), name)
        for name, value in _object(fields.get("attributes"), "device.attributes").items()
    }
    capacity = {
        name: _quantity(_object(value, f"device.capacity.{name}").get("value"), name)
        for name, value in _object(fields.get("capacity"), "device.capacity").items()
    }
    allow_multiple = fields.get("allowMultipleAllocations")
    if allow_multiple is not None and not isinstance(allow_multiple, bool):
        raise _Malformed("device.allowMultipleAllocations: must be true or false")
    return DeviceView.build(driver, attributes, capacity, bool(allow_multiple), gates)


def _quantity(value: Any, name: str) -> Quantity:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _Malformed(f"device.capacity.{name}.value: must be a quantity")
    try:
        return Quantity.parse(str(value).strip())
    except ValueError as error:
        raise _Malformed(f"device.capacity.{name}.value: {error}") from None


_FIELDS: Final[tuple[tuple[str, type], ...]] = (
    ("ints", int), ("bools", bool), ("strings", str), ("versions", str),
    ("int", int), ("bool", bool), ("string", str), ("version", str),
)  # fmt: skip


def _attribute(value: Mapping[str, Any], name: str) -> Any:
    """The plain value of an attribute; None for one of a type this version does not know."""
    for field, kind in _FIELDS:
        found = value.get(field)
        if found is None:
            continue
        items = found if field.endswith("s") else [found]
        if not isinstance(items, list) or any(item.__class__ is not kind for item in items):
            raise _Malformed(f"device.attributes.{name}.{field}: must be {kind.__name__}")
        plain = [VersionText(item) for item in items] if field.startswith("version") else items
        return plain if field.endswith("s") else plain[0]
    return None
