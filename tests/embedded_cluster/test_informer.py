"""Local copies of objects, and queues of keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dra_extender.api.decoding import convert
from dra_extender.api.errors import OutcomeUnknownError
from embedded_cluster.cluster import EmbeddedCluster
from embedded_cluster.informer import Informer, RateLimitedQueue
from embedded_cluster.objects import PODS, FullPod
from tests.support.patience import LONGEST
from tests.support.unexpected import Reports

Make = Callable[..., dict[str, Any]]


def made(version: int, uid: str = "u", node: str = "") -> FullPod:
    meta = {"name": "p", "namespace": "ns", "uid": uid, "resourceVersion": str(version)}
    return convert(FullPod, {"metadata": meta, "spec": {"nodeName": node}})


async def test_the_newest_state_counts_whether_watched_or_replied(cluster: EmbeddedCluster) -> None:
    informer = Informer(cluster.client, PODS, indexes={"node": lambda pod: [pod.spec.node_name]})
    told: list[tuple[str, str]] = []
    informer.subscribe(
        lambda old, new: told.append(
            (old.metadata.resource_version if old else "", new.metadata.resource_version if new else "")
        )
    )
    informer.observe(made(5, node="n1"))
    informer.observe(made(4))
    informer.observe(made(5))
    assert informer.objects["ns/p"].metadata.version == 5 and told == [("", "5")]
    informer.observe(made(7, node="n2"))
    assert informer.find("node", "n1") == [] and informer.find("node", "n2") == [informer.objects["ns/p"]]
    informer.observe(made(2, uid="other"))
    assert informer.get("ns", "p") is not None and told[-1] == ("7", "2"), "another UID is another object"


async def test_what_was_deleted_does_not_come_back_by_a_late_reply(cluster: EmbeddedCluster, pod: Make) -> None:
    informer = cluster.controllers.pods
    await cluster.apply([pod("p")])
    await cluster.wait_until(lambda: informer.get("default", "p"))
    reply = informer.get("default", "p")
    assert reply is not None
    await cluster.delete("pods", "p", "default")
    await cluster.wait_until(lambda: informer.get("default", "p") is None)
    informer.observe(reply)
    assert informer.get("default", "p") is None


async def test_keys_are_worked_on_once_at_a_time_and_again_when_added_meanwhile() -> None:
    started, release, seen = asyncio.Event(), asyncio.Event(), []

    async def handle(key: str) -> None:
        seen.append(key)
        started.set()
        await release.wait()

    queue = RateLimitedQueue("test", handle, workers=3)
    running = asyncio.create_task(queue.run())
    for key in ("a", "a", "b"):
        queue.add(key)
    await started.wait()
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("a")
    release.set()
    while not queue.idle():
        await asyncio.sleep(0)
    assert sorted(seen) == ["a", "a", "b"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_failures_are_repeated_and_do_not_stop_others(tolerated: Reports) -> None:
    seen: list[str] = []
    done = asyncio.Event()

    async def handle(key: str) -> None:
        seen.append(key)
        if key == "bad" and seen.count("bad") < 3:
            raise OutcomeUnknownError(500, "Internal", "no answer") if seen.count("bad") == 1 else ValueError("odd")
        if key == "bad":
            done.set()

    queue = RateLimitedQueue("test", handle, workers=1)
    running = asyncio.create_task(queue.run())
    queue.add("bad")
    queue.add("good")
    await asyncio.wait_for(done.wait(), LONGEST)
    assert seen == ["bad", "good", "bad", "bad"]
    assert [place for place, _ in tolerated] == ["controller"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_earliest_of_several_delays_counts() -> None:
    loop = asyncio.get_running_loop()
    seen: list[float] = []
    started = loop.time()

    async def handle(key: str) -> None:
        seen.append(loop.time() - started)

    queue = RateLimitedQueue("test", handle, workers=1)
    running = asyncio.create_task(queue.run())
    queue.add_after("a", 60)
    queue.add_after("a", 0.01)
    queue.add_after("a", 30)
    while not seen:
        await asyncio.sleep(0.005)
    assert len(seen) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
