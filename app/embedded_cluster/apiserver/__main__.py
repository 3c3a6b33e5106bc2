"""The API server as a process of its own: `python -m embedded_cluster.apiserver --kubeconfig FILE`.

Writes the kubeconfig when it is ready, prints its URL, and serves until it is interrupted. All state is gone then.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from embedded_cluster.apiserver.kinds import RESOURCE_VERSIONS
from embedded_cluster.apiserver.server import EmbeddedAPIServer


async def _serve(arguments: argparse.Namespace) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    versions = arguments.versions.split(",")
    async with EmbeddedAPIServer(arguments.host, arguments.port, versions) as server:
        if arguments.kubeconfig is not None:
            server.write_kubeconfig(arguments.kubeconfig)
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await ended.wait()


def main(argv: list[str] | None = None) -> None:
    """Run until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m embedded_cluster.apiserver", description="An API server in memory."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 chooses a free one")
    parser.add_argument("--versions", default="v1", help=f"of resource.k8s.io: some of {','.join(RESOURCE_VERSIONS)}")
    parser.add_argument("--kubeconfig", type=Path, help="where to write a kubeconfig")
    asyncio.run(_serve(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
