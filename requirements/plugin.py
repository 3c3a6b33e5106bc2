"""The kubectl plugin as krew installs it, archives and the manifest that names them: `make plugin`.

Promises: the packages of runtime.lock by their hashes, for every Python that is supported, and our wheel less the
embedded cluster, as in the image; the same bytes for the same lock file and wheel. One tree serves all Pythons:
compiled modules carry the name of theirs, and every other file has to be the same in all, or no archive is made. The
manifest is `.krew.yaml` with the version, and with the address and the sum of each archive.

Builds need the package index; nothing that is installed is run.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import yaml

from dra_extender.version import VERSION

ROOT: Final = Path(__file__).parents[1]
MANIFEST: Final = ROOT / ".krew.yaml"
LAUNCHER: Final = ROOT / "requirements" / "kubectl-dra"
RELEASES: Final = "https://github.com/dra-extender/dra-extender/releases/download"
PYTHONS: Final = ("3.11", "3.12", "3.13")
PLATFORMS: Final = {
    "linux-amd64": [f"manylinux_2_{minor}_x86_64" for minor in range(17, 29)] + ["manylinux2014_x86_64"],
    "linux-arm64": [f"manylinux_2_{minor}_aarch64" for minor in range(17, 29)] + ["manylinux2014_aarch64"],
    "darwin-arm64": ["macosx_14_0_arm64"],
}
"""For each platform the tags of wheels that run there: Linux with glibc 2.28 or newer, macOS 14 or newer."""
_OF_ONE_WHEEL: Final = {"INSTALLER", "RECORD", "REQUESTED", "WHEEL", "sboms"}
"""What `*.dist-info` says of one wheel, of several for a package; nothing reads it at run time."""


def main(arguments: list[str]) -> int:
    """Write the archives and the manifest into a folder, from the wheel that is made here."""
    target = Path(arguments[0])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = _wheel(Path(scratch))
        archives = {platform: _build(platform, wheel, Path(scratch) / platform, target) for platform in PLATFORMS}
    found = manifest(yaml.safe_load(MANIFEST.read_text()), archives)
    (target / "dra.yaml").write_text(yaml.safe_dump(found, sort_keys=False, width=120))
    return 0


def _wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (made,) = folder.glob("*.whl")
    return made


def _build(platform: str, wheel: Path, scratch: Path, target: Path) -> Path:
    trees = [_packages(platform, python, scratch / python) for python in PYTHONS]
    tree = scratch / "tree"
    merge(trees, tree / "lib")
    with ZipFile(wheel) as archive:
        archive.extractall(tree / "lib")
    shutil.rmtree(tree / "lib" / "embedded_cluster")
    shutil.copy(ROOT / "LICENSE", tree / "LICENSE")
    shutil.copy(LAUNCHER, tree / "kubectl-dra")
    return pack(tree, target / f"kubectl-dra-{platform}.tar.gz")


def _packages(platform: str, python: str, folder: Path) -> Path:
    """The locked packages as they are for a platform and a Python, whichever this machine has."""
    tags = [part for tag in PLATFORMS[platform] for part in ("--platform", tag)]
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps", "--only-binary=:all:"]
    chosen = ["--require-hashes", "-r", str(ROOT / "requirements" / "runtime.lock")]
    command = [sys.executable, "-m", "pip", "install", *options, *tags, "--python-version", python, *chosen]
    subprocess.run([*command, "--target", str(folder)], check=True)
    shutil.rmtree(folder / "bin")
    return folder


def merge(trees: Iterable[Path], target: Path) -> None:
    """Put trees into one.

    Raises:
        ValueError: two trees have different files of one name.
    """
    for tree in trees:
        for source in _files(tree):
            copy = target / source.relative_to(tree)
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy)
            elif copy.read_bytes() != source.read_bytes():
                raise ValueError(f"{source.relative_to(tree)} is not the same for all of Python {', '.join(PYTHONS)}")


def _files(tree: Path) -> Iterator[Path]:
    for path in sorted(tree.rglob("*")):
        package, *inside = path.relative_to(tree).parts
        of_one_wheel = package.endswith(".dist-info") and not _OF_ONE_WHEEL.isdisjoint(inside)
        if path.is_file() and not of_one_wheel:
            yield path


def pack(tree: Path, target: Path) -> Path:
    """A tree as an archive without times, owners or an order of its own: equal trees give equal bytes."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path in sorted(tree.rglob("*")):
            if path.is_file():
                entry = tarfile.TarInfo(str(path.relative_to(tree)))
                entry.size = path.stat().st_size
                entry.mode = 0o755 if path == tree / "kubectl-dra" else 0o644
                with path.open("rb") as content:
                    archive.addfile(entry, content)
    return target


def manifest(described: dict[str, Any], archives: dict[str, Path]) -> dict[str, Any]:
    """`.krew.yaml` with what a release adds. Platforms are named os-arch.

    Raises:
        KeyError: a platform has no archive.
    """
    platforms = []
    for platform in described["spec"]["platforms"]:
        labels = platform["selector"]["matchLabels"]
        archive = archives[f"{labels['os']}-{labels['arch']}"]
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        platforms.append({**platform, "uri": f"{RELEASES}/v{VERSION}/{archive.name}", "sha256": digest})
    spec = {"version": f"v{VERSION}", **described["spec"], "platforms": platforms}
    return {**described, "spec": spec}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
