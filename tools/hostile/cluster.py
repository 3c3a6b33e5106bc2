"""The embedded cluster as a process of its own: `python -m tools.hostile.cluster`.

Reads one command per line from its standard input (a `Command` as JSON) and answers each with one line; the first line
is its own and says where the API server is. It ends with its input.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import uvloop

from dra_extender.limits import FRAMES
from dra_extender.service import logs
from embedded_cluster.cluster import EmbeddedCluster


class Command(msgspec.Struct, frozen=True):
    """`do` is one of schedule (with the extender at `url`), tell (`line` into watches of `resource`), expire (those
    watches), burst (`count` writes to the status of a claim), audit.
    """

    do: str
    url: str = ""
    resource: str = ""
    line: bytes = b""
    namespace: str = ""
    name: str = ""
    count: int = 0


class Answer(msgspec.Struct, frozen=True):
    """`problem`: why it could not be done. `found`: what an audit found. `url`: of the API server."""

    url: str = ""
    count: int = 0
    found: tuple[str, ...] = ()
    problem: str = ""


_command = msgspec.json.Decoder(Command)


async def obey(cluster: EmbeddedCluster, command: Command) -> Answer:
    """Do it."""
    match command.do:
        case "schedule":
            await cluster.schedule_with(command.url)
            return Answer()
        case "tell":
            return Answer(count=cluster.faults.tell_watches(command.line, command.resource))
        case "expire":
            return Answer(count=cluster.faults.expire_watches(command.resource))
        case "burst":
            return Answer(count=await _burst(cluster, command))
        case "audit":
            return Answer(found=tuple(cluster.audit()))
    return Answer(problem=f"unknown: {command.do}")


async def _burst(cluster: EmbeddedCluster, command: Command) -> int:
    """Versions of a claim whose status changes every time, as fast as they can be stored."""
    claim = cluster.store.get("resourceclaims", command.name, command.namespace)
    if claim is None:
        return 0
    for number in range(command.count):
        claim["status"] = claim.get("status", {}) | {"devices": []}
        claim["metadata"]["annotations"] = {"number": str(number)}
        claim = cluster.store.update(claim)
        if number % 100 == 0:
            await asyncio.sleep(0)
    return command.count


async def _serve(nodes: int, devices: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**27)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    # The size of the window does not limit a burst.
    async with EmbeddedCluster(nodes, devices) as cluster:
        _say(Answer(url=cluster.url))
        while line := await reader.readline():
            try:
                _say(await obey(cluster, _command.decode(line)))
            except Exception as problem:  # the harness reports it
                _say(Answer(problem=f"{type(problem).__name__}: {problem}"))


def _say(answer: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    sys.setrecursionlimit(FRAMES)
    logs.configure("error")
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2])))


if __name__ == "__main__":
    main()
