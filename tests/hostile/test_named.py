"""The worst that was ever measured, each by its name, against the service as a process of its own.

The tests assert what becomes of the pods: the hostile pod gets the reason, ordinary pods are bound
at the same time. Times are what `make hostile` reports.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest

from dra_extender.allocation.plan import NO_SOLUTION
from dra_extender.scheduling.deferred import USED_UP
from embedded_cluster import hardware
from tests.support.patience import LONGEST, until
from tools.hostile import ground
from tools.hostile.catalogue import catalogue
from tools.hostile.feeding import Fed, Feeding
from tools.hostile.ground import Ground
from tools.hostile.ordinary import Stream, template
from tools.hostile.things import Objects, Thing

pytestmark = pytest.mark.slow

ERROR = r"claim hostile/{}: selector #0 on device gpu.example.com/node-\d/gpu-\d: CEL runtime error: "
BOUND = "bound to node-"
REFUSED = r"^0/8 nodes are available: 8 cannot allocate all claims\b"


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground.embedded(tmp_path) as made:
        await made.create(template())
        yield made


@cache
def things() -> dict[str, Thing]:
    """By name. They take seconds to make."""
    return {thing.name: thing for thing in catalogue(1, each=0)}


def thing(name: str) -> Thing:
    return things()[name]


async def fed(there: Ground, name: str) -> Fed:
    """What became of the thing of this name, while every ordinary pod was bound, and a last one afterwards."""
    stream = Stream(there.client)
    running = asyncio.create_task(stream.run())
    try:
        await until(lambda: stream.waited, "the first ordinary pod's being bound")
        found = await Feeding(there, LONGEST).feed(thing(name))
        before = stream.made
        await until(lambda: f"ordinary-{before}" in stream.waited, "an ordinary pod's being bound afterwards")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await stream.finish()
    assert stream.lost == []
    assert there.service.starts == 1 and not there.service.dead(), there.service.tail()
    assert found.refused == ""
    return found


def says(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).search


async def test_the_539_byte_selector_is_decided_and_delays_nobody(there: Ground) -> None:
    (told,) = (await fed(there, "the 539-byte selector")).told
    assert told.startswith(BOUND)


async def test_a_list_that_is_doubled_until_it_would_fill_the_memory_is_never_made(there: Ground) -> None:
    (told,) = (await fed(there, "list doubling")).told
    assert "the values take more than 64 MiB of memory" in told


async def test_a_missing_key_of_megabytes_is_quoted_in_part(there: Ground) -> None:
    (told,) = (await fed(there, "a missing key of 4.5 MB in ten claims")).told
    assert says(ERROR.format(r"missing-key-\d"))(told)
    assert len(told) < 1_000


async def test_nested_loops_on_devices_that_all_differ_end_and_are_told(there: Ground) -> None:
    """Whether the workers decide each node in the claim's time depends on the machine; every node gets an answer."""
    (told,) = (await fed(there, "nested loops on every device")).told
    reasons = re.match(r"0/8 nodes are available: ([^.]*)\.", told)
    assert reasons is not None
    counts = [each.partition(" ") for each in reasons[1].split(", ")]
    assert {reason for _, _, reason in counts} <= {NO_SOLUTION, USED_UP}
    assert sum(int(nodes) for nodes, _, _ in counts) == 8


async def test_a_claim_of_a_megabyte_with_100_selectors_is_decided(there: Ground) -> None:
    (told,) = (await fed(there, "1 MB of 100 selectors in one claim")).told
    assert told.startswith(BOUND)


async def test_a_hard_search_on_every_node_ends_with_an_answer(there: Ground) -> None:
    assert len(there.nodes) == 8 and there.nodes[0] == hardware.node_name(0)
    (told,) = (await fed(there, "what only groups decides")).told
    assert says(REFUSED)(told)


async def test_deeply_nested_opaque_parameters_are_reported_and_the_watch_goes_on(there: Ground) -> None:
    (told,) = (await fed(there, "opaque parameters 9,000 deep")).told
    assert told == "objects left out: 2, after a new list: 0"


def test_the_named_things_are_what_they_say() -> None:
    act = thing("1 MB of 100 selectors in one claim").act
    assert isinstance(act, Objects)
    requests = act.bodies[0]["spec"]["devices"]["requests"]
    selectors = [each["cel"]["expression"] for request in requests for each in request["exactly"]["selectors"]]
    assert len(set(selectors)) == 100
    assert sum(map(len, selectors)) > 10**6
