"""Device classes by name.

Promises: `stamp` tells two versions of a class apart for ever, also across deletion and creation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from dra_extender.api.resource import DeviceClass


class Classes(Mapping[str, DeviceClass]):
    """The known device classes. Changed by the inventory only."""

    def __init__(self) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._stamps: dict[str, int] = {}
        self._next = count(1)
        self.version = 0
        """Grows with every change of a spec."""

    def __getitem__(self, name: str) -> DeviceClass:
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def stamp(self, name: str) -> int:
        """A number that changes with every change of the class's spec; 0 when there is no such class."""
        return self._stamps.get(name, 0)

    def put(self, device_class: DeviceClass) -> bool:
        """Add or replace. True when the spec is new or changed."""
        name = device_class.metadata.name
        before = self._classes.get(name)
        self._classes[name] = device_class
        if before is not None and before.spec == device_class.spec:
            return False
        self._stamps[name] = next(self._next)
        self.version += 1
        return True

    def drop(self, name: str) -> bool:
        """Remove. True when the class was known."""
        if self._classes.pop(name, None) is None:
            return False
        del self._stamps[name]
        self.version += 1
        return True
