"""`python -m loadtest`: an embedded cluster, the service in its own process, locust, and percentiles.

Exits 0 when every call got the answer it should. The processes compete for the cores of the machine: compare figures
only with those of the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

from dra_extender.plaintext import counted
from dra_extender.service import logs
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.demo.companion import Companion
from embedded_cluster.demo.show import service_command

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
_STARTING = 60.0
"""Seconds that the service may take to be ready."""
_COLUMNS = ("p50", "p90", "p95", "p99", "max")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=500, help="nodes of the embedded cluster (500)")
    parser.add_argument("--devices", type=int, default=8, help="GPUs per node (8)")
    parser.add_argument("--users", type=int, default=4, help="pods that are being placed at the same time (4)")
    parser.add_argument("--seconds", type=int, default=30, help="how long (30)")
    return parser.parse_args()


async def run(options: argparse.Namespace, console: Console) -> int:
    """The exit status."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dra-extender-load-") as directory:
        log = Path(directory) / "service.log"
        async with EmbeddedCluster(options.nodes, options.devices) as cluster:
            cluster.store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "loadtest"}})
            service = f"127.0.0.1:{_free_port()}"
            command = (*service_command(cluster.url, service), "--log-level", "warning")
            companion = Companion(command, log, lambda line: console.print(line, style="dim"))
            supervision = asyncio.create_task(companion.run())
            try:
                await _ready(f"http://{service}")
                console.print(f"{counted(options.nodes, 'node')} ready after {time.monotonic() - started:.1f} s")
                code, stats = await _locust(options, f"http://{service}", cluster.url)
                console.print(table(stats, options.seconds))
                wrong = cluster.audit()
                for line in wrong:
                    console.print(f"WRONG: {line}", style="red")
                for line in companion.tail(5) if code else ():
                    console.print(line, style="dim", markup=False)
                return 1 if wrong else code
            finally:
                supervision.cancel()
                await companion.stop()


async def _locust(options: argparse.Namespace, service: str, api_server: str) -> tuple[int, list[dict[str, Any]]]:
    """Run locust; its exit status and its statistics by name."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--host", service, "--headless", "--json",
        "--users", str(options.users), "--spawn-rate", str(options.users), "--run-time", f"{options.seconds}s",
        "--loglevel", "WARNING", "--only-summary",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"APISERVER_URL": api_server},
    )  # fmt: skip
    output, said = await process.communicate()
    if process.returncode:
        sys.stderr.write(said.decode(errors="replace"))
    start = output.find(b"[")
    stats: list[dict[str, Any]] = json.loads(output[start:]) if start >= 0 else []
    return process.returncode or 0, stats


def table(stats: list[dict[str, Any]], seconds: int) -> Table:
    """Milliseconds by call: the three verbs first, then the requests to the cluster around them."""
    made = Table(title="milliseconds", header_style="bold")
    for name in ("call", "count", "per second", "failed", *_COLUMNS):
        made.add_column(name, justify="left" if name == "call" else "right")
    order = {"filter": 0, "prioritize": 1, "bind": 2}
    for entry in sorted(stats, key=lambda entry: (order.get(entry["name"], 3), entry["name"])):
        times = sorted((float(time), count) for time, count in entry["response_times"].items())
        cells = [f"{percentile(times, share):.0f}" for share in (0.5, 0.9, 0.95, 0.99)]
        count = entry["num_requests"]
        made.add_row(
            entry["name"],
            str(count),
            f"{count / seconds:.1f}",
            str(entry["num_failures"]),
            *cells,
            f"{entry['max_response_time']:.0f}",
        )
    return made


def percentile(times: list[tuple[float, int]], share: float) -> float:
    """The time (ascending, with counts) below which this share of the calls was answered."""
    wanted = share * sum(count for _, count in times)
    seen = 0
    for milliseconds, count in times:
        seen += count
        if seen >= wanted:
            return milliseconds
    return 0.0


async def _ready(service: str) -> None:
    """Wait until the service may decide. Raises TimeoutError."""
    async with asyncio.timeout(_STARTING), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{service}/readyz") as reply:
                    if reply.ok:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def main() -> None:
    import uvloop

    logs.configure("error")
    console = Console()
    try:
        sys.exit(uvloop.run(run(arguments(), console if console.is_terminal else Console(width=120))))
    except KeyboardInterrupt:
        sys.exit(130)
    except TimeoutError:
        console.print(f"the service was not ready after {_STARTING:g} s", style="red")
        sys.exit(1)


main()
