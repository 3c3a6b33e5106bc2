"""Extended resources by name: which device classes stand behind them, and which names nobody knows.

Promises: `wanted` and `is_orphaned` are questions; what they are answered from changes through `class_seen`,
`classes_changed` and `asked_for` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cachetools import LRUCache

from dra_extender.api.core import Pod
from dra_extender.api.resource import DeviceClass
from dra_extender.scheduling import extended
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.ports import Clock

REMEMBERED_NAMES = 10_000


class ResourceNames:
    """`classes` is the live mapping of device classes by name."""

    def __init__(self, classes: Mapping[str, DeviceClass], clock: Clock, config: SchedulingConfig) -> None:
        self._classes = classes
        self._clock = clock
        self._config = config
        self._class_names: dict[str, str] | None = None
        self._provided: set[str] = set()
        """Names that classes stand or once stood behind."""
        self._asked: LRUCache[str, float] = LRUCache(REMEMBERED_NAMES)
        """Other names, and since when pods ask for them (monotonic seconds)."""

    # --- what happened ----------------------------------------------------------------------------------------------

    def class_seen(self, device_class: DeviceClass) -> None:
        """A class came or changed."""
        if device_class.spec.extended_resource_name:
            self._provided.add(device_class.spec.extended_resource_name)
        self.classes_changed()

    def classes_changed(self) -> None:
        """A class came, changed or went."""
        self._class_names = None

    def asked_for(self, names: Iterable[str]) -> None:
        """A pod is about to be bound that asks for these, which neither its node nor a class provides."""
        now = self._clock.monotonic()
        for name in names:
            if name not in self._provided:
                self._asked.setdefault(name, now)

    # --- questions --------------------------------------------------------------------------------------------------

    def wanted(self, pod: Pod) -> extended.ExtendedResources | None:
        """The extended resources of the pod that devices may provide; None for almost all pods."""
        if self._class_names is None:
            self._class_names = extended.class_names(self._classes.values())
        return extended.wanted(pod, self._class_names, self._classes)

    def is_orphaned(self, names: Iterable[str]) -> bool:
        """True when a class may stand behind one of the names: it has gone, or has not come yet. A name that no class
        was ever seen for belongs to somebody else once it has been asked for longer than we go on without a watch.
        """
        now, doubt = self._clock.monotonic(), self._config.doubt_seconds
        return any(name in self._provided or now - self._asked.get(name, now) < doubt for name in names)
