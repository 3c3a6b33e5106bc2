"""Certificates and keys of one control plane: an authority of its own, and what it issues, as files in one folder."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import trustme


@dataclass
class Credentials:
    """The certificate authority of one control plane and what it has issued, as files in one folder."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authority.cert_pem.write_to_path(str(self.ca_file))

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.crt"

    def serving(self, name: str, *more: str) -> tuple[Path, Path]:
        """Certificate and key for a server on loopback, and at these addresses or names."""
        return self._write(name, self.authority.issue_cert("127.0.0.1", "localhost", *more, common_name=name))

    def client(self, name: str, user: str, group: str | None = None) -> tuple[Path, Path]:
        """Certificate and key that the API server takes for `user` in `group`."""
        # The host name is not looked at, but Go refuses a certificate with an empty list of them.
        issued = self.authority.issue_cert("localhost", common_name=user, organization_name=group or "nobody")
        return self._write(name, issued)

    def signing_key(self) -> Path:
        """The key that signs service account tokens."""
        return self._write("service-accounts", self.authority.issue_cert(common_name="service-accounts"))[1]

    def trust(self) -> ssl.SSLContext:
        """A context that trusts only this authority."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    def _write(self, name: str, issued: trustme.LeafCert) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        key.touch(mode=0o600)
        issued.private_key_pem.write_to_path(str(key))
        return certificate, key
