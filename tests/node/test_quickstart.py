"""A reader of the README follows the quick start on real nodes, until a container prints its device.

Docker, kind and the chart of the example driver are not here. The nodes have the image, and a driver with the same
devices.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.controlplane import ControlPlane
from tests.support.documentation.blocks import ROOT, Block, blocks_of
from tests.support.documentation.terminal import type_all
from tests.support.node import image
from tests.support.node.case import slices_of
from tests.support.node.driver import Driver
from tests.support.node.ground import BareGround
from tests.support.node.site import NodeSite

pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]  # the image may have to be built first

PROGRAMS = ("bash", "env", "grep", "sleep")
"""What the pod of the page needs of its image."""
EXAMPLE = "gpu.example.com"
"""The driver of the page, and the class that its chart makes."""


@pytest.fixture(scope="module")
def plane(site: NodeSite) -> ControlPlane:
    return site.plane


@pytest.fixture(scope="module")
def ground(site: NodeSite) -> BareGround:
    return site.ground


@pytest.fixture
def quick_start() -> list[Block]:
    """The blocks of the page that the README calls so."""
    (page,) = re.findall(r"\[Quick start on kind\]\((\S+)\)", (ROOT / "README.md").read_text())
    return blocks_of(page)


@pytest.fixture
def reader(site: NodeSite, quick_start: list[Block], tmp_path: Path) -> Iterator[Path]:
    """A checkout, with the files of the page."""
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    for block in quick_start:
        if block.kind == "file":
            (tmp_path / block.what).write_text(block.text)
    yield tmp_path
    site.uninstall()


@pytest.fixture
def ubuntu(site: NodeSite, reader: Path, tmp_path: Path) -> None:
    """What the page's pod names as its image: the programs of this machine."""
    (name,) = re.findall(r"image: (\S+)", (reader / "first-gpu.yaml").read_text())
    archive = tmp_path / "ubuntu.tar"
    inside = {f"/usr/bin/{program}": Path(shutil.which(program) or program) for program in PROGRAMS}
    image.write(archive, f"docker.io/library/{name}", inside)
    site.add_image(archive)


@pytest.fixture
def example_driver(site: NodeSite) -> Iterator[None]:
    selectors = [{"cel": {"expression": f"device.driver == '{EXAMPLE}'"}}]
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": EXAMPLE}}
    site.plane.apply({**made, "spec": {"selectors": selectors}})
    driver = Driver(site.nodes[0].place, EXAMPLE)
    driver.start(slices_of(*(f"gpu-{number}" for number in range(8))))
    yield
    driver.stop()
    site.plane.kubectl("delete", "resourceslices,deviceclasses", "--all")


@pytest.mark.usefixtures("ubuntu", "example_driver")
def test_who_types_the_quick_start_reads_in_the_log_of_a_container_which_device_it_has(
    site: NodeSite, quick_start: list[Block], reader: Path
) -> None:
    programs = (site.helm.path.parent, site.plane.binaries, Path(sys.executable).parent, "/usr/bin", "/bin")
    environment = site.helm.environment() | {"PATH": ":".join(map(str, programs)), "HOME": str(reader)}
    typed = [block for block in quick_start if block.place in ("node", "demo")]
    answers = [answer for block in typed for answer in type_all(block.commands(), reader, environment)]
    for answer in answers:
        assert answer.is_well, f"{answer.command.text}\nended with {answer.status}\n{answer.output}"
        assert answer.lacking() == [], f"{answer.command.text}\nsays\n{answer.output}"
    (log,) = (answer.output for answer in answers if "kubectl logs" in answer.command.text)
    assert re.match(r"GPU_DEVICE_(\d)=gpu-\1$", log)
