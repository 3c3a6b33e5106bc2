"""Device classes by name, and by the extended resource they stand for.

Promises: `stamp` tells two versions of a class apart for ever, also across deletion and creation. The
extended-resource index is derived from the full list, so deleting one of two classes with one resource name leaves
the other in charge.

Rules: Kubernetes 1.36, dynamic-resource-allocation/deviceclass/extendedresourcecache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from app.api.resource import EXTENDED_RESOURCE_CLASS_PREFIX, DeviceClass


class Classes(Mapping[str, DeviceClass]):
    """The known device classes. Changed by the inventory only."""

    def __init__(self) -> None:
        self._classes: dict[str, DeviceClass] = {}
        self._stamps: dict[str, int] = {}
        self._next = count(1)
        self._by_resource: dict[str, set[str]] = {}

    def __getitem__(self, name: str) -> DeviceClass:
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def stamp(self, name: str) -> int:
        """A number that changes with every change of the class's spec; 0 when there is no such class."""
        return self._stamps.get(name, 0)

    def for_resource(self, resource: str) -> DeviceClass | None:
        """The class behind an extended resource: the newest that claims the name (the lexically smaller of equally old
        ones), else the class that the implicit name `deviceclass.resource.kubernetes.io/CLASS` spells out.
        """
        claiming = self._by_resource.get(resource)
        if claiming:
            newest = max(self._created(name) for name in claiming)
            return self._classes[min(name for name in claiming if self._created(name) == newest)]
        if resource.startswith(EXTENDED_RESOURCE_CLASS_PREFIX):
            return self._classes.get(resource.removeprefix(EXTENDED_RESOURCE_CLASS_PREFIX))
        return None

    def _created(self, name: str) -> str:
        return self._classes[name].metadata.creation_timestamp or ""

    def put(self, device_class: DeviceClass) -> bool:
        """Add or replace. True when the spec is new or changed."""
        name = device_class.metadata.name
        before = self._classes.get(name)
        if before is not None:
            self._unlink(before)
        self._classes[name] = device_class
        resource = device_class.spec.extended_resource_name
        if resource:
            self._by_resource.setdefault(resource, set()).add(name)
        if before is not None and before.spec == device_class.spec:
            return False
        self._stamps[name] = next(self._next)
        return True

    def drop(self, name: str) -> bool:
        """Remove. True when the class was known."""
        before = self._classes.pop(name, None)
        if before is None:
            return False
        self._unlink(before)
        del self._stamps[name]
        return True

    def _unlink(self, device_class: DeviceClass) -> None:
        resource = device_class.spec.extended_resource_name
        if resource:
            claiming = self._by_resource[resource]
            claiming.discard(device_class.metadata.name)
            if not claiming:
                del self._by_resource[resource]
