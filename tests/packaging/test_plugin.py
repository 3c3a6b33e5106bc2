"""The kubectl plugin: its manifest has what krew requires, its archives are reproducible, and its command starts."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_extender.version import VERSION
from requirements.plugin import LAUNCHER, MANIFEST, PLATFORMS, PYTHONS, RELEASES, manifest, merge, pack

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def archives(tmp_path: Path) -> dict[str, Path]:
    found = {platform: tmp_path / f"kubectl-dra-{platform}.tar.gz" for platform in PLATFORMS}
    for platform, path in found.items():
        path.write_text(platform)
    return found


@pytest.fixture
def released(archives: dict[str, Path]) -> dict[str, Any]:
    return manifest(yaml.safe_load(MANIFEST.read_text()), archives)


def test_the_manifest_of_a_release_has_what_krew_requires(released: dict[str, Any]) -> None:
    """As krew's own validation asks: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest."""
    assert released["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert released["kind"] == "Plugin"
    assert re.fullmatch(r"[\w-]+", released["metadata"]["name"])
    spec = released["spec"]
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50 and "\n" not in spec["shortDescription"]
    assert spec["description"] and spec["homepage"] == PROJECT["urls"]["Source"]
    for platform in spec["platforms"]:
        assert platform.keys() == {"selector", "bin", "uri", "sha256"}
        assert re.fullmatch(r"[0-9a-f]{64}", platform["sha256"])
        assert re.fullmatch(r"https://\S+\.(tar\.gz|zip)", platform["uri"])
        assert not Path(platform["bin"]).is_absolute() and ".." not in platform["bin"]
        assert platform["selector"]["matchLabels"].keys() == {"os", "arch"}


def test_each_platform_has_the_archive_that_is_made_for_it(released: dict[str, Any], archives: dict[str, Path]) -> None:
    named = {platform["uri"]: platform["sha256"] for platform in released["spec"]["platforms"]}
    assert named == {
        f"{RELEASES}/v{VERSION}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in archives.values()
    }
    assert RELEASES.startswith(PROJECT["urls"]["Source"])


def test_what_is_committed_says_nothing_of_a_release() -> None:
    committed = yaml.safe_load(MANIFEST.read_text())["spec"]
    assert "version" not in committed
    assert [platform.keys() for platform in committed["platforms"]] == [{"selector", "bin"}] * len(PLATFORMS)


def test_the_plugin_is_made_for_the_pythons_that_the_package_supports() -> None:
    prefix = "Programming Language :: Python :: 3."
    classified = ["3." + each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(prefix)]
    assert list(PYTHONS) == classified
    launched = re.findall(r"\((\d), (\d+)\)", LAUNCHER.read_text())
    assert [".".join(version) for version in launched] == classified
    assert (
        ", ".join(classified[:-1]) + f" or {classified[-1]}" in yaml.safe_load(MANIFEST.read_text())["spec"]["caveats"]
    )


def test_trees_are_merged_when_files_of_one_name_are_the_same(tmp_path: Path) -> None:
    for python in ("one", "two"):
        described = tmp_path / python / "package-1.dist-info"
        described.mkdir(parents=True)
        (described / "METADATA").write_text("Name: package")
        (described / "RECORD").write_text(python)
        (tmp_path / python / f"module.{python}.so").write_text(python)
    merge([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    files = {str(path.relative_to(tmp_path / "both")) for path in (tmp_path / "both").rglob("*") if path.is_file()}
    assert files == {"module.one.so", "module.two.so", "package-1.dist-info/METADATA"}


def test_a_file_that_differs_between_pythons_is_named(tmp_path: Path) -> None:
    for python in ("one", "two"):
        (tmp_path / python).mkdir()
        (tmp_path / python / "module.py").write_text(python)
    with pytest.raises(ValueError, match=r"module\.py is not the same"):
        merge([tmp_path / "one", tmp_path / "two"], tmp_path / "both")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What krew unpacks, with a command that only says what it was called with."""
    unpacked = tmp_path / "store"
    command = unpacked / "lib" / "dra_extender" / "cli"
    command.mkdir(parents=True)
    for package in (command, command.parent):
        (package / "__init__.py").touch()
    (command / "main.py").write_text("import sys\ndef main(): print(sys.argv[1:])\n")
    shutil.copy(LAUNCHER, unpacked / "kubectl-dra")
    return unpacked


def test_equal_trees_give_equal_archives(tree: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(tree, again)
    for path in again.rglob("*"):
        os.utime(path, (0, 0))
    one, two = pack(tree, tmp_path / "one.tar.gz"), pack(again, tmp_path / "two.tar.gz")
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as archive:
        assert {entry.name for entry in archive if entry.mode & 0o111} == {"kubectl-dra"}
        assert {entry.mtime for entry in archive} == {0}


def launch(command: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(command), *arguments], capture_output=True, text=True, check=False)


def test_the_command_finds_its_packages_by_way_of_the_link_that_krew_makes(tree: Path, tmp_path: Path) -> None:
    link = tmp_path / "kubectl-dra"
    link.symlink_to(tree / "kubectl-dra")
    done = launch(link, "why", "pod0")
    assert (done.stdout.strip(), done.stderr) == ("['why', 'pod0']", "")


def test_another_python_is_told_which_ones_work(tree: Path) -> None:
    launcher = tree / "kubectl-dra"
    launcher.write_text(launcher.read_text().replace("(3, ", "(2, "))
    done = launch(launcher)
    assert done.returncode == 1
    assert f"python3 is {sys.version.split()[0]}, and this needs one of 2.11, 2.12, 2.13" in done.stderr
