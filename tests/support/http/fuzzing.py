"""`make fuzz`: damaged bodies for the four verbs, answered by the real decisions on a small cluster.

Promised and checked for each body: an answer in the protocol's terms (200 or 400, valid JSON), never an exception,
never a 5xx; and, over all of them, that memory stays flat. A body is a recorded one with a few wounds: values of the
wrong kind, size or depth anywhere in the tree, or bytes lost, changed and repeated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from fastapi import FastAPI
from rich.console import Console
from starlette.types import Message

from dra_extender.allocation.decisions import Decisions
from dra_extender.api.core import Pod
from dra_extender.api.decoding import encode
from dra_extender.api.features import FeatureGates
from dra_extender.devices.cluster import Cluster
from dra_extender.http.application import create_app
from dra_extender.http.metrics import Metrics
from dra_extender.http.verbs import VerbContext, verb_routes
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.handle import Runtime
from tests.support.simulation.api import Api
from tests.support.simulation.client import Client
from tests.support.simulation.objects import Objects, make_claim, make_class, make_node, make_pod, make_slice
from tests.support.simulation.watch import Watch
from tools.memory import resident

Body = dict[str, Any]

GPU = "example.com/gpu"
WARM_UP = 0.3
"""The part of a run in which caches may fill."""
GROWTH = 48 * 2**20
"""Bytes that memory may grow by afterwards."""
VALUES: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 2**64, 1e308, -1.5, "", "\x00", "ü" * 300, "x" * 20_000, "n1", "n2",
    "default", "p", "uid-p", [], {}, [[]], [None], {"": {}}, {"metadata": None}, ["n1"] * 500, "2026-01-01T00:00:00Z",
    "1e9999999", "0x1",
]  # fmt: skip


def recorded() -> dict[str, list[Body]]:
    """Bodies as kube-scheduler sends them, by verb."""
    container = {"name": "main", "resources": {"requests": {GPU: "1", "cpu": "100m"}, "limits": {GPU: "1"}}}
    pods = [make_pod("p", "c"), make_pod("q", "c", "shared"), make_pod("e", containers=[container]), make_pod("none")]
    known: list[Body] = [json.loads(encode(pod)) for pod in pods]
    args = [{"Pod": pod, "Nodes": None, "NodeNames": ["n1", "n2"]} for pod in known]
    victims = {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 0}, "n2": {"Pods": [], "NumPDBViolations": 1}}
    preempts = [{"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims} for pod in known]
    names = [("p", "n1"), ("q", "n2"), ("e", "n1"), ("none", "n2")]
    binds = [{"PodName": n, "PodNamespace": "default", "PodUID": f"uid-{n}", "Node": node} for n, node in names]
    return {"filter": args, "prioritize": args, "preempt": preempts, "bind": binds}


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


class Wounds:
    """Damage drawn from dice."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def damaged(self, body: Body) -> bytes:
        if self._dice.random() < 0.7:
            body = _copy(body)
            for _ in range(self._dice.randint(1, 4)):
                self._in_tree(body)
        data = json.dumps(body).encode()
        return self._in_bytes(data) if self._dice.random() < 0.3 else data

    def _in_tree(self, root: Body) -> None:
        spot: Any = root
        while True:
            keys: Sequence[Any] = list(spot) if isinstance(spot, dict) else range(len(spot))
            if not keys:
                return
            key = self._dice.choice(keys)
            below = spot[key]
            if not isinstance(below, dict | list) or not below or self._dice.random() < 0.15:
                break
            spot = below
        match self._dice.randrange(5):
            case 0:
                del spot[key]
            case 1:
                spot[key] = [_copy(spot[key])] * self._dice.choice([1, 2, 40])
            case 2 if isinstance(spot, dict):
                spot[self._dice.choice(["", "uid", "name", "metadata", "x" * 300])] = _copy(self._dice.choice(VALUES))
            case 3:
                deep: Any = []
                for _ in range(self._dice.choice([10, 100])):
                    deep = [deep]
                spot[key] = deep
            case _:
                spot[key] = _copy(self._dice.choice(VALUES))

    def _in_bytes(self, data: bytes) -> bytes:
        at, length = self._dice.randrange(len(data)), self._dice.randint(1, 40)
        wounds: list[Callable[[], bytes]] = [
            lambda: data[:at],
            lambda: data[:at] + data[at + length :],
            lambda: data[:at] + self._dice.randbytes(length) + data[at + length :],
            lambda: data[:at] + data[at : at + length] * self._dice.randint(2, 50) + data[at:],
            lambda: self._dice.choice([b"[", b'{"a":']) * self._dice.choice([100, 10_000]),
        ]
        return self._dice.choice(wounds)()


