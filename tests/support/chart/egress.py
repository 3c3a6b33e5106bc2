"""How the API server connects to pods that are processes here: by CONNECT to their address, as to an egress proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.e2e.deploymentnode import pump


class Egress:
    """`here`: the port on loopback for a port of the pods; 0 without a process."""

    def __init__(self, here: Callable[[int], int]) -> None:
        self._here = here
        self._connections: set[asyncio.Task[None]] = set()

    async def run(self, socket: Path) -> None:
        """Listen until cancelled."""
        server = await asyncio.start_unix_server(self._accept, socket)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            asked = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = asked.split(maxsplit=2)
            here = self._here(int(target.rpartition(":")[2]))
            if method != "CONNECT" or not here:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                await writer.drain()
                return
            there = await asyncio.open_connection("127.0.0.1", here)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            try:
                await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))
            finally:
                there[1].close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # as a packet to a pod that is not there any more
        finally:
            self._connections.discard(task)
            writer.close()
