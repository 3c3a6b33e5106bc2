"""An image of one static program, as an archive that container runtimes import."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

NAME = "localhost/pod:test"


def write(program: Path, archive: Path) -> None:
    """The image runs the program. It is the container of the tests' pods, and their sandbox."""
    layer = _tar({"pod": program.read_bytes()})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pod"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    described = {"config.json": config, "manifest.json": manifest}
    archive.write_bytes(_tar({"layer.tar": layer} | {k: json.dumps(v).encode() for k, v in described.items()}))


def _tar(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()
