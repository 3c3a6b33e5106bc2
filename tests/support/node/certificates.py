"""Certificates of a release from an authority that is not Helm's, which issues them again whenever it is asked to."""

from __future__ import annotations

import ssl
from typing import Any, Final

import trustme

from tests.e2e.plane import Plane
from tests.support.chart.helm import NAME, NAMESPACE

VALUES: Final = {
    "certificates": {"source": "existing", "serverSecret": "issued-tls", "clientSecret": "issued-client-tls"}
}
"""What a release is installed with to use them."""
HOST = f"{NAME}.{NAMESPACE}.svc"
VERBS = 8443


class Certificates:
    """Those of both ends."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._authority = trustme.CA()
        self._serving = ""

    def issue(self) -> None:
        """New ones into the Secrets, as cert-manager writes them."""
        serving = self._authority.issue_cert(HOST, common_name=NAME)
        calling = self._authority.issue_cert(f"dra-scheduler.{NAMESPACE}.svc", common_name="dra-scheduler")
        self._serving = text(serving.cert_chain_pems[0])
        secrets = VALUES["certificates"]
        self._plane.apply(
            self._secret(secrets["serverSecret"], serving), self._secret(secrets["clientSecret"], calling)
        )

    def are_served_at(self, address: str) -> bool:
        """Whether a replica shows the newest one to whoever connects."""
        shown = ssl.get_server_certificate((address, VERBS))
        return ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(self._serving)

    def _secret(self, name: str, issued: trustme.LeafCert) -> dict[str, Any]:
        files = {
            "tls.crt": text(issued.cert_chain_pems[0]),
            "tls.key": text(issued.private_key_pem),
            "ca.crt": text(self._authority.cert_pem),
        }
        meta = {"name": name, "namespace": NAMESPACE}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": meta,
            "type": "kubernetes.io/tls",
            "stringData": files,
        }


def text(blob: trustme.Blob) -> str:
    """PEM."""
    return blob.bytes().decode()
