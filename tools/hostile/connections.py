"""What clients do to the listeners of the service: many, slow, endless and malformed connections.

`Siege` promises: all connections of an attack are open at the same time, and closed when it is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
from collections.abc import Iterator
from typing import Final

from tools.hostile.things import Attack, Thing

_POST: Final = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
_GET: Final = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
_HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""How a TLS handshake begins."""
_OPENING: Final = 10.0
"""Seconds that a connection may take to open."""


def things(dice: random.Random) -> Iterator[Thing]:
    """Attacks on both doors."""

    def thing(name: str, *, generated: bool = False, **attack: object) -> Thing:
        return Thing("connections", name, Attack(**attack), generated)  # type: ignore[arg-type]

    for door in ("verbs", "insight"):
        yield thing(f"500 idle connections to {door}", door=door, connections=500)
        yield thing(f"a byte at a time to {door}", door=door, connections=100, sent=_GET[:-2], piece=1, pause=0.1)
        yield thing(f"headers of 1 MiB to {door}", door=door, connections=20, sent=_GET[:-2] + b"X: " + b"x" * 2**20)
        names = b"".join(b"X-%d: y\r\n" % i for i in range(20_000))
        yield thing(f"20,000 headers to {door}", door=door, connections=10, sent=_GET[:-2] + names + b"\r\n")
        yield thing(f"1,000 requests at once to {door}", door=door, connections=5, sent=_GET, again=1_000)
        yield thing(f"100 half-closed connections to {door}", door=door, connections=100, sent=_GET, half=True)
        yield thing(f"half a handshake to {door}", door=door, connections=200, sent=_HELLO, raw=True)
        yield thing(f"plain HTTP to {door}", door=door, connections=50, sent=_GET, again=20, raw=True)
        upgrade = _GET[:-2] + b"Connection: Upgrade\r\nUpgrade: %s\r\n\r\n"
        for what in (b"websocket", b"h2c"):
            name = f"200 upgrades to {what.decode()} of {door}"
            yield thing(name, door=door, connections=200, sent=upgrade % what, again=5)
        yield thing(
            f"what HTTP/2 begins with to {door}", door=door, connections=20, sent=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        )
        yield thing(f"300 connections with a request each to {door}", door=door, connections=300, sent=_GET)
        yield thing(f"noise to {door}", generated=True, door=door, connections=50, sent=dice.randbytes(4_000))
    endless = _POST + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 2**16 + b"\r\n"
    yield thing("a body that never ends", door="verbs", connections=5, sent=endless + chunk, again=1)
    bytewise = endless + b"1\r\n \r\n" * 200_000
    yield thing("200,000 chunks of one byte", door="verbs", connections=5, sent=bytewise)
    yield thing("a chunk with a comment of 1 MB", door="verbs", connections=5, sent=endless + b"1;" + b"x" * 2**20)
    trailers = b"".join(b"x-%d: y\r\n" % i for i in range(50_000))
    yield thing("50,000 trailers", door="verbs", connections=5, sent=endless + b"0\r\n" + trailers + b"\r\n")
    both = _POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + _GET
    yield thing("two lengths for one body", door="verbs", connections=20, sent=both, again=20)
    expecting = _POST + b"Content-Length: 16000000\r\nExpect: 100-continue\r\n\r\n"
    yield thing("200 that expect to be asked for a body", door="verbs", connections=200, sent=expecting)
    fields = b"".join(b"x-%d: %s\r\n" % (i, b"y" * 640) for i in range(95))
    yield thing(
        "headers just within the limits", door="insight", connections=10, sent=_GET[:-2] + fields + b"\r\n", again=200
    )
    asking = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    yield thing("200 that never take their answers", door="insight", connections=200, sent=asking, again=300, stay=4.0)
    large = _POST + b"Content-Length: 16000000\r\n\r\n" + b"[" * 15_000_000
    yield thing("bodies of 15 MB that stop", door="verbs", connections=4, sent=large)
    deep = b'{"Pod":' + b"[" * 4_000_000
    yield thing("a body of 4,000,000 brackets", door="verbs", connections=2, sent=_body(deep))
    pods = b'{"Pod":{"metadata":{"name":"p","namespace":"n","uid":"u"}},"NodeNames":["%s"]}'
    names = b'","'.join(b"node-%d" % i for i in range(100_000))
    yield thing("100,000 names of nodes", door="verbs", connections=2, sent=_body(pods % names))
    for path in (
        b"/scheduler/" + b"x" * 60_000,
        b"/%2e%2e/" * 5_000,
        b"/pods/" + b"a/" * 10_000,
        b"/?" + b"q=1&" * 15_000,
    ):
        request = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        yield thing(f"a path of {path[:8].decode()}…", door="insight", connections=20, sent=request)
    for number in range(4):
        body = bytes(dice.choices(b'{}[]",:\\0aeE-.\x00\xff ', k=dice.randint(1_000, 2_000_000)))
        yield thing(f"generated body {number}", generated=True, door="verbs", connections=4, sent=_body(body))


def _body(body: bytes) -> bytes:
    return _POST + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Siege:
    """One attack on an address. `trust` is what TLS needs, if the door has it."""

    def __init__(self, host: str, port: int, trust: ssl.SSLContext | None = None) -> None:
        self._host, self._port, self._trust = host, port, trust

    async def lay(self, attack: Attack) -> int:
        """All of it; returns how many connections were opened. What the service does with them is its own affair."""
        opened = await asyncio.gather(*(self._one(attack) for _ in range(attack.connections)))
        return sum(opened)

    async def _one(self, attack: Attack) -> bool:
        try:
            async with asyncio.timeout(_OPENING):
                _, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=None if attack.raw else self._trust
                )
        except (OSError, TimeoutError):
            return False
        # Some of these things are errors of the connection, which is what they are for.
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(attack.stay):
                for _ in range(attack.again):
                    for start in range(0, len(attack.sent), attack.piece):
                        writer.write(attack.sent[start : start + attack.piece])
                        await writer.drain()
                        if attack.pause:
                            await asyncio.sleep(attack.pause)
                if attack.half:
                    writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
                await asyncio.sleep(attack.stay)
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True
