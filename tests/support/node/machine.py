"""What real nodes need of this machine, and what they leave on it: nothing."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.e2e.components import BUILT, NotBuiltError, assets
from tests.support.patience import LONGEST

RUNTIME = BUILT.parent
"""The folder with containerd, its shim, ctr and runc."""
PLUGINS = Path("/usr/lib/cni")
SECCOMP = Path("/usr/include/seccomp.h")
"""What runc is built with."""
PACKAGES = ("containernetworking-plugins", "iproute2", "nftables", "libseccomp-dev", "gcc", "pkg-config")
CGROUPS = Path("/sys/fs/cgroup")
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
"""The plugin of pod networks turns it on."""
TRACES = tuple(map(Path, ("/var/lib/kubelet", "/var/log/containers", "/run/containerd", "/run/netns")))
"""Where kubelet and containerd write, whatever their configuration says."""


def missing() -> str:
    """Why no node can run here, and what helps; empty when one can."""
    if os.geteuid() != 0:
        return "kubelet and containers need root: run `make node` as root"
    if not (PLUGINS / "bridge").exists() or not all(map(shutil.which, ("ip", "nft"))):
        return f"no pod network: apt-get install --no-install-recommends {' '.join(PACKAGES)}"
    try:
        assets(("kubelet", "kube-proxy", "test-driver", "driver", "pod"))
    except NotBuiltError:
        return "kubelet and drivers are not built: run `make node` (needs Go)"
    if not all(os.access(RUNTIME / name, os.X_OK) for name in ("containerd", "runc", "coredns")):
        return f"containerd, runc or CoreDNS is not built: run `make node` (needs Go, {' '.join(PACKAGES)})"
    if not (CGROUPS / "memory" / "cgroup.procs").exists() and not (CGROUPS / "cgroup.controllers").exists():
        return f"no cgroups at {CGROUPS}"
    tried = run("unshare", "--mount", "--net", "--pid", "--fork", "true", check=False)
    return f"nobody can start containers on this machine: {tried}" if tried else ""


def run(*command: str | Path, check: bool = True) -> str:
    """What a command prints; with `check` it raises CalledProcessError with that as a note."""
    told = list(map(str, command))
    done = subprocess.run(told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if check and done.returncode:
        problem = subprocess.CalledProcessError(done.returncode, told)
        problem.add_note(done.stdout)
        raise problem
    return done.stdout


POD_NETWORK = "10.197.0.0/16"
NAMES = "dra-node"
"""How the names of bridges and of nodes' folders begin."""
FOLDERS = Path("/tmp")
"""Where nodes have their folders: sockets need short paths."""
LOCK = FOLDERS / "dra-nodes.lock"
"""Names the folder with everything else of the run that has nodes; empty after a run that ended."""


class Bridge:
    """A network of the pods of one node: `address` is the node, its pods are behind it. Enter it to have it."""

    def __init__(self, number: int) -> None:
        self.name = f"{NAMES}{number}"
        self.subnet = f"10.197.{number}.0/24"
        self.address = f"10.197.{number}.1"

    def __enter__(self) -> Self:
        run("ip", "link", "add", "name", self.name, "type", "bridge")
        run("ip", "address", "add", f"{self.address}/24", "dev", self.name)
        run("ip", "link", "set", self.name, "up")
        return self

    def __exit__(self, *_: object) -> None:
        run("ip", "link", "delete", self.name, check=False)


def mounts_below(folder: Path) -> list[str]:
    """The last mounted first."""
    points = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [point for point in reversed(points) if Path(point).is_relative_to(folder)]


def unmount_below(folder: Path) -> None:
    for point in mounts_below(folder):
        run("umount", "--lazy", point)


def processes_below(folder: Path) -> list[int]:
    """The processes that have a path below the folder among their arguments, or in their environment."""
    processes = [int(each.name) for each in Path("/proc").glob("[0-9]*")]
    told = {process: arguments_of(process) + text_of(Path(f"/proc/{process}/environ")) for process in processes}
    return [process for process, text in told.items() if f"{folder}/" in text]


def arguments_of(process: int) -> str:
    """Its command line; nothing where the process has ended."""
    return text_of(Path(f"/proc/{process}/cmdline"))


def text_of(file: Path) -> str:
    """Nothing where the file, or the process that it tells of, is gone: both can go at any time."""
    try:
        return file.read_bytes().decode(errors="replace")
    except OSError:
        return ""


