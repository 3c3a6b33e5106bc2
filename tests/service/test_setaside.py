"""A pod on which no decision ends: it costs one process, and then the others go on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from dra_extender.api.core import Pod
from dra_extender.api.events import ClusterEvent
from dra_extender.api.meta import ObjectMeta
from dra_extender.kube.knownobjects import KnownObjects
from dra_extender.kube.resources import NODES, PODS, Resource
from dra_extender.scheduling.setaside import ANNOTATION, REASON, UNREAD
from dra_extender.service.process import subject
from tests.support.patience import until
from tests.support.service.world import Json, World

pytestmark = pytest.mark.slow


class Process:
    """A replica that runs as a process, with the planted bug of `tests.support.service.stuck`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.url = ""
        self.leads = False

    async def read_log(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            said = json.loads(line)
            self.url = said.get("verbs", self.url)
            self.leads = self.leads or said["event"] == "leading"

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def replica(world: World, memory: int) -> AsyncIterator[Process]:
    """`memory`: MiB that it may fill; 0: it fills nothing."""
    lease = ["--leader-election", "--lease-duration", "2", "--renew-deadline", "1.5", "--retry-period", "0.5"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.service.stuck", str(memory)),
        *("--server", world.api.url, "--listen", "127.0.0.1:0", "--log-format", "json", *lease),
        stderr=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
    )
    made = Process(process)
    reading = asyncio.create_task(made.read_log())
    try:
        await until(lambda: made.url)
        yield made
    finally:
        await made.kill()
        await reading


def annotated(world: World) -> bool:
    lease = world.store.get("leases", "dra-extender", "dra-system")
    return lease is not None and ANNOTATION in lease["metadata"].get("annotations", {})


def blamed(*names: str) -> str:
    """Whom the watchdog blames, by namespace/name, for work on the first pod that works on the others."""
    pod = Pod(ObjectMeta(namespace=names[0].partition("/")[0], name=names[0].partition("/")[2]))
    if names[1:]:
        return blamed(*names[1:])
    found = subject(sys._getframe())
    return found.metadata.key if isinstance(found, Pod) else f"nobody, for {pod.metadata.key}"


def test_a_pod_is_not_set_aside_for_work_on_a_pod_of_another_namespace() -> None:
    assert blamed("ours/preemptor", "ours/victim") == "ours/preemptor"
    assert blamed("ours/preemptor", "others/victim") == "nobody, for others/victim"


def blamed_for_an_event(kind: Resource[Any], event: Json, other: Pod | None = None) -> str:
    """Whom the watchdog blames while the event is applied, which works on the other pod, too."""
    blamed: list[str] = []

    def work(pod: Pod | None) -> None:
        found = subject(sys._getframe())
        blamed.append(found.metadata.key if isinstance(found, Pod) else str(found))

    def apply(_: ClusterEvent) -> None:
        work(other)

    KnownObjects(kind, apply).watched(json.dumps({"type": "ADDED", "object": event}).encode())
    return blamed[0]


def test_an_object_is_set_aside_for_its_own_event_only() -> None:
    node = {"metadata": {"name": "n", "resourceVersion": "1"}}
    pod = {"metadata": {"name": "p", "namespace": "ours", "resourceVersion": "1"}}
    ours = Pod(ObjectMeta(namespace="ours", name="p"))
    assert blamed_for_an_event(NODES, node) == "Node n"
    assert blamed_for_an_event(NODES, node, ours) == "ours/p"
    assert blamed_for_an_event(PODS, pod, ours) == "Pod ours/p"
    assert blamed_for_an_event(PODS, pod, Pod(ObjectMeta(namespace="others", name="q"))) == "None"


async def test_a_slice_that_costs_one_process_is_left_out_by_the_next_and_others_go_on(world: World) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(replica(world, 0))
        await until(lambda: first.leads)
        world.claim("c")
        pod = world.pod("p", "c")
        published = world.published(world.nodes[0])
        published["metadata"] = {"name": "stuck"}
        published["spec"]["pool"]["name"] = "other"
        world.store.create(published)
        await until(lambda: annotated(world))
        await first.kill()
        second = await stack.enter_async_context(replica(world, 0))
        await until(lambda: second.leads)
        answer = await world.call(second.url, "filter", {"Pod": pod, "NodeNames": world.nodes})
        assert answer["NodeNames"] == world.nodes
        _, problems = await world.get(f"{second.url}/insight/problems")
        assert [(found["object"], found["problem"]) for found in problems["problems"]] == [
            ("ResourceSlice stuck", f"cannot be read: {UNREAD}")
        ]


@pytest.mark.parametrize("memory", [0, 500], ids=["killed by its probe", "killed at its memory limit"])
async def test_a_pod_that_costs_one_process_is_set_aside_by_the_next_and_others_go_on(
    world: World, memory: int
) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(replica(world, memory))
        await until(lambda: first.leads)
        second = await stack.enter_async_context(replica(world, memory))
        while "standby" not in str((await world.get(f"{second.url}/readyz"))[1]):
            await until(lambda: first.leads)
        world.claim("c")
        world.claim("d", request="stuck")
        ordinary, stuck = world.pod("ordinary", "c"), world.pod("stuck", "d")
        call = asyncio.create_task(world.call(first.url, "filter", {"Pod": stuck, "NodeNames": world.nodes}))
        await until(lambda: annotated(world))
        if not memory:
            await first.kill()
        assert await first.process.wait() == -signal.SIGKILL
        assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], aiohttp.ClientError)
        await until(lambda: second.leads)
        third = await stack.enter_async_context(replica(world, memory))
        for _ in range(2):
            answer = await world.call(second.url, "filter", {"Pod": stuck, "NodeNames": world.nodes})
            assert set(answer["FailedAndUnresolvableNodes"].values()) == {REASON}
        answer = await world.call(second.url, "filter", {"Pod": ordinary, "NodeNames": world.nodes})
        assert answer["NodeNames"] == world.nodes
        _, problems = await world.get(f"{second.url}/insight/problems")
        assert [(found["object"], found["problem"]) for found in problems["problems"]] == [
            ("Pod default/stuck", REASON)
        ]
        await second.kill()
        await until(lambda: third.leads)
        answer = await world.call(third.url, "filter", {"Pod": ordinary, "NodeNames": world.nodes})
        assert answer["NodeNames"] == world.nodes
