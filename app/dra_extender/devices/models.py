"""Devices with equal traits share a model, so what follows from the traits (a selector's answer) is computed once."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from dra_extender.api.resource import Device, DeviceAttribute
from dra_extender.devices.content import Interner, digest, encode, shared_hashable
from dra_extender.devices.traits import Traits, traits_of

T = TypeVar("T")

REMEMBERED: Final = 512
"""How many answers a model remembers before it starts anew."""
MANY_ATTRIBUTES: Final = 64
LONG_TEXT: Final = 256


class DeviceModel:
    """Traits, and what was found out about them.

    `bare` and `rest` are equal for models whose traits are equal but for their attributes, or for ordinary ones. An
    attribute is ordinary when it has a plain value that nothing but itself depends on: versions, lists and unknown or
    overlong values are not, because one that cannot be used makes every selector fail on the device; nor is an unusual
    number of attributes, on which the cost of a selector may depend.

    Both are made when somebody asks: a decision about one node never compares models.
    """

    __slots__ = ("__weakref__", "_bare", "_rest", "memo", "traits")

    def __init__(self, traits: Traits) -> None:
        self.traits = traits
        self._bare = self._rest = b""
        self.memo: dict[Any, Any] = {}
        """Where callers may remember what follows from the traits alone. Use `remember`, which keeps it small."""

    @property
    def bare(self) -> bytes:
        """See the class."""
        if not self._bare:
            self._bare = shared_hashable(digest(_bare(self.traits)))
        return self._bare

    @property
    def rest(self) -> bytes:
        """See the class."""
        if not self._rest:
            attributes = self.traits.attributes
            odd = {name: value for name, value in attributes.items() if not _ordinary(value)}
            many = len(attributes) if len(attributes) > MANY_ATTRIBUTES else 0
            self._rest = shared_hashable(digest(_bare(self.traits), odd, many)) if odd or many else self.bare
        return self._rest

    def remember(self, key: Any, value: T, most: int = REMEMBERED) -> T:
        """Keep `value` under `key` in `memo`, of at most so many."""
        if len(self.memo) >= most:
            self.memo.clear()
        self.memo[key] = value
        return value


def _bare(traits: Traits) -> Traits:
    return msgspec.structs.replace(traits, attributes={})


def _ordinary(attribute: DeviceAttribute) -> bool:
    value = attribute.value
    return type(value) in (bool, int) or (type(value) is str and len(value) <= LONG_TEXT)


class DeviceModels:
    """Answers (driver, device) with one model for devices with equal traits, for as long as somebody holds it."""

    def __init__(self) -> None:
        self._models = Interner(DeviceModel)

    def __call__(self, driver: str, device: Device) -> DeviceModel:
        traits = traits_of(driver, device)
        return self._models.of(digest(traits), traits)


class FewDeviceModels:
    """As `DeviceModels`, but keeps what it answered itself, and content as it is: less work for the devices of a node,
    too much memory for those of a cluster.
    """

    def __init__(self) -> None:
        self._models: dict[bytes, DeviceModel] = {}

    def __call__(self, driver: str, device: Device) -> DeviceModel:
        traits = traits_of(driver, device)
        content = encode(traits)
        found = self._models.get(content)
        if found is None:
            found = self._models[content] = DeviceModel(traits)
        return found
