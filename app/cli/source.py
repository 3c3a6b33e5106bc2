"""Where a command reads the state that it is asked about."""

from __future__ import annotations

import msgspec

from app.api.features import FeatureGates
from app.cli.cluster import Snapshot, read_cluster


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster of a kubeconfig, as the flags of a command name it, seen with these feature gates."""

    gates: str = ""
    kubeconfig: str = ""
    context: str = ""

    async def read(self, *, evictions: bool = False) -> Snapshot:
        """See `read_cluster`. Raises ApiError, CredentialsError and ValueError."""
        return await read_cluster(self.kubeconfig, self.context, FeatureGates.parse(self.gates), evictions=evictions)
