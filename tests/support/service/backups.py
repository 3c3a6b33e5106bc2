"""Backups of the state of an embedded API server, as etcd has them."""

from __future__ import annotations

from embedded_cluster import EmbeddedAPIServer
from embedded_cluster.apiserver.storage import Key, Stored

Backup = tuple[int, dict[tuple[str, str], dict[Key, Stored]]]
"""The revision and the objects of each collection."""


def back_up(server: EmbeddedAPIServer) -> Backup:
    """The state now."""
    storage = server.storage
    return storage.revision, {key: dict(each.items) for key, each in storage.collections.items()}


def restore(server: EmbeddedAPIServer, backup: Backup, *, bump: int = 0) -> None:
    """Set the server back, as a restart with a restored etcd does. `bump`: how many revisions are skipped, so that
    watches at earlier ones expire.
    """
    storage = server.storage
    storage.revision, items = backup
    storage.revision += bump
    for key, collection in storage.collections.items():
        collection.items = dict(items.get(key, {}))
        collection.history.clear()
        collection.forgotten, collection._sorted = storage.revision if bump else 0, None
    server.faults.cut_watches()
