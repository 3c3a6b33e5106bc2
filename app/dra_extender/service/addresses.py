"""Addresses to listen on, as people write them.

Settings under which somebody whom nobody has asked in could call the verbs or read tokens.

`require_protection` and `require_peers` promise: what cannot be protected, or cannot work between replicas, is an error
that names the setting to change.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Protocol


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port", "[v6]:port" or ":port" (all addresses). Raises ValueError."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]") or "0.0.0.0", int(port)


def reachable(host: str, port: int) -> str:
    """Host and port as they stand in a URL: of "host", "v6" or "host:port"; the port is this one where none is said."""
    try:
        if ipaddress.ip_address(host).version == 6:
            return f"[{host}]:{port}"
    except ValueError:
        if ":" in host:
            return host
    return f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """True when only this machine can reach the address."""
    host = split_address(address)[0]
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def checked_address(address: str) -> str:
    """The address, which may be empty. Raises ValueError."""
    if address:
        split_address(address)
    return address


class Exposed(Protocol):
    """The settings that say who reaches what, and what protects it."""

    listen: str
    insight_listen: str
    insight_authorization: bool
    tls_cert: Path | None
    tls_client_ca: Path | None
    allow_plain_http: bool
    allow_any_client: bool
    leader_election: bool
    advertise: str
    peer_name: str


def require_protection(settings: Exposed) -> None:
    """Raises ValueError when anybody beyond this machine could call the verbs or read tokens and nobody has asked
    for that.
    """
    insight = settings.insight_authorization and settings.insight_listen
    if insight and not is_loopback(insight) and not settings.tls_cert and not settings.allow_plain_http:
        raise ValueError(
            f"insight_listen {insight} is reachable from outside and has no TLS for the tokens that "
            "insight_authorization asks for: set tls_cert and tls_key, or allow_plain_http if something else "
            "protects it"
        )
    if is_loopback(settings.listen):
        return
    if not settings.tls_cert and not settings.allow_plain_http:
        raise ValueError(
            f"listen {settings.listen} is reachable from outside and has no TLS: set tls_cert, tls_key and "
            "tls_client_ca, or allow_plain_http if something else protects it"
        )
    if settings.tls_cert and not settings.tls_client_ca and not settings.allow_any_client:
        raise ValueError(
            f"listen {settings.listen} is reachable from outside and asks clients for no certificate: set "
            "tls_client_ca, or allow_any_client if something else protects it"
        )


def require_peers(settings: Exposed) -> None:
    """Raises ValueError when replicas could not forward calls to each other."""
    if not settings.advertise:
        return
    if not settings.leader_election:
        raise ValueError("advertise needs leader_election: without it there is no leader to forward calls to")
    if settings.tls_cert and not (settings.tls_client_ca and settings.peer_name):
        raise ValueError("advertise with tls_cert needs tls_client_ca and peer_name, by which replicas know each other")