_FILLER = """
import os, sys
with open(sys.argv[1], "w") as processes:
    processes.write("0")  # this process
file = os.memfd_create("filler")
while True:
    os.write(file, bytes(1 << 20))
"""


def fill_memory_beside(process: int) -> None:
    """Use up the memory that the cgroup of a process may have, until the kernel ends its processes.

    The pages belong to a file, so the kernel ends the process first, and the one that fills when it fills on.
    """
    lines = Path(f"/proc/{process}/cgroup").read_text().splitlines()
    groups = {controllers: group.lstrip("/") for _, controllers, group in (line.split(":", 2) for line in lines)}
    group = CGROUPS / "memory" / groups["memory"] if "memory" in groups else CGROUPS / groups[""]
    filler = subprocess.run([sys.executable, "-c", _FILLER, group / "cgroup.procs"], check=False)
    assert filler.returncode == -signal.SIGKILL


def kill(processes: Sequence[int]) -> None:
    """End them at once, and wait until they have ended."""
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + LONGEST
    while any(_runs(process) for process in processes):
        assert time.monotonic() < deadline, f"{processes} do not end"
        time.sleep(0.02)


def _runs(process: int) -> bool:
    status = text_of(Path(f"/proc/{process}/stat"))
    return bool(status) and ") Z " not in status


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One run of tests at a time has nodes on this machine; it first removes what a run that was killed left.

    `folder` has the control planes of this run. Those of a killed run would answer in place of its own: the
    addresses of nodes are the same in each run.
    """
    with LOCK.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another run of tests has nodes on this machine: {LOCK} is locked") from None
        lock.seek(0)
        if killed := lock.read():
            kill(processes_below(Path(killed)))
        lock.truncate(0)
        lock.write(str(folder))
        lock.flush()
        remove_leftovers(NAMES)
        remove_service_rules()
        try:
            yield
        finally:
            lock.truncate(0)


def remove_leftovers(names: str) -> None:
    """Processes, mounts, folders and bridges of nodes whose names begin so."""
    for folder in FOLDERS.glob(f"{names}[0-9]*-*/"):
        kill(processes_below(folder))
        unmount_below(folder)
        shutil.rmtree(folder)
    for line in run("ip", "-brief", "link", "show", "type", "bridge").splitlines():
        if (bridge := line.split()[0]).startswith(names):
            run("ip", "link", "delete", bridge)


def remove_service_rules() -> None:
    """What kube-proxy wrote."""
    for family in ("ip", "ip6"):
        run("nft", "delete", "table", family, "kube-proxy", check=False)


class Untouched:
    """Enter it before the first node. At the end, what nodes leave outside of their folders is removed."""

    def __init__(self) -> None:
        self._before: set[Path] = set()
        self._forwarding = ""

    def __enter__(self) -> Self:
        self._before = {path for path in (*TRACES, *_cgroups()) if path.exists()}
        self._forwarding = FORWARDING.read_text()
        _weigh_containers()
        return self

    def __exit__(self, *_: object) -> None:
        FORWARDING.write_text(self._forwarding)
        for path in TRACES:
            if path not in self._before:
                shutil.rmtree(path, ignore_errors=True)
        for path in _cgroups():
            if path not in self._before:
                path.rmdir()


GROUP = "k8s.io"
"""The group of all containers of all nodes, in each hierarchy."""
PROCESSES = 16
"""As many processes of the machine get as much CPU as all containers together; usually it would be one of them."""


def _weigh_containers() -> None:
    """Otherwise pods on a machine that does something else, too, end by their probes before they have started."""
    for root, file, one in ((CGROUPS / "cpu", "cpu.shares", 1024), (CGROUPS, "cpu.weight", 100)):
        if (root / "cgroup.procs").exists():
            (root / GROUP).mkdir(exist_ok=True)
            if (root / GROUP / file).exists():
                (root / GROUP / file).write_text(str(PROCESSES * one))


def _cgroups() -> list[Path]:
    """The groups of containers in all hierarchies, the innermost first."""
    roots = [*CGROUPS.glob(GROUP), *CGROUPS.glob(f"*/{GROUP}")]
    return [path for root in roots for path in [*sorted(root.rglob("*/"), reverse=True), root]]
