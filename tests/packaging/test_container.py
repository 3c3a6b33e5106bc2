"""What the Dockerfile makes: built here line by line, looked through, and started as the Deployment starts it."""

from __future__ import annotations

import json
import re
import stat
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath

import aiohttp
import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from dra_extender.version import VERSION
from embedded_cluster.cluster import EmbeddedCluster
from tests.support.embedded.manifests import claim_manifest, pod_manifest
from tests.support.packaging.container import container, output
from tests.support.packaging.image import DOCKERFILE, ROOT, Builder, Image, entries, missing

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200)]  # the first test builds: packages come from two indexes

ADDED = "/opt/dra-extender"


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    if problem := missing():
        pytest.skip(problem)
    with tempfile.TemporaryDirectory(prefix="dra-extender-image-") as folder:
        yield Builder(Path(folder)).image()


def site(image: Image) -> Path:
    (found,) = (image.root / ADDED[1:]).glob("lib/python3*/site-packages")
    return found


def test_every_line_of_the_dockerfile_is_carried_out(image: Image) -> None:
    joined = DOCKERFILE.replace("\\\n", " ")
    written = re.findall(r"^(FROM|WORKDIR|ENV|COPY|RUN|LABEL|USER|EXPOSE|ENTRYPOINT|CMD)\b", joined, re.MULTILINE)
    carried_out = re.findall(r"STEP \d+/\d+: (\w+)", image.log)
    assert carried_out == written
    assert len(written) > 15


def test_it_runs_the_service_and_not_as_root(image: Image) -> None:
    config = image.config
    assert (config["Entrypoint"], config["Cmd"]) == (["dra-extender"], ["serve"])
    assert config["User"] == "65532:65532", "as numbers: kubelet checks runAsNonRoot by them"
    assert set(config["ExposedPorts"]) == {"8443/tcp", "8080/tcp"}
    assert not config.get("Volumes")
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_it_is_its_base_and_one_folder(image: Image) -> None:
    before, after = entries(image.base), entries(image.root)
    assert {path: entry for path, entry in after.items() if path in before} == before
    added = after.keys() - before.keys()
    assert {path for path in added if ADDED not in {path, *map(str, PurePosixPath(path).parents)}} == set()
    assert f"{ADDED}/bin/dra-extender" in added and f"{ADDED}/bin/kubectl-dra" in added


def test_nothing_that_it_adds_can_be_written_by_the_user_it_runs_as(image: Image) -> None:
    added = {path: entry for path, entry in entries(image.root).items() if path.startswith(ADDED)}
    files = {path: entry for path, entry in added.items() if not stat.S_ISLNK(entry.kind)}
    assert len(files) > 1_000
    assert {entry.kind for entry in files.values()} == {stat.S_IFDIR, stat.S_IFREG}
    assert {entry.owner for entry in added.values()} == {0}
    others, privileged = stat.S_IWGRP | stat.S_IWOTH, stat.S_ISUID | stat.S_ISGID
    assert {path for path, entry in files.items() if entry.mode & (others | privileged)} == set()


def test_it_has_the_packages_of_the_lock_file_and_none_to_build_or_test_with(image: Image) -> None:
    lines = (ROOT / "requirements" / "runtime.lock").read_text().splitlines()
    locked = [Requirement(line.removesuffix("\\")) for line in lines if re.match(r"[a-z0-9]", line)]
    environment = {**default_environment(), "python_version": "3.13", "python_full_version": "3.13.0"}
    wanted = {
        each.name: str(each.specifier).removeprefix("==")
        for each in locked
        if each.marker is None or each.marker.evaluate(environment)  # type: ignore[arg-type]
    }
    installed = {
        found.name.lower().replace("_", "-"): found.version for found in metadata.distributions(path=[str(site(image))])
    }
    assert installed == wanted | {"dra-extender": VERSION}


def test_the_embedded_cluster_and_the_demo_are_not_in_it(image: Image) -> None:
    assert (site(image) / "dra_extender").is_dir()
    assert not (site(image) / "embedded_cluster").exists()


def test_it_says_its_version(image: Image, tmp_path: Path) -> None:
    assert output(image, tmp_path, "--version").split()[-1] == VERSION


def status(text: str) -> dict[str, str]:
    """The lines of /proc/PID/status."""
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


async def test_it_serves_gives_a_pod_its_device_and_ends_in_order(image: Image, tmp_path: Path) -> None:
    async with EmbeddedCluster(nodes=1, devices=1, fabric_delay=0.1) as cluster, aiohttp.ClientSession() as session:
        flags = ("--listen=127.0.0.1:0", "--scheduler-names=dra-scheduler", "--log-format=json")
        async with container(image, tmp_path, "serve", f"--server={cluster.url}", *flags) as running:
            first = json.loads(await running.line())
            assert (first["event"], first["version"]) == ("listening", VERSION)
            await cluster.schedule_with(first["verbs"])
            await cluster.apply([claim_manifest("gpu"), pod_manifest("wants", claims={"gpu": "gpu"})])
            await cluster.wait_until(lambda: cluster.running("default", "wants"))
            for page in ("/livez", "/readyz"):
                async with session.get(first["insight"] + page) as answer:
                    assert (answer.status, (await answer.json())["ok"]) == (200, True)
            process = status(await running.inside("print(open('/proc/1/status').read())"))
            assert process["Name"] == "dra-extender"
            assert process["Uid"].split() == process["Gid"].split() == ["65532"] * 4
            assert (process["CapEff"], process["CapBnd"], process["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
            await cluster.stop_scheduler()
            assert await running.terminate() == 0
        assert json.loads(running.lines[-1])["event"] == "stopped"
        assert cluster.audit() == []
