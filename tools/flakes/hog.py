"""Somebody else on this machine, who wants every core as much as the tests do."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hog(cores: int) -> Iterator[None]:
    """So many processes that never rest; they end with the block, and with this process however it ends."""
    context = multiprocessing.get_context("spawn")
    hogs = [context.Process(target=_never_rest, args=(os.getpid(),), daemon=True) for _ in range(cores)]
    for one in hogs:
        one.start()
    try:
        yield
    finally:
        for one in hogs:
            one.terminate()
        for one in hogs:
            one.join()


def _never_rest(parent: int) -> None:
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass
