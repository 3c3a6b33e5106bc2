"""Connections of the gRPC expander: strangers, and new certificates."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import grpc
import grpc.aio
import pytest
import trustme

from dra_extender.http import expander
from dra_extender.http.expander import ExpanderServer
from tests.http.test_expander import ASKED, Stage, stage
from tests.support.http.certificates import write_certificate
from tests.support.http.expanding import groups_in
from tests.support.patience import LONGEST

__all__ = ["stage"]

CHURN = """
import asyncio, pathlib, random, tempfile
from dra_extender.http import expander
from tests.http.test_expander import ExpanderServer, Stage

async def strangers(port, chance):
    for _ in range(40):
        streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        await asyncio.sleep(chance.uniform(0.0, 0.2))
        for _, writer in streams:
            writer.close()

async def main():
    expander.CONNECTIONS, expander.HANDSHAKE_SECONDS = 64, 0.1
    stage = Stage(pathlib.Path(tempfile.mkdtemp()))
    server = ExpanderServer(stage.known, stage.metrics, "127.0.0.1:0", stage.files, 100_000)
    await server.start()
    await asyncio.gather(*(strangers(server.port, random.Random(seed)) for seed in range(4)))
    await server.stop(0)

asyncio.run(main())
"""


def test_strangers_who_come_and_go_do_not_end_the_process() -> None:
    """grpc read freed memory when it asked for certificates during the handshakes of several connections."""
    found = subprocess.run([sys.executable, "-c", CHURN], capture_output=True, text=True, timeout=LONGEST)
    assert found.returncode == 0, found.stderr[-500:]


SCANNED = r"""
import asyncio, pathlib, tempfile
from contextlib import suppress
import trustme
from dra_extender.http.expander import ExpanderServer
from dra_extender.http.metrics import Metrics
from tests.support.http.certificates import write_certificate

async def main():
    files = write_certificate(pathlib.Path(tempfile.mkdtemp()), trustme.CA(), clients=trustme.CA())
    server = ExpanderServer(None, Metrics(), "127.0.0.1:0", files, 100_000)
    await server.start()
    for _ in range(3):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()
    with suppress(OSError):
        await ExpanderServer(None, Metrics(), f"127.0.0.1:{server.port}", files, 100_000).start()
    await server.stop(0)

asyncio.run(main())
"""


def test_a_stranger_who_shows_no_certificate_writes_no_line_and_an_error_does() -> None:
    found = subprocess.run([sys.executable, "-c", SCANNED], capture_output=True, text=True, timeout=LONGEST)
    assert len(found.stderr.splitlines()) == 1
    assert "Address already in use" in found.stderr


async def test_new_certificates_are_used_after_the_service_has_seen_them(stage: Stage) -> None:
    server = ExpanderServer(stage.known, stage.metrics, "127.0.0.1:0", stage.files, 100_000)
    await server.start()
    try:
        newer = trustme.CA()
        write_certificate(stage.folder, newer, clients=stage.clients)
        await server.renew(False)
        answers = [await asked(server, stage, authority) for authority in (stage.ca, newer)]
        await server.renew(True)
        answers += [await asked(server, stage, authority) for authority in (stage.ca, newer)]
        assert answers == [["a"], None, None, ["a"]]
    finally:
        await server.stop(0)


async def test_a_file_of_authorities_that_is_being_written_is_read_again(stage: Stage) -> None:
    server = ExpanderServer(stage.known, stage.metrics, "127.0.0.1:0", stage.files, 100_000)
    await server.start()
    try:
        written = stage.files[2].read_bytes()
        stage.files[2].write_bytes(b"")
        await server.renew(True)
        stage.files[2].write_bytes(written)
        await server.renew(False)
        assert await asked(server, stage, stage.ca) == ["a"]
    finally:
        await server.stop(0)


async def asked(server: ExpanderServer, stage: Stage, authority: trustme.CA) -> list[str] | None:
    """The answer to a client that trusts this authority; None if it does not trust the server."""
    own = stage.clients.issue_cert("ca")
    credentials = grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(), own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()
    )
    async with grpc.aio.secure_channel(f"localhost:{server.port}", credentials) as channel:
        try:
            return groups_in(await channel.unary_unary("/grpcplugin.Expander/BestOptions")(ASKED))
        except grpc.aio.AioRpcError as problem:
            assert problem.code() == grpc.StatusCode.UNAVAILABLE
            return None


@pytest.mark.parametrize(("connections", "handshake", "ended"), [(3, 600.0, 5), (64, 0.2, 8)])
async def test_strangers_who_say_nothing_are_few_and_soon_gone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, connections: int, handshake: float, ended: int
) -> None:
    monkeypatch.setattr(expander, "CONNECTIONS", connections)
    monkeypatch.setattr(expander, "HANDSHAKE_SECONDS", handshake)
    server = ExpanderServer(stage.known, stage.metrics, "127.0.0.1:0", stage.files, 100_000)
    await server.start()
    streams = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(8)]
    ends = [asyncio.create_task(reader.read()) for reader, _ in streams]
    try:
        async with asyncio.timeout(LONGEST):
            while sum(end.done() for end in ends) < ended:
                await asyncio.wait([end for end in ends if not end.done()], return_when=asyncio.FIRST_COMPLETED)
        assert sum(end.done() for end in ends) == ended
    finally:
        await server.stop(0)
        for end, (_, writer) in zip(ends, streams, strict=True):
            writer.close()
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
