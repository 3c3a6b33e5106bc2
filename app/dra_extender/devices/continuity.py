"""Whether a list of claims or pods can follow what the state has of them.

A list is a consistent read: it shows everything that the API server had shown or confirmed before the list was
requested. If a list does not, the API server has been set back, for example by a backup that was restored. Only a reply
that arrives while the list is read may be ahead of it. Versions of different kinds are not compared.
"""

from __future__ import annotations

from typing import Any

from dra_extender.api.core import Pod
from dra_extender.api.errors import SetBackError
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import ResourceClaim
from dra_extender.devices.ledger import Ledger, identity
from dra_extender.devices.pods import Pods


class Continuity:
    """`begin_list`, then `listed` for each object before it is applied, then `end_list`. Both raise SetBackError."""

    def __init__(self, ledger: Ledger, pods: Pods) -> None:
        self._ledger = ledger
        self._known: dict[str, Ledger | Pods] = {ResourceClaim.__name__: ledger, Pod.__name__: pods}
        self._floor: dict[str, int] = {}
        """By kind: the highest resourceVersion that was known when the list was requested."""
        self._gone: dict[str, set[str]] = {}
        """By kind that is being listed: the objects that a reply has shown to be gone since."""

    def gone(self, key: ObjectKey) -> None:
        """A reply has shown that the object does not exist."""
        if key.kind in self._gone:
            self._gone[key.kind].add(key.name)

    def begin_list(self, kind: str) -> None:
        """The list is requested now."""
        if kind in self._known:
            self._gone[kind], self._floor[kind] = set(), self._known[kind].newest

    def listed(self, obj: Any, complete: int) -> None:
        """The list has this object. `complete`: the watch has shown all versions up to this one."""
        kind, meta = type(obj).__name__, obj.metadata
        if kind not in self._known or meta.key in self._gone[kind]:
            return
        known = self._known[kind].by_key(meta.key)
        if known is not None and known.metadata.version > self._floor[kind]:
            return
        if 0 < meta.version <= complete:
            follows = known == obj
        elif known is not None and known.metadata.uid == meta.uid:
            follows = not 0 < meta.version < known.metadata.version
        else:
            follows = not isinstance(obj, ResourceClaim) or not self._ledger.was_deleted(identity(obj), meta.version)
        if not follows:
            before = f"version {known.metadata.resource_version}" if known is not None else "no such object"
            raise SetBackError(f"{kind} {meta.key} has version {meta.resource_version}; before: {before}")

    def end_list(self, kind: str, version: int) -> None:
        """The list is complete, at this resourceVersion."""
        self._gone.pop(kind, None)
        floor = self._floor.get(kind, 0)
        if 0 < version < floor:
            raise SetBackError(f"{kind}: a list has version {version}; version {floor} was known before")
