"""Addresses and lists of names, as settings have them."""

from __future__ import annotations

import ipaddress


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port", "[v6]:port" or ":port" (all addresses). Raises ValueError."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]") or "0.0.0.0", int(port)


def host_and_port(host: str, port: int) -> str:
    """The form in a URL of "host", "v6" or "host:port"; `port` is the default."""
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


def valid_address(address: str) -> str:
    """The address, which may be empty. Raises ValueError."""
    if address:
        split_address(address)
    return address


def names_in(setting: str) -> frozenset[str]:
    """The names that a setting lists, comma separated."""
    return frozenset(filter(None, (name.strip() for name in setting.split(","))))
