"""What people install: the wheel, the sdist, and the image, which is the wheel less the embedded cluster."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from dra_extender.version import VERSION
from tests.support.patience import LONGEST

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def build(source: Path, kind: str, target: Path) -> Path:
    """A distribution of the sources, made by the build back end that pip would call."""
    # -B: the sources are compared with what they were; the build hook must not leave its bytecode there.
    command = [sys.executable, "-B", "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (made,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def described(wheel: Path) -> Message:
    """The metadata of the wheel; its payload is the long description."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(ROOT, "sdist", folder)) as archive:
        archive.extractall(folder, filter="data")
    (made,) = (path for path in folder.iterdir() if path.is_dir())
    return made


def contents(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_the_package_its_page_and_the_samples_of_the_demo(wheel: Path) -> None:
    modules = {str(path.relative_to(ROOT / "app")) for path in (ROOT / "app").rglob("*.py")}
    samples = ROOT / "manifests" / "samples"
    copied = {f"embedded_cluster/samples/{path.relative_to(samples)}" for path in samples.rglob("*.yaml")}
    page = {
        str(path.relative_to(ROOT / "app"))
        for path in (ROOT / "app" / "dra_extender" / "http" / "page" / "static").iterdir()
    }
    installed = {name for name in contents(wheel) if not name.startswith("dra_extender-")}
    assert len(page) > 10
    assert installed == modules | copied | page | {
        "dra_extender/py.typed",
    }


def test_the_sdist_makes_the_same_wheel(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    assert contents(build(unpacked, "wheel", tmp_path)) == contents(wheel)


def test_the_sdist_leaves_out_what_belongs_to_a_checkout(unpacked: Path) -> None:
    packed = {path.name for path in unpacked.iterdir()} - {".gitignore", "PKG-INFO"}
    files = {"CHANGELOG.md", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml"}
    assert packed == files | {"app", "docs", "manifests", "scheduler_config"}


def test_links_of_the_long_description_are_absolute_and_lead_to_files(described: Message) -> None:
    text = described.get_payload()
    assert isinstance(text, str)
    source = dict(url.split(", ") for url in described.get_all("Project-URL", []))["Source"]
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)#\s]+)", text)
    assert len(links) > 10
    for picture, link in links:
        path = link.removeprefix(f"{source}/{'raw' if picture else 'blob'}/main/")
        assert (ROOT / path).exists() if path != link else "://" in link, link


def test_the_wheel_carries_its_license_and_says_what_it_needs(described: Message) -> None:
    assert (described["License-Expression"], described["License-File"]) == ("Apache-2.0", "LICENSE")
    oldest = described["Requires-Python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in described.get_all("Classifier", [])


@pytest.fixture(scope="module")
def image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Site-packages as in the image: the packages of runtime.lock, and the wheel less what the Dockerfile removes."""
    site = tmp_path_factory.mktemp("image")
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    (removed,) = re.findall(r"rm -r (embedded.*)", DOCKERFILE)
    for folder in removed.split():
        shutil.rmtree(site / folder)
    for line in (ROOT / "requirements" / "runtime.lock").read_text().splitlines():
        if re.match(r"[a-z0-9]", line):
            _link(Requirement(line.removesuffix("\\")), site)
    return site


def _link(requirement: Requirement, site: Path) -> None:
    """Put an installed distribution into the site, when this platform takes it."""
    if requirement.marker and not requirement.marker.evaluate():
        return
    installed = metadata.distribution(requirement.name)
    tops = {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(installed.locate_file(top))))


def run(image: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A command as in the image: -S keeps the packages of this environment away."""
    command = [sys.executable, "-S", "-P", "-m", "dra_extender.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(image), "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(
        command, cwd=image, env=environment, input=stdin, capture_output=True, text=True, check=False, timeout=LONGEST
    )


def test_the_image_has_no_embedded_cluster(image: Path) -> None:
    assert not (image / "embedded_cluster").exists()
    leads_there = re.compile(r"^\s*(?:from|import) embedded_cluster\b", re.MULTILINE)
    modules = (image / "dra_extender").rglob("*.py")
    importing = {str(path.relative_to(image)) for path in modules if leads_there.search(path.read_text())}
    assert importing == {"dra_extender/cli/demo.py"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--version"], VERSION),
        (["serve", "--dry-run"], "listen: 127.0.0.1:8888"),
        (["why", "--help"], "Usage: dra-extender why"),
        (["audit", "--help"], "Usage: dra-extender audit"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else "",
)
def test_commands_run_in_the_image(image: Path, arguments: list[str], words: str) -> None:
    done = run(image, *arguments)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


def test_offline_decisions_are_made_in_the_image(image: Path) -> None:
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    claim = {"metadata": {"name": "c", "namespace": "d"}, "spec": asked}
    classes = [{"metadata": {"name": "gpu"}, "spec": {}}]
    of_nothing = {"name": "no devices", "node": {"metadata": {"name": "n"}}, "slices": [], "classes": classes}
    decided = run(image, "allocate", stdin=json.dumps({**of_nothing, "claims": [claim]}) + "\n")
    assert json.loads(decided.stdout)["kind"] == "unschedulable", decided.stderr
    device = {"driver": "gpu.example.com", "attributes": {}, "capacity": {}}
    selector = {
        "name": "a pattern",
        "gates": "default",
        "expression": "device.driver.matches('^gpu')",
        "device": device,
    }
    selected = run(image, "selector", "--batch", stdin=json.dumps(selector) + "\n")
    assert json.loads(selected.stdout)["result"] == "true", selected.stderr


def test_the_demo_says_in_the_image_how_to_get_it(image: Path) -> None:
    done = run(image, "demo", "--once")
    assert (done.returncode, done.stdout) == (2, "")
    assert "this installation has no demo: embedded_cluster is missing" in done.stderr
    assert "`make demo` in a checkout" in done.stderr and "dra-extender[demo]" in done.stderr


def test_the_image_is_given_what_the_dockerfile_copies_and_nothing_else() -> None:
    copied = {
        name for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    admitted = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    for name in copied:
        assert (ROOT / name).exists(), name
        assert any(fnmatch.fnmatch(name, pattern) for pattern in admitted), name
    for pattern in admitted:
        assert fnmatch.filter(copied, pattern), pattern
