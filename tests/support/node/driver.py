"""DRA drivers of a node, as processes: the driver of Kubernetes' own tests, one with our devices, and one of others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.plane import Plane
from tests.support.node.machine import run

TEST_DRIVER = "test-driver.cdi.k8s.io"
NETWORK_DRIVER = "dra.net"
INSTALLED = Path(__file__).parents[3] / "build" / "driver" / "bin" / "python"
"""Where `make node` installs the package kubernetes-pydra."""
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the drivers of a node run: its name, kubelet's folder and the folder for CDI files."""

    plane: Plane
    node: str
    root: Path
    cdi: Path

    def flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.plane.admin_kubeconfig}",
            f"--node-name={self.node}",
            f"--datadir={self.root / 'plugins'}",
            f"--plugin-registration-path={self.root / 'plugins_registry'}",
            f"--cdi-dir={self.cdi}",
        ]


class TestDriver:
    """The driver of Kubernetes' own tests, unchanged: four devices, device-00 to device-03."""

    __test__ = False

    def __init__(self, place: Place) -> None:
        self._place = place
        self._name = f"test-driver-{place.node}"

    def start(self) -> None:
        (self._place.root / "plugins" / TEST_DRIVER).mkdir(parents=True, exist_ok=True)
        command = ("kubelet-plugin", "--num-devices=4", *self._place.flags())
        self._place.plane.start_component(self._name, "test-driver", "", *command)

    def stop(self) -> None:
        if self._name in self._place.plane.components:
            self._place.plane.stop_component(self._name)


class Driver:
    """One instance of a driver with given devices as the node's pool; it prepares claims as the test driver does.

    `instance` is its UID where a rolling update is possible: two instances may run at once.
    """

    def __init__(self, place: Place, name: str, instance: str = "") -> None:
        self._place = place
        self._driver = name
        self._instance = instance
        self._name = "-".join(filter(None, (name, place.node, instance)))

    def start(self, slices: Sequence[Body]) -> None:
        """`slices` as in DriverResources: devices, sharedCounters."""
        file = self._place.root / f"{self._name}.json"
        file.write_text(json.dumps({"slices": slices}))
        flags = [*self._place.flags(), f"--drivername={self._driver}", f"--resources={file}"]
        if self._instance:
            flags.append(f"--instance={self._instance}")
        self._place.plane.start_component(self._name, "driver", "", *flags)

    def stop(self) -> None:
        if self._name in self._place.plane.components:
            self._place.plane.stop_component(self._name)

    def kill(self) -> None:
        if self._name in self._place.plane.components:
            self._place.plane.components.pop(self._name).kill()


class NetworkDriver:
    """The driver for network interfaces of the package kubernetes-pydra, unchanged."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._name = f"{NETWORK_DRIVER}-{place.node}"
        self._interfaces: list[str] = []

    def start(self, *interfaces: str) -> None:
        """Make virtual network interfaces with these names, and publish only them, not those of the machine."""
        shown = self._place.root / "interfaces"
        shown.mkdir()
        for name in interfaces:
            run("ip", "link", "add", "name", name, "type", "veth", "peer", "name", f"{name}-end")
            self._interfaces.append(name)
            (shown / name).symlink_to(Path("/sys/class/net") / name)
        environment = {
            "KUBECONFIG": self._place.plane.admin_kubeconfig,
            "NODE_NAME": self._place.node,
            "SYS_CLASS_NET": shown,
            "CDI_DIR": self._place.cdi,
            "SOCKET_PATH": self._place.root / "plugins" / NETWORK_DRIVER / "plugin.sock",
            "REGISTRATION_SOCKET_PATH": self._place.root / "plugins_registry" / f"{NETWORK_DRIVER}.sock",
        }
        variables = [f"{name}={value}" for name, value in environment.items()]
        module = (str(INSTALLED), "-m", "pydra.plugins.network.driver")
        self._place.plane.start_component(self._name, Path("/usr/bin/env"), "", *variables, *module)

    def stop(self) -> None:
        if self._name in self._place.plane.components:
            self._place.plane.stop_component(self._name)
        for name in self._interfaces:
            run("ip", "link", "delete", f"{name}-end", check=False)
