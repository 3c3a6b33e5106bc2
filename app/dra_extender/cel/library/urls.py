"""URLs (apiserver pkg/cel/library/urls.go, 1.36; Go 1.26's net/url for what is one)."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from ipaddress import IPv6Address
from typing import Any, Final, NamedTuple

from dra_extender.cel.declarations import Library
from dra_extender.cel.errors import Fault, parses
from dra_extender.cel.values import Map, Opaque

LIBRARY: Final = Library()

_ALPHANUMERIC: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"
_PATH: Final = frozenset((_ALPHANUMERIC + "$&+,/:;=@").encode())
_HOST: Final = frozenset((_ALPHANUMERIC + "!\"$&'()*+,:;<=>[]").encode())
_USER: Final = frozenset((_ALPHANUMERIC + "$&+,;=").encode())
_FRAGMENT: Final = frozenset((_ALPHANUMERIC + "!$&()*+,/:;=?@").encode())
_KEPT: Final = frozenset(b"!$&'()*+,;=:@[]%")

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_USERINFO: Final = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_MAX_QUERY_PARAMETERS: Final = 10_000
_PER_CHARACTER: Final = 8
"""A character of a URL takes as much time as this many characters of a text."""


class Parts(NamedTuple):
    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    host: str = ""
    path: str = ""
    query: str | None = None
    fragment: str = ""


class Url(Opaque):
    """A URL; equal to another when both are written alike."""

    type_name = "kubernetes.URL"

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.extent = _PER_CHARACTER * sum(len(part) for part in parts if part)

    def same(self, other: Any) -> bool:
        return bool(self.written == other.written)

    @cached_property
    def written(self) -> str:
        """The URL as text, put together once."""
        parts, text = self.parts, f"{self.parts.scheme}:" if self.parts.scheme else ""
        if parts.opaque:
            text += parts.opaque
        else:
            text += "//" if parts.host or parts.user is not None else ""
            text += f"{parts.user}@" if parts.user is not None else ""
            text += _escape(parts.host, _HOST) + _escaped_path(parts.path)
        text += f"?{parts.query}" if parts.query is not None else ""
        return text + (f"#{_escaped(parts.fragment, _FRAGMENT)}" if parts.fragment else "")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _unescape(text: str, plus_is_space: bool = False) -> str:
    """Raises ValueError for an invalid escape."""
    if _BAD_ESCAPE.search(text) is not None:
        raise ValueError("invalid URL escape")
    if plus_is_space:
        text = text.replace("+", " ")
    data = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), _bytes(text))
    return data.decode("utf-8", "surrogateescape")


def _escape(text: str, allowed: frozenset[int]) -> str:
    return "".join(chr(byte) if byte in allowed else f"%{byte:02X}" for byte in _bytes(text))


def _unescape_host(text: str) -> str:
    """In a host only bytes beyond ASCII, and the percent sign of a zone, may be escaped."""
    return _unescape_part(text, "host", lambda byte: byte >= 0x80 or byte == 0x25)


def _unescape_part(text: str, part: str, may_be_escaped: Callable[[int], bool]) -> str:
    if not all(may_be_escaped(int(found[1], 16)) for found in _ESCAPE.finditer(_bytes(text))):
        raise ValueError(f"invalid URL escape in {part}")
    if any(byte < 0x80 and byte not in _HOST and byte != 0x25 for byte in _bytes(text)):
        raise ValueError(f"invalid character in {part}{' name' if part == 'host' else ''}")
    return _unescape(text)


def _parse(text: str, via_request: bool) -> Parts:
    """A URL, or, via request, an absolute one without a fragment. Raises ValueError."""
    if _CONTROL.search(text) is not None:
        raise ValueError("invalid control character in URL")
    if not text and via_request:
        raise ValueError("empty url")
    if text == "*":
        return Parts(path="*")
    if text.startswith(":"):
        raise ValueError("missing protocol scheme")
    found = _SCHEME.match(text)
    scheme, rest = (found[0][:-1].lower(), text[found.end() :]) if found is not None else ("", text)
    rest, mark, query_text = rest.partition("?")
    query = query_text if mark else None
    if not rest.startswith("/"):
        if scheme:
            return Parts(scheme=scheme, opaque=rest, query=query)
        if via_request:
            raise ValueError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise ValueError("first path segment in URL cannot contain colon")
    user, host = None, ""
    if rest.startswith("//") and (scheme or (not via_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, host = _parse_authority(scheme, authority)
    _unescape(rest)
    return Parts(scheme=scheme, user=user, host=host, path=rest, query=query)


def _parse_authority(scheme: str, authority: str) -> tuple[str | None, str]:
    """The user, escaped as Go would write it, and the host."""
    info, at, host_text = authority.rpartition("@")
    host = _parse_host(scheme, host_text)
    if not at:
        return None, host
    if _USERINFO.fullmatch(info) is None:
        raise ValueError("invalid userinfo")
    name, colon, password = info.partition(":")
    return _escape(_unescape(name), _USER) + colon + _escape(_unescape(password), _USER), host


def _parse_host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise ValueError("invalid IP-literal")
    if bracket == 0:
        return _parse_literal(host)
    colon = host.find(":") if scheme in ("http", "https") else host.rfind(":")
    if colon >= 0 and _PORT.fullmatch(host[colon:]) is None:
        raise ValueError("invalid port after host")
    return _unescape_host(host)


def _parse_literal(host: str) -> str:
    """`[IPv6%25zone]:port`"""
    close = host.rfind("]")
    if close < 0:
        raise ValueError("missing ']' in host")
    port = host[close + 1 :]
    if _PORT.fullmatch(port) is None:
        raise ValueError("invalid port after host")
    name, zone, rest = host[1:close].partition("%25")
    unescaped = _unescape_host(name)
    if zone:
        unescaped += _unescape_part(zone + rest, "zone", lambda byte: byte in (0x25, 0x20) or byte in _HOST)
    if unescaped.endswith("%"):
        raise ValueError("invalid host")
    IPv6Address(unescaped)  # raises ValueError
    return f"[{unescaped}]{port}"


def _escaped_path(path: str) -> str:
    return "*" if path == "*" else _escaped(path, _PATH)


def _escaped(text: str, allowed: frozenset[int]) -> str:
    """`text` as written if it is well escaped; otherwise unescaped and escaped again."""
    if all(byte in allowed or byte in _KEPT for byte in _bytes(text)):
        return text
    return _escape(_unescape(text), allowed)


@LIBRARY.function("isURL", "string -> bool")
def is_url(text: str) -> bool:
    return parses(_parse, text, True)


@LIBRARY.function("url", "string -> URL")
def url(text: str) -> Url:
    try:
        _parse(text, via_request=True)
        before, _, fragment = text.partition("#")
        parts = _parse(before, via_request=False)
        _unescape(fragment)
    except ValueError as error:
        raise Fault(f"URL parse error during conversion from string: {error}") from None
    return Url(parts._replace(fragment=fragment))


@LIBRARY.method("getHostname", "URL -> string")
def get_hostname(value: Url) -> str:
    host = value.parts.host[: len(value.parts.host) - len(_port(value.parts.host))]
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _port(host: str) -> str:
    """The port of a host, with its colon."""
    colon = host.rfind(":")
    return host[colon:] if colon >= 0 and _PORT.fullmatch(host[colon:]) is not None else ""


LIBRARY.methods(
    {
        ("getScheme", "URL -> string"): lambda value: value.parts.scheme,
        ("getHost", "URL -> string"): lambda value: value.parts.host,
        ("getPort", "URL -> string"): lambda value: _port(value.parts.host)[1:],
        ("getEscapedPath", "URL -> string"): lambda value: _escaped_path(value.parts.path),
    }
)


@LIBRARY.method("getQuery", "URL -> map(string, list(string))")
def get_query(value: Url) -> Map:
    """Parameters that cannot be understood are left out."""
    result = Map()
    parameters = (value.parts.query or "").split("&")
    if len(parameters) > _MAX_QUERY_PARAMETERS:
        return result
    for parameter in parameters:
        if not parameter or ";" in parameter:
            continue
        name, _, content = parameter.partition("=")
        try:
            key, text = _unescape(name, plus_is_space=True), _unescape(content, plus_is_space=True)
        except ValueError:
            continue
        result.setdefault(key, []).append(text)
    return result
