"""A selector tried on published devices: which match, which do not, and for which it fails.

Promises: every device of every slice gets an answer, in the order of the slices; an error is the answer for its device
and says what to write instead, where that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from app.api.resource import DeviceID, ResourceSlice, attribute_values
from app.cel.device import DeviceView
from app.cel.environment import CelGates
from app.cel.errors import CelRuntimeError
from app.cel.program import Program


class Trial(msgspec.Struct, frozen=True):
    """`matches` is None when the selector failed for the device; `problem` says why."""

    device: DeviceID
    matches: bool | None
    problem: str = ""


def try_selector(program: Program, slices: Iterable[ResourceSlice], gates: CelGates) -> Iterator[Trial]:
    """The answer of `program` for each device."""
    for published in slices:
        spec = published.spec
        for device in spec.devices:
            view = DeviceView.build(
                spec.driver,
                attribute_values(device.attributes),
                {name: capacity.value for name, capacity in device.capacity.items()},
                device.allow_multiple_allocations is True,
                gates,
            )
            name = (spec.driver, spec.pool.name, device.name)
            try:
                yield Trial(name, program.evaluate(view))
            except CelRuntimeError as error:
                yield Trial(name, None, str(error))
