"""A service with defects on demand, for tests of the observer: `python -m tools.hostile.planted`.

Prints its address. POST /stall blocks its event loop for `seconds`, POST /grow keeps `mib` more in memory.
"""

from __future__ import annotations

import asyncio
import sys
import time

from aiohttp import web

KEPT: list[bytearray] = []


async def _live(request: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def _filter(request: web.Request) -> web.Response:
    await request.read()
    return web.json_response({"NodeNames": ["node-1"]})


async def _stall(request: web.Request) -> web.Response:
    time.sleep(float(request.query["seconds"]))  # noqa: ASYNC251 - this is the defect
    return web.Response()


async def _grow(request: web.Request) -> web.Response:
    KEPT.append(bytearray(b"x" * (int(request.query["mib"]) * 2**20)))
    return web.Response()


async def main() -> None:
    application = web.Application()
    application.router.add_get("/livez", _live)
    application.router.add_post("/scheduler/filter", _filter)
    application.router.add_post("/stall", _stall)
    application.router.add_post("/grow", _grow)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(f"http://{host}:{port}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
