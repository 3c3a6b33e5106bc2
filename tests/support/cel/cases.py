"""Selectors with one device each, and the answer to each of them."""

from __future__ import annotations

from typing import Any, Final, Literal

from dra_extender.api.decoding import DecodeError, convert
from dra_extender.api.resource import Device
from dra_extender.cel import CelCompileError, CelGates, CelRuntimeError, Programs
from dra_extender.cel.device import DeviceView, PublishedDevice

Result = Literal["true", "false", "error", "reject"]
_PROGRAMS: Final = Programs(0)


def answer_of(case: dict[str, Any]) -> tuple[Result, str]:
    """The result of `expression` on `device`, and the message of an error. `gates` "lists": list attributes are on."""
    gates = CelGates(list_attributes=case["gates"] == "lists")
    given = {"name": "device", **(case.get("device") or {})}
    driver = given.pop("driver", "")
    try:
        program = _PROGRAMS.compile(case["expression"], gates)
        published = PublishedDevice.of(driver, convert(Device, given))
        return ("true" if program.evaluate(DeviceView.build(published, gates)) else "false"), ""
    except CelCompileError as error:
        return "reject", str(error)
    except (CelRuntimeError, DecodeError, ValueError, OverflowError) as error:
        return "error", str(error)
