"""What is read of a device, as something to compare.

Promises: devices that look the same get the same answers from every selector and constraint whose reads the look was
made for, and their traits are equal in everything but ordinary attributes that nobody reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from dra_extender.devices.models import DeviceModel

Reads = frozenset[tuple[str, str]] | None
"""(domain, id) of the attributes that are read, ("*", domain) where only the domain's existence is; None: all."""

DOMAIN = "*"


class Look:
    """For these reads. It is asked about every device of a cluster, so what a driver publishes is sorted out once."""

    __slots__ = ("_domains", "_names", "_reads")

    def __init__(self, reads: frozenset[tuple[str, str]]) -> None:
        self._reads = reads
        self._names: dict[str, tuple[str, ...]] = {}
        self._domains = sorted(domain for kind, domain in reads if kind == DOMAIN)

    def of(self, model: DeviceModel) -> Hashable:
        """Equal for devices that one of them can stand for."""
        driver, attributes = model.traits.driver, model.traits.attributes
        names = self._names.get(driver)
        if names is None:
            names = self._names[driver] = _published_names(self._reads, driver)
        key: tuple[Hashable, ...] = (model.rest, *map(attributes.get, names))
        if self._domains:
            present = {_domain(name, driver) for name in attributes}
            key = (*key, *(domain in present for domain in self._domains))
        return key


def _published_names(reads: Iterable[tuple[str, str]], driver: str) -> tuple[str, ...]:
    """The names under which a driver can publish what is read: with the domain, or without it when it is the driver."""
    names: set[str] = set()
    for domain, identifier in reads:
        if domain != DOMAIN:
            names.add(f"{domain}/{identifier}")
            if domain == driver:
                names.add(identifier)
    return tuple(sorted(names))


def _domain(name: str, driver: str) -> str:
    domain, slash, _ = name.partition("/")
    return domain if slash else driver
