"""A node of the cluster on this machine: containerd, kubelet and DRA drivers, with everything below one folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tests.e2e.components import free_port
from tests.e2e.plane import Plane
from tests.support.node import image
from tests.support.node.driver import Place, TestDriver
from tests.support.node.machine import FOLDERS, NAMES, Bridge, mounts_below, processes_below, run
from tests.support.node.network import DNS
from tests.support.node.runtime import Runtime


class Node:
    """Enter it to start everything but drivers. Several nodes can run at once; `number` counts them from 1."""

    def __init__(self, plane: Plane, number: int) -> None:
        self.plane = plane
        self.name = f"real-{number}"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{NAMES}{number}-", dir=FOLDERS))
        self.bridge = Bridge(number)
        self.runtime = Runtime(plane, self.name, self.folder, self.bridge)
        self.place = Place(plane, self.name, self.folder / "kubelet", self.runtime.cdi)
        self.test_driver = TestDriver(self.place)
        self._component = f"kubelet-{self.name}"
        self._port, self._health = free_port(), free_port()

    def __enter__(self) -> Self:
        try:
            self.bridge.__enter__()
            self.runtime.start()
            archive = self.folder / "pod.tar"
            image.write(archive, image.NAME, {"/pod": self.plane.binaries / "pod"})
            self.runtime.add_image(archive)
            self.start_kubelet()
            ready = ("--for=condition=Ready", "--timeout=90s")
            self.plane.kubectl("wait", "--for=create", "--timeout=90s", f"node/{self.name}")
            self.plane.kubectl("wait", *ready, f"node/{self.name}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.test_driver.stop()
        self.stop_kubelet()
        self.runtime.stop()
        self.bridge.__exit__()
        assert mounts_below(self.folder) == []
        assert processes_below(self.folder) == []
        shutil.rmtree(self.folder)

    @property
    def logs(self) -> Path:
        """The folder with the output of containers."""
        return self.folder / "logs"

    def limit_logs(self) -> None:
        """A small file system for them, before the first container. It is gone when the runtime stops."""
        run("mount", "-t", "tmpfs", "-o", "size=32m", "logs", self.logs)

    @contextmanager
    def without_space_for_logs(self) -> Iterator[None]:
        """Meanwhile. What fills them has no name: kubelet removes what belongs to no pod."""
        with tempfile.TemporaryFile(dir=self.logs, buffering=0) as filler:
            with suppress(OSError):
                while filler.write(bytes(1 << 16)):
                    continue
            yield

    def start_kubelet(self) -> None:
        file = self.folder / "kubelet.yaml"
        file.write_text(json.dumps(self._configuration()))
        self.plane.start_component(
            self._component,
            "kubelet",
            f"http://127.0.0.1:{self._health}/healthz",
            f"--config={file}",
            f"--kubeconfig={self.plane.user_kubeconfig(f'system:node:{self.name}', 'system:nodes')}",
            f"--root-dir={self.place.root}",
            f"--cert-dir={self.folder / 'pki'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.bridge.address}",
            "--v=2",
        )

    def stop_kubelet(self) -> None:
        if self._component in self.plane.components:
            self.plane.stop_component(self._component)

    def _configuration(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.bridge.address,
            "port": self._port,
            "healthzPort": self._health,
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(self.plane.authorities)}},
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.runtime.socket}",
            "podLogsDir": str(self.logs),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "featureGates": self.plane.feature_gates,
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "syncFrequency": "2s",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "oomScoreAdj": int(Path("/proc/self/oom_score_adj").read_text()),
            # A machine that is nearly full evicts nothing.
            "evictionHard": dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "0%"),
            "imageGCHighThresholdPercent": 100,
        }

    def output(self, namespace: str, pod: str, uid: str) -> list[str]:
        """The lines that the container of a pod has printed, without time and stream."""
        lines = []
        for file in sorted((self.logs / f"{namespace}_{pod}_{uid}" / "main").glob("*.log")):
            lines += [line.split(" ", 3)[3] for line in file.read_text().splitlines()]
        return lines

    def power_off(self) -> None:
        """Kubelet and all containers end at once; what a node keeps in memory is gone. Drivers are not ours to end."""
        self.plane.components.pop(self._component).kill()
        self.runtime.stop()
        shutil.rmtree(self.runtime.cdi)

    def power_on(self) -> None:
        """Start runtime and kubelet."""
        self.runtime.start()
        self.start_kubelet()
