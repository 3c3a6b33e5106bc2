"""What one demo has for itself: a directory and its ports. Two demos at once do not get the same.

Promises: what cannot be had is an OSError that names the option. A service port that is
taken is refused: another demo's service may listen there and would answer in place of this one.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

USUAL_PORT: Final = 8888


def api_port(wanted: int) -> int:
    """The wanted port; 0 stays 0: the API server then takes any."""
    return _untaken("--port", wanted) if wanted else 0


@contextmanager
def service_port(wanted: int) -> Iterator[int]:
    """The wanted port; without a wish the usual one, or any when that is taken."""
    with (Path(tempfile.gettempdir()) / f"dra-extender-demo-{os.getuid()}.lock").open("a") as lock:
        if wanted:
            yield _untaken("--service-port", wanted)
        else:
            yield USUAL_PORT if _locked(lock) and _problem(USUAL_PORT) is None else _any_port()


@contextmanager
def claimed(wanted: Path) -> Iterator[Path]:
    """The directory, empty of what an earlier demo left; one with a number after its name while another demo runs in
    it. What leads to the cluster is gone afterwards, as the cluster is.
    """
    for number in itertools.count(1):
        directory = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        with _lock_file(directory) as lock:
            if not _locked(lock):
                continue
            (directory / "service.log").unlink(missing_ok=True)
            try:
                yield directory
            finally:
                (directory / "kubeconfig").unlink(missing_ok=True)
            return


def _lock_file(directory: Path) -> IO[str]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return (directory / "lock").open("w")
    except OSError as problem:
        raise OSError(f"{directory} cannot be written: {problem.strerror}; name another with --directory") from None


def _untaken(option: str, port: int) -> int:
    problem = _problem(port)
    if problem is not None:
        raise OSError(f"{option} {port}: {problem}; name another port, or leave the option away for a free one")
    return port


def _problem(port: int) -> str | None:
    """Why no process can listen there."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as problem:
        return os.strerror(problem.errno or 0)
    return None


def _any_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number: int = probe.getsockname()[1]
        return number


def _locked(file: IO[str]) -> bool:
    """True when no other process has the lock; it ends with the file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
