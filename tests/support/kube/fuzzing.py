"""`make fuzz`, the watches: damaged objects of every kind, as events of a watch and as items of a list.

Promised and checked for each: no exception leaves the known, and none is unexpected to what the watches feed; an
object is either known or reported as left out; a good object next to it is known; and, over all of them, memory stays
flat. An object is a good one with random JSON at random places, or its bytes are damaged within it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog
from rich.console import Console

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Pod
from dra_extender.api.decoding import convert
from dra_extender.api.errors import ApiError
from dra_extender.api.events import Applied, ClusterEvent, Undecodable
from dra_extender.api.extender import ExtenderArgs
from dra_extender.api.features import FeatureGates
from dra_extender.devices.cluster import Cluster
from dra_extender.kube.knownobjects import KnownObjects
from dra_extender.kube.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from dra_extender.limits import FRAMES
from dra_extender.scheduling.extender import Extender
from tests.support.simulation.api import Api
from tests.support.simulation.client import Client
from tools.hostile.lines import event, samples, wounded
from tools.hostile.things import pod
from tools.memory import resident

WARM_UP: Final = 0.3
"""The part of a run in which caches may fill."""
GROWTH: Final = 48 * 2**20
"""Bytes that memory may grow by afterwards."""
_NAMES: Final = 20
"""Different objects of each kind; more would look like a leak."""
_EVERY: Final = 25
"""Objects between two lists, and between two questions to the verbs."""


class Kind:
    """One kind: its known, what was applied last of each object, and what was reported as left out."""

    def __init__(self, resource: Resource[Any], extender: Extender) -> None:
        self.applied: dict[str, str] = {}
        self.undecodable: dict[str, str] = {}
        self._extender = extender
        self.known: KnownObjects[Any] = KnownObjects(resource, self._apply)

    def _apply(self, event: ClusterEvent) -> None:
        key = event.key.name
        self.undecodable.pop(key, None)
        if isinstance(event, Applied):
            self.applied[key] = event.object.metadata.resource_version
        elif isinstance(event, Undecodable):
            self.undecodable[key] = event.problem
        else:
            self.applied.pop(key, None)
        self._extender.apply(event)

    def accounts_for(self, key: str, version: str) -> bool:
        """True when this version of the object is known, or is reported as left out."""
        return key in self.undecodable or self.applied.get(key) == version


class Fuzzing:
    """All kinds, fed from dice. Make it on a running loop."""

    def __init__(self, dice: random.Random) -> None:
        cluster = Cluster(FeatureGates())
        self._extender = Extender(cluster, Decisions(cluster, share_ids=lambda: "s"), Client(Api(), latency=0.0))
        resources: list[Resource[Any]] = [NODES, PODS, DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES]
        self._kinds = [(resource, Kind(resource, self._extender)) for resource in resources]
        self._samples = samples()
        self._dice = dice
        self._version = 1
        self.seen: Counter[str] = Counter()

    async def step(self) -> None:
        """One damaged object, and a good one behind it. Raises AssertionError with the line at fault."""
        resource, kind = self._dice.choice(self._kinds)
        body = self._body(resource.plural, f"o{self._dice.randrange(_NAMES)}")
        damaged = wounded(self._dice, body)
        line = event(damaged, self._dice.choice(["ADDED", "MODIFIED", "MODIFIED", "DELETED"]))
        whole = self._dice.random() < 0.8
        if not whole:
            line = self._torn(line)
        try:
            self._feed(resource, kind, line)
            if whole:
                self._check(resource, kind, damaged, line)
            self._good(resource, kind)
            if self._dice.randrange(_EVERY) == 0:
                self._list(resource, kind)
                await self._ask()
        except Exception as problem:
            raise AssertionError(f"{resource.plural}: {problem!r} for {line[:3000]!r}") from problem

    def _body(self, plural: str, name: str) -> dict[str, Any]:
        body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._samples[plural]))
        self._version += 1
        body["metadata"] |= {"name": name, "uid": f"uid-{name}", "resourceVersion": str(self._version)}
        return body

    def _feed(self, resource: Resource[Any], kind: Kind, line: bytes) -> None:
        """As the reflector does: what is wrong with the line as a whole ends the watch."""
        try:
            kind.known.watched(line)
        except ApiError:
            self.seen[f"{resource.plural} broken"] += 1

    def _check(self, resource: Resource[Any], kind: Kind, body: dict[str, Any], line: bytes) -> None:
        metadata = body["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
        if line.startswith(b'{"type":"DELETED"'):
            assert key not in kind.undecodable and key not in kind.applied, "deleted, and still there"
            self.seen[f"{resource.plural} deleted"] += 1
            return
        assert kind.accounts_for(key, metadata["resourceVersion"]), "neither known nor reported"
        self.seen[f"{resource.plural} {'left out' if key in kind.undecodable else 'known'}"] += 1

    def _good(self, resource: Resource[Any], kind: Kind) -> None:
        body = self._body(resource.plural, "good")
        kind.known.watched(event(body))
        key = f"{body['metadata']['namespace']}/good" if "namespace" in body["metadata"] else "good"
        assert key not in kind.undecodable, kind.undecodable[key]
        assert kind.applied[key] == body["metadata"]["resourceVersion"]

    def _list(self, resource: Resource[Any], kind: Kind) -> None:
        """Some objects, damaged and not, and all others are gone."""
        bodies = [self._body(resource.plural, f"o{number}") for number in range(_NAMES // 2)]
        made = [wounded(self._dice, body) if self._dice.random() < 0.5 else body for body in bodies]
        kind.known.begin_list()
        kind.known.listed([msgspec.Raw(event(body)[len(b'{"type":"MODIFIED","object":') : -2]) for body in made])
        kind.known.end_list(str(self._version))
        assert len(kind.known) + kind.known.undecodable >= len(made), "an item of a list is missing"

    async def _ask(self) -> None:
        """Whatever is known now, the verbs decide on it."""
        for asking in (_asker("asks", "good"), _asker("asks-too", "o1", "o2")):
            args = ExtenderArgs(asking, ("n1", "good", "o1"))
            answer = await self._extender.filter(args)
            self.seen[f"filter {'error' if answer.Error else 'answered'}"] += 1
            await self._extender.prioritize(args)

    def _torn(self, line: bytes) -> bytes:
        at, length = self._dice.randrange(len(line)), self._dice.randint(1, 40)
        return self._dice.choice(
            [
                line[:at],
                line[:at] + line[at + length :],
                line[:at] + self._dice.randbytes(length) + line[at + length :],
                line[:at] + line[at : at + length] * self._dice.randint(2, 50) + line[at:],
                line[:at] + self._dice.choice([b"[", b'{"a":']) * self._dice.choice([100, 20_000]) + line[at:],
            ]
        )


def _asker(name: str, *claims: str) -> Pod:
    return convert(Pod, pod(name, *claims, uid=f"uid-{name}"))


async def fuzz(count: int, seed: int) -> tuple[Counter[str], int]:
    """What became of objects by kind, and the growth of memory in bytes. Raises AssertionError for one at fault."""
    fuzzing, before = Fuzzing(random.Random(seed)), 0
    for number in range(count):
        if number == int(count * WARM_UP):
            before = resident(os.getpid())
        await fuzzing.step()
    return fuzzing.seen, resident(os.getpid()) - before


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=50_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    options = parser.parse_args(arguments)
    sys.setrecursionlimit(FRAMES)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    console, started = Console(), time.monotonic()
    console.print(f"seed {options.seed}")
    seen, growth = asyncio.run(fuzz(options.objects, options.seed))
    for kind, number in sorted(seen.items()):
        console.print(f"{kind}: {number:,}")
    seconds = time.monotonic() - started
    console.print(f"{options.objects:,} objects in {seconds:.0f} s, memory {growth / 2**20:+.1f} MiB")
    return 0 if growth <= GROWTH else 1


if __name__ == "__main__":
    raise SystemExit(main())
