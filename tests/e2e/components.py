"""The binaries of a control plane and the processes they become: where they are, when they are ready, how they end."""

from __future__ import annotations

import os
import random
import re
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.patience import LONGEST

BUILT = Path(__file__).resolve().parents[1] / "controlplane" / "bin" / "current"
BINARIES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")

_BLOCK = 1_000
_BLOCKS = range(16_000, 32_000, _BLOCK)
"""Ports below net.ipv4.ip_local_port_range and above those of usual services."""
_taken: set[int] = set()


class NotBuiltError(RuntimeError):
    """The binaries of the control plane are not there."""


class ComponentError(RuntimeError):
    """A component did not start, or ended on its own."""


def assets(needed: Sequence[str] = BINARIES) -> Path:
    """The folder with the binaries; raises NotBuiltError, saying what to do, when one that is needed is missing."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or BUILT)
    missing = [name for name in needed if not os.access(folder / name, os.X_OK)]
    if missing:
        raise NotBuiltError(
            f"{', '.join(missing)} missing in {folder}: run `make -C tests/controlplane` (needs Go), "
            "or set KUBEBUILDER_ASSETS to a folder that has them"
        )
    return folder


def release(binary: str = "kube-apiserver") -> tuple[int, int]:
    """Major and minor number of the Kubernetes release that a binary is of."""
    said = subprocess.run([assets([binary]) / binary, "--version"], capture_output=True, text=True, check=True).stdout
    return numbers(said.split()[1])


def numbers(version: str) -> tuple[int, int]:
    """Major and minor number of a version like v1.37.2."""
    major, minor = version.removeprefix("v").split(".")[:2]
    return int(major), int(minor)


def offered(gates: Mapping[str, bool], binary: str = "kube-apiserver") -> dict[str, bool]:
    """Those of the feature gates that this release can switch: the others it does not know yet, or has on for good."""
    said = subprocess.run([assets([binary]) / binary, "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"\b(\w+)=true\|false", said))
    return {name: on for name, on in gates.items() if name in known}


def features_that_are_on(metrics: str) -> frozenset[str]:
    """The feature gates that are on, from the metrics of an API server."""
    return frozenset(re.findall(r'^kubernetes_feature_enabled\{name="(\w+)".*\} 1$', metrics, re.MULTILINE))


@dataclass
class Component:
    """One running process, its log and how to ask it whether it is ready."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    ready_url: str

    def wait_ready(self, trust: ssl.SSLContext) -> None:
        """Return when the component says it is ready; raises ComponentError with the end of its log."""
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ComponentError(f"{self.name} ended with {self.process.returncode}:\n{self.log_tail()}")
            if _answers(self.ready_url, trust):
                return
            time.sleep(0.1)
        raise ComponentError(f"{self.name} was not ready after {LONGEST:.0f} s:\n{self.log_tail()}")

    def metrics(self, trust: ssl.SSLContext) -> str:
        """The page of all metrics of a component that gives it to anybody, as schedulers do; `metric` reads it."""
        url = self.ready_url.rpartition("/")[0] + "/metrics"
        with urllib.request.urlopen(url, timeout=LONGEST, context=trust) as answer:
            return str(answer.read().decode())

    def stop(self) -> None:
        """End the process: politely, then for certain."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self.process.kill()
        self.process.wait()

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def free_port() -> int:
    """A port on which no process listens, below the range of outgoing connections, in a block of this process: it
    stays free while the process that listens on it is started, or started again, whatever other tests run.
    """
    begin = _block().getsockname()[1]
    while True:
        port = random.randrange(begin + 1, begin + _BLOCK)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue  # in use by another process
        if port not in _taken:
            _taken.add(port)
            return port


@cache
def _block() -> socket.socket:
    """Holds the first port of the block as long as this process runs."""
    for begin in random.sample(_BLOCKS, len(_BLOCKS)):
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", begin))
        except OSError:
            holder.close()  # a block of another process
        else:
            return holder
    raise OSError("all blocks of ports are in use")


def metric(page: str, name: str, **labels: str) -> float:
    """The sum of a metric over all its series with these labels. Raises KeyError when the page does not know it."""
    if f"# TYPE {name} " not in page and f"# TYPE {name.rpartition('_')[0]} histogram" not in page:
        raise KeyError(f"there is no metric {name}")
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    lines = (line for line in page.splitlines() if line.startswith((name + " ", name + "{")))
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(pair in line for pair in wanted))


def _answers(url: str, trust: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2, context=trust if url.startswith("https") else None) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
