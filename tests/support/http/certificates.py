"""Certificate files as a server has them."""

from __future__ import annotations

from pathlib import Path

import trustme


def write_certificate(
    directory: Path, authority: trustme.CA, name: str = "localhost", clients: trustme.CA | None = None
) -> tuple[Path, Path, Path]:
    """Certificate and key with this name, and the authority of `clients` (default: the same one)."""
    issued = authority.issue_cert(name)
    paths = directory / "tls.crt", directory / "tls.key", directory / "ca.crt"
    pems = (issued.cert_chain_pems[0], issued.private_key_pem, (clients or authority).cert_pem)
    for pem, path in zip(pems, paths, strict=True):
        pem.write_to_path(str(path))
    return paths
