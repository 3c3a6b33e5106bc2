"""Images of programs that are on this machine, as archives that container runtimes import."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.node.machine import run

NAME = "localhost/pod:test"
"""The image of the tests' pods, and of their sandboxes."""


def write(archive: Path, name: str, programs: Mapping[str, Path]) -> None:
    """An image with the programs at these paths, with the libraries that they load; containers run the first."""
    files = dict(programs)
    for program in programs.values():
        files |= _libraries(program)
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as content:
        for inside, file in files.items():
            content.add(file.resolve(), inside.lstrip("/"))
    with layer.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [next(iter(programs))], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as content:
        for file_name, document in {"config.json": config, "manifest.json": manifest}.items():
            _add(content, file_name, json.dumps(document).encode())
        content.add(layer, "layer.tar")
    layer.unlink()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _libraries(program: Path) -> Mapping[str, Path]:
    """What the program loads; nothing for a static one."""
    return {path: Path(path) for path in re.findall(r"(/\S+) \(0x", run("ldd", program, check=False))}
