"""What is served: one `Kind` per kind, one `ServedResource` per kind and version; finds them by a request's path.

A `Kind` is a declarative row: names, scope, subresources, categories, how it is printed and which `RESTStrategy`
enforces its rules. The rows are in kinds.py; nothing else in the server knows a kind by name except its strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from embedded_cluster.apiserver.printers import Printer
from embedded_cluster.apiserver.statuses import JSON
from embedded_cluster.apiserver.strategy import RESTStrategy

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a version whose form differs from the stored one is read and written. Arguments are not changed."""

    from_stored: Callable[[JSON], JSON]
    to_stored: Callable[[JSON], JSON]


@dataclass(frozen=True)
class Kind:
    """One kind; objects are stored in the form of `storage_version`, in the collection `stored_with` if that is set."""

    group: str
    storage_version: str
    kind: str
    plural: str
    namespaced: bool
    strategy: RESTStrategy
    printer: Printer
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    subresources: tuple[str, ...] = ()
    models: dict[str, str] = field(default_factory=dict)
    verbs: tuple[str, ...] = ALL_VERBS
    stored_with: tuple[str, str] | None = None

    @cached_property
    def singular(self) -> str:
        return self.kind.lower()

    @cached_property
    def key(self) -> tuple[str, str]:
        """Identifies the collection in storage, whatever the version."""
        return self.stored_with or (self.group, self.plural)

    def model(self, version: str) -> str:
        """The name of the model (schema.py) of this kind at `version`."""
        return self.models.get(version) or f"{version[0].upper()}{version[1:]}{self.kind}"


@dataclass(frozen=True)
class ServedResource:
    """A kind at one served version; `conversion` is None when its objects look as they are stored."""

    kind: Kind
    version: str
    conversion: Conversion | None = None
    deprecated: str = ""
    """In which releases this version is deprecated and gone, for the warning clients get."""

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What clients of this version are warned of."""
        return (f"{self.api_version} {self.kind.kind} is {self.deprecated}",) if self.deprecated else ()

    @cached_property
    def api_version(self) -> str:
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    @cached_property
    def type_meta(self) -> bytes:
        """How every encoded object of this resource starts, up to the comma before its metadata."""
        return f'{{"kind":"{self.kind.kind}","apiVersion":"{self.api_version}",'.encode()

    @cached_property
    def model(self) -> str:
        return self.kind.model(self.version)

    @cached_property
    def stored_api_version(self) -> str:
        """The apiVersion that objects of this resource carry in storage."""
        group = self.kind.key[0]
        return f"{group}/{self.kind.storage_version}" if group else self.kind.storage_version

    @cached_property
    def stored(self) -> bool:
        """True for the form objects are stored in."""
        return self.api_version == self.stored_api_version


class Registry:
    """The served resources; versions of a group are in order of preference."""

    def __init__(self, resources: Iterable[ServedResource]) -> None:
        self.resources = tuple(resources)
        self._by_path = {(r.kind.group, r.version, r.kind.plural): r for r in self.resources}
        self._by_kind = {(r.api_version, r.kind.kind): r for r in self.resources}
        self._by_plural: dict[str, ServedResource] = {}
        for resource in self.resources:
            if resource.kind.plural not in self._by_plural or resource.stored:
                self._by_plural[resource.kind.plural] = resource

    def find(self, group: str, version: str, plural: str) -> ServedResource | None:
        return self._by_path.get((group, version, plural))

    def of_object(self, api_version: str, kind: str) -> ServedResource | None:
        return self._by_kind.get((api_version, kind))

    def stored_form(self, plural: str) -> ServedResource:
        """The resource called `plural`, at its storage version if served, else at any; KeyError when unknown."""
        return self._by_plural[plural]

    def of_kind(self, kind: Kind) -> ServedResource:
        """Any resource of `kind`, best the one in stored form."""
        return next((r for r in self.resources if r.kind is kind and r.stored), None) or next(
            r for r in self.resources if r.kind is kind
        )

    def groups(self) -> dict[str, list[str]]:
        """Group -> served versions, the preferred first; the core group is ''."""
        groups: dict[str, list[str]] = {}
        for resource in self.resources:
            versions = groups.setdefault(resource.kind.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return groups

    def of_version(self, group: str, version: str) -> list[ServedResource]:
        return [r for r in self.resources if r.kind.group == group and r.version == version]

    def kinds(self) -> list[Kind]:
        seen: dict[tuple[str, str], Kind] = {}
        for resource in self.resources:
            seen.setdefault(resource.kind.key, resource.kind)
        return list(seen.values())
