"""containerd with all that it has below one folder."""

from __future__ import annotations

import json
import os
import shutil
from functools import cached_property
from pathlib import Path

from tests.e2e.components import free_port
from tests.e2e.plane import Plane
from tests.support.node import image
from tests.support.node.machine import (
    PLUGINS,
    RUNTIME,
    Bridge,
    arguments_of,
    fill_memory_beside,
    kill,
    processes_below,
    run,
    text_of,
    unmount_below,
)

CONFIGURATION = """\
version = 3
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[metrics]
  address = "127.0.0.1:{port}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{sandbox}"
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["{cdi}"]
  restrict_oom_score_adj = {restricted}
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      Root = "{state}/runc"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{plugins}"]
    conf_dir = "{network}"
"""
"""`restrict_oom_score_adj`: where root may not lower it, as in many containers."""


class Runtime:
    """`folder` has a short path: sockets are below it. Images stay over `stop`, containers do not."""

    def __init__(self, plane: Plane, name: str, folder: Path, bridge: Bridge) -> None:
        self._plane = plane
        self._name = f"containerd-{name}"
        self._folder = folder
        self._bridge = bridge
        self._state = folder / "state"
        self.socket = self._state / "containerd.sock"
        self.cdi = folder / "cdi"

    @cached_property
    def _snapshotter(self) -> str:
        """The native one copies each image for each container: minutes for large ones, but it works everywhere."""
        return "overlayfs" if _has_overlays(self._folder) else "native"

    def start(self) -> None:
        port = free_port()
        file = self._folder / "containerd.toml"
        file.write_text(self._configuration(port))
        self.cdi.mkdir(exist_ok=True)
        url = f"http://127.0.0.1:{port}/v1/metrics"
        self._plane.start_component(self._name, RUNTIME / "containerd", url, f"--config={file}", "--log-level=info")

    def _configuration(self, port: int) -> str:
        network = self._folder / "net.d"
        network.mkdir(exist_ok=True)
        (network / "pods.conflist").write_text(json.dumps(self._pod_network()))
        return CONFIGURATION.format(
            root=self._folder / "root",
            state=self._state,
            socket=self.socket,
            port=port,
            snapshotter=self._snapshotter,
            sandbox=image.NAME,
            cdi=self.cdi,
            restricted="false" if _may_lower_oom_score() else "true",
            plugins=PLUGINS,
            runc=RUNTIME / "runc",
            network=network,
        )

    def _pod_network(self) -> dict[str, object]:
        routes = [{"dst": "0.0.0.0/0"}]
        given = {"subnet": self._bridge.subnet, "dataDir": str(self._state / "addresses"), "routes": routes}
        addresses = {"type": "host-local", **given}
        bridge = {"type": "bridge", "bridge": self._bridge.name, "isGateway": True, "ipam": addresses}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}

    def add_image(self, archive: Path) -> None:
        """Import it; it is there after `stop` and `start`, too."""
        self._ctr("images", "import", "--local", f"--snapshotter={self._snapshotter}", str(archive))

    def stop(self) -> None:
        """End all containers, then containerd. Nothing of either is left but files."""
        if self._name in self._plane.components:
            self._plane.stop_component(self._name)
        kill(self._containers())
        kill(processes_below(self._state))  # the shims
        unmount_below(self._folder)
        shutil.rmtree(self._state, ignore_errors=True)

    def crash(self, program: str) -> None:
        """End the containers with this in their command line, as a crash ends them."""
        kill([each for each in self._containers() if program in arguments_of(each)])

    def exhaust_memory(self, container: str) -> None:
        """Use up the memory that a container may have, by its id. The kernel ends it."""
        (process,) = self._containers(container)
        fill_memory_beside(process)

    def _containers(self, container: str = "*") -> list[int]:
        """Their first processes."""
        files = self._state.glob(f"io.containerd.runtime.v2.task/k8s.io/{container}/init.pid")
        return [int(text) for file in files if (text := text_of(file))]

    def _ctr(self, *arguments: str) -> str:
        return run(RUNTIME / "ctr", f"--address={self.socket}", "--namespace=k8s.io", *arguments)


def _may_lower_oom_score() -> bool:
    file = Path("/proc/self/oom_score_adj")
    before = file.read_text()
    try:
        file.write_text(str(int(before) - 1))
        file.write_text(before)
    except OSError:
        return False
    return os.geteuid() == 0


def _has_overlays(folder: Path) -> bool:
    """Whether the file system of the folder can be below an overlay."""
    lower, upper, work, merged = (folder / f"overlay-{name}" for name in ("lower", "upper", "work", "merged"))
    for each in (lower, upper, work, merged):
        each.mkdir()
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    refused = run("mount", "-t", "overlay", "overlay", "-o", options, merged, check=False)
    if not refused:
        run("umount", merged)
    for each in (lower, upper, work, merged):
        shutil.rmtree(each)
    return not refused
