"""The garbage collector of a process that is ours alone.

Promises: what is kept for as long as the cluster is followed is not looked through at every collection, which would
cost pauses for nothing. In a process of others nothing is tuned.
"""

from __future__ import annotations

import gc


class Memory:
    """`own`: nothing else of importance lives in this process."""

    def __init__(self, *, own: bool) -> None:
        self._own = own

    def keep(self) -> None:
        """What is there now stays, beside what stays already."""
        if self._own:
            gc.collect()
            gc.freeze()

    def keep_anew(self) -> None:
        """What is there now stays; what an engine before this one has left goes."""
        if self._own:
            gc.unfreeze()
        self.keep()