def make_application() -> Any:
    """The verbs over a cluster of two nodes, as an ASGI application. Call it on a running loop."""
    api, cluster = Api(), Cluster(FeatureGates())
    client = Client(api, latency=0.0)
    runtime = Runtime(config=SchedulingConfig(bind_timeout=1.0))
    scheduling = Extender(
        cluster,
        Decisions(cluster, share_ids=lambda: "s"),
        client,
        runtime=runtime,
    )
    client.calls = _Forgetful()
    api.log = _Forgetful()
    api.watches.append(Watch(api, scheduling, 0.0, cluster.continuity))
    pods: list[Pod] = [make_pod("p", "c"), make_pod("q", "c", "shared"), make_pod("none")]
    claims = make_claim("c"), make_claim("shared")
    objects: Objects = [make_class(resource=GPU), make_node("n1"), make_node("n2"), *claims, *pods]
    for obj in objects:
        api.put(obj)
    for node in ("n1", "n2"):
        api.put(make_slice(node, ["a", "b"]))
    return create_app((), verbs=verb_routes(lambda: scheduling, VerbContext(lambda: "", Metrics(), 2**20)))


class _Forgetful(list[Any]):
    """What is not looked at must not look like a leak."""

    def append(self, _: Any) -> None:
        return


async def ask(app: FastAPI, verb: str, body: bytes) -> tuple[int, bytes]:
    """One call in process: status and body of the answer."""
    sent: list[Message] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": f"/scheduler/{verb}",
        "raw_path": f"/scheduler/{verb}".encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-length", str(len(body)).encode())],
        "scheme": "http",
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def fuzz(count: int, seed: int) -> tuple[Counter[str], int]:
    """Answers by verb and status, and the growth of memory in bytes. Raises AssertionError with the body at fault."""
    dice, answers = random.Random(seed), Counter[str]()
    wounds, bodies, app = Wounds(dice), recorded(), make_application()
    await asyncio.sleep(0.05)
    before = 0
    for number in range(count):
        if number == int(count * WARM_UP):
            before = resident(os.getpid())
        verb = dice.choice(list(bodies))
        body = wounds.damaged(dice.choice(bodies[verb]))
        try:
            status, answer = await ask(app, verb, body)
            json.loads(answer)
        except Exception as problem:
            raise AssertionError(f"{verb}: {problem!r} for {body[:2000]!r}") from problem
        assert status in (200, 400), f"{verb}: {status} {answer!r} for {body[:2000]!r}"
        assert b"internal error" not in answer, f"{verb}: {answer!r} for {body[:2000]!r}"
        answers[f"{verb} {status}"] += 1
    return answers, resident(os.getpid()) - before


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bodies", type=int, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    console, started = Console(), time.monotonic()
    console.print(f"seed {options.seed}")
    answers, growth = asyncio.run(fuzz(options.bodies, options.seed))
    for kind, number in sorted(answers.items()):
        console.print(f"{kind}: {number:,}")
    console.print(f"{options.bodies:,} bodies in {time.monotonic() - started:.0f} s, memory {growth / 2**20:+.1f} MiB")
    return 0 if growth <= GROWTH else 1


if __name__ == "__main__":
    raise SystemExit(main())
