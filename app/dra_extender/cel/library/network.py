"""IP addresses and CIDR blocks (apiserver pkg/cel/library ip.go and cidr.go, 1.36; Go's netip for texts and ranges)."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault, parses, shown
from dra_extender.cel.values import Opaque

LIBRARY: Final = Library()

_BITS: Final = re.compile(r"0|[1-9][0-9]{0,2}")
_LINK_LOCAL_MULTICAST: Final = ip_network("224.0.0.0/24")
_BROADCAST: Final = ip_address("255.255.255.255")


@dataclass(slots=True, eq=False)
class Ip(Opaque):
    """An address: no zone, no IPv4 in IPv6."""

    type_name = "net.IP"
    address: IPv4Address | IPv6Address

    @property
    def identity(self) -> Hashable:
        return self.address.packed

    @property
    def size(self) -> int:
        return len(self.address.packed)

    @property
    def text(self) -> str:
        return self.address.compressed


@dataclass(slots=True, eq=False)
class Cidr(Opaque):
    """A block: an address, whose host bits may be set, and the length of the prefix."""

    type_name = "net.CIDR"
    address: IPv4Address | IPv6Address
    bits: int

    @property
    def identity(self) -> Hashable:
        return self.address.packed, self.bits

    @property
    def size(self) -> int:
        return -(-self.bits // 8)

    @property
    def text(self) -> str:
        return f"{self.address.compressed}/{self.bits}"

    def prefix(self, address: IPv4Address | IPv6Address) -> int:
        """The leading bits of an address, as many as the prefix has."""
        return int(address) >> (address.max_prefixlen - self.bits)

    def covers(self, address: IPv4Address | IPv6Address) -> bool:
        return address.version == self.address.version and self.prefix(address) == self.prefix(self.address)


def _parse_address(text: str) -> IPv4Address | IPv6Address:
    """Raises ValueError."""
    if "%" in text:
        raise ValueError(f"IP address {shown(text)!r} with zone value is not allowed")
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise ValueError(f"IPv4-mapped IPv6 address {shown(text)!r} is not allowed")
    return address


def _parse_block(text: str) -> Cidr:
    """Raises ValueError."""
    address_text, _, bits_text = text.rpartition("/")
    address = _parse_address(address_text)
    if not _BITS.fullmatch(bits_text) or int(bits_text) > address.max_prefixlen:
        raise ValueError(f"{shown(bits_text)!r} is not the length of a prefix")
    return Cidr(address, int(bits_text))


@LIBRARY.function("ip", "string -> IP")
def ip(text: str) -> Ip:
    try:
        return Ip(_parse_address(text))
    except ValueError as error:
        raise Fault(
            f"IP Address {shown(text)!r} parse error during conversion from string: {shown(str(error))}"
        ) from None


LIBRARY.functions(
    {
        ("isIP", "string -> bool"): lambda text: parses(_parse_address, text),
        ("ip.isCanonical", "string -> bool"): lambda text: ip(text).text == text,
        ("isCIDR", "string -> bool"): lambda text: parses(_parse_block, text),
    }
)
LIBRARY.methods(
    {
        ("family", "IP -> int"): lambda value: value.address.version,
        ("isUnspecified", "IP -> bool"): lambda value: value.address.is_unspecified,
        ("isLoopback", "IP -> bool"): lambda value: value.address.is_loopback,
        ("isLinkLocalUnicast", "IP -> bool"): lambda value: value.address.is_link_local,
    }
)


@LIBRARY.method("isLinkLocalMulticast", "IP -> bool")
def is_link_local_multicast(value: Ip) -> bool:
    address = value.address
    if isinstance(address, IPv4Address):
        return address in _LINK_LOCAL_MULTICAST
    return int(address) >> 112 & 0xFF0F == 0xFF02


@LIBRARY.method("isGlobalUnicast", "IP -> bool")
def is_global_unicast(value: Ip) -> bool:
    """What is not special; private ranges are global unicast."""
    address = value.address
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address == _BROADCAST
    )


@LIBRARY.function("cidr", "string -> CIDR")
def cidr(text: str) -> Cidr:
    try:
        return _parse_block(text)
    except ValueError as error:
        raise Fault(f"network address parse error during conversion from string: {shown(str(error))}") from None


def _contains(block: Cidr, other: Cidr) -> bool:
    return block.bits <= other.bits and block.covers(other.address)


LIBRARY.methods(
    {
        ("containsIP", "CIDR, string -> bool"): lambda block, text: block.covers(ip(text).address),
        ("containsIP", "CIDR, IP -> bool"): lambda block, value: block.covers(value.address),
        ("containsCIDR", "CIDR, string -> bool"): lambda block, text: _contains(block, cidr(text)),
        ("containsCIDR", "CIDR, CIDR -> bool"): _contains,
        ("ip", "CIDR -> IP"): lambda block: Ip(block.address),
        ("prefixLength", "CIDR -> int"): lambda block: block.bits,
    }
)


@LIBRARY.method("masked", "CIDR -> CIDR")
def masked(block: Cidr) -> Cidr:
    address = block.address
    host_bits = address.max_prefixlen - block.bits
    return Cidr(address.__class__(block.prefix(address) << host_bits), block.bits)
