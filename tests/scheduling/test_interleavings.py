"""Interleavings that once gave a device twice, or took one from under a pod. Each test is one, as short as can be."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from dra_extender.api.errors import OutcomeUnknownError
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.simulation.objects import (
    Objects,
    make_allocated,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.world import World

LIMITS = SchedulingConfig(bind_timeout=20.0, scheduler_names=frozenset({"dra-scheduler"}))


def tiny() -> Objects:
    """One node with one device."""
    return [make_class(), make_node("n1"), make_slice("n1", ["a"])]


async def test_a_reply_that_jumps_over_a_deallocation_hides_no_rival(world: World) -> None:
    """A replica knows c on the device. Its watch falls behind: c is deallocated, d takes the device and q is bound, and
    another replica, which is behind as well, allocates c again. A reply brings this version of c at once, the watch
    then shows the deallocation, older than what is known: c is younger than d, so nobody may join c.
    """
    api = world.api
    world.add(*tiny(), make_claim("c"), make_pod("p1", "c"), make_pod("p2", "c"), make_pod("p3", "c"))
    one, behind, third = world.service(lag=0.0), world.service(lag=0.0), world.service(lag=0.0)
    assert await one.bind(api.pod("p1"), "n1") == ""
    world.add(make_claim("d"), make_pod("q", "d"))
    await world.settle(0.1)
    one.watch.lags[ResourceClaim] = 2.0
    api.delete_pod("p1")
    await world.settle(0.1)
    behind.watch.lags[ResourceClaim] = 1.0
    assert await third.bind(api.pod("q"), "n1") == ""
    other = behind.spawn(behind.bind(api.pod("p2"), "n1"))  # does not know of d yet
    await world.settle(0.1)
    assert api.claim("c").allocation is not None
    joining = one.spawn(one.bind(api.pod("p3"), "n1"))  # a conflict makes it read c
    await joining
    await other
    assert not api.pod("p3").spec.node_name, "two bound pods have n1/a"


@pytest.mark.parametrize("during", [False, True])
async def test_a_reallocation_in_a_gap_of_the_watch_does_not_keep_its_age(world: World, during: bool) -> None:
    """One replica knows c at v1 with the device. While its watch of claims is broken c is deallocated, d takes the
    device and its pod is bound, and the other replica, whose watch is behind, allocates c again on the same device for
    p2 (it will see d and take that back). The list after the gap shows c and d: c seems to have its device since v1,
    and d, which was seen without it after v1, to have come later. p3 must not join c. `during`: the bind of p3 has read
    and written c before the list comes, which then shows no version that was not known by a reply.
    """
    api = world.api
    world.add(*tiny(), make_claim("c"), make_pod("p1", "c"), make_pod("p2", "c"), make_pod("p3", "c"))
    one, behind = world.service(lag=0.0), world.service(lag=0.0)
    assert await one.bind(api.pod("p1"), "n1") == ""
    world.add(make_claim("d"), make_pod("q", "d"))
    await world.settle(0.1)
    third = world.service(lag=0.0)
    one.watch.disconnect((ResourceClaim,))
    api.delete_pod("p1")
    await world.settle(0.1)
    behind.watch.lag = 1.0
    assert await third.bind(api.pod("q"), "n1") == ""
    other = behind.spawn(behind.bind(api.pod("p2"), "n1"))  # does not know of d yet
    await world.settle(0.1)
    assert api.claim("c").allocation is not None
    if not during:
        one.watch.reconnect()
        await world.settle(0.01)
    joining = one.spawn(one.bind(api.pod("p3"), "n1"))
    await world.settle(0.3)
    one.watch.reconnect()
    await joining
    await other
    assert not api.pod("p3").spec.node_name, "two bound pods have n1/a"


async def test_an_allocation_made_anew_in_a_gap_of_the_watch_is_not_long_settled(world: World) -> None:
    """A leftover of p is known for longer than any bind takes. While the watch of claims is broken it is deallocated
    and allocated again for p by another replica, whose binding is on its way. The list after the gap shows the same
    consumer and the same mark, and yet the sweeper must not take it for the old leftover: the binding arrives later.
    """
    api = world.api
    world.add(*tiny(), make_allocated("c", "p"), make_pod("p", "c"))
    sweeping, other = world.service(lag=0.0, config=LIMITS), world.service(lag=0.0, config=LIMITS)
    sweeping.start()
    await world.settle(84.0 - 10.0)
    sweeping.watch.disconnect((ResourceClaim,))
    await world.settle(1.0)
    api.set_status("c", allocation=None, reserved_for=())  # a third replica, or a person, clears it
    await world.settle(0.1)
    other.client.fail("bind_pod", OutcomeUnknownError(0, "Timeout"), "late", delay=15.0, times=100)
    other.spawn(other.bind(api.pod("p"), "n1"))
    await world.settle(1.0)
    assert api.claim("c").reserved_for("uid-p")
    sweeping.watch.reconnect()
    await world.settle(40.0)
    assert api.pod("p").spec.node_name == "n1"
    assert api.claim("c").reserved_for("uid-p")


async def test_what_a_reply_shows_is_not_settled_by_what_the_watch_showed(world: World) -> None:
    """c is allocated and idle. Another replica reserves it for p and is about to bind p; our watch of claims is behind,
    but a bind of ours for p has failed and has read c with that reservation. The sweeper must not judge the version of
    the reply by the age of what the watch showed, when nobody used it.
    """
    api = world.api
    world.add(*tiny(), make_allocated("c"), make_pod("p", "c"))
    sweeping, other = world.service(lag=0.0, config=LIMITS), world.service(lag=0.0, config=LIMITS)
    sweeping.start()
    await world.settle(24.0)
    sweeping.watch.disconnect((ResourceClaim,))
    other.client.fail("bind_pod", OutcomeUnknownError(0, "Timeout"), "late", delay=12.0, times=100)
    other.spawn(other.bind(api.pod("p"), "n1"))
    await world.settle(0.1)
    assert api.claim("c").reserved_for("uid-p")
    error = await sweeping.bind(api.pod("p"), "n1")  # a twin: reads c, marks it, does not see its own write in time
    assert error
    assert not api.pod("p").spec.node_name
    await world.settle(40.0)
    assert api.pod("p").spec.node_name == "n1"
    assert api.claim("c").reserved_for("uid-p")


async def test_the_binding_of_a_replica_that_was_paused_fails_when_the_claim_is_released(world: World) -> None:
    """A replica stops between its last check and the binding of p, for longer than any bind takes. Another replica
    releases the device of p and gives it to q. The binding arrives after that.
    """
    api = world.api
    world.add(*tiny(), make_claim("c"), make_pod("p", "c"), make_claim("d"), make_pod("q", "d"))
    paused, other = world.service(config=LIMITS), world.service(config=LIMITS)
    other.start()
    paused.client.before["bind_pod"] = partial(paused.pause, 500.0)
    paused.spawn(paused.bind(api.pod("p"), "n1"))
    await world.settle(300.0)
    assert await other.bind(api.pod("q"), "n1") == ""
    await world.settle(300.0)
    assert paused.client.calls.count("bind_pod") == 1
    assert not api.pod("p").spec.node_name


async def test_a_binding_succeeds_when_the_pod_has_changed_and_its_claims_have_not(world: World) -> None:
    """The version of the pod only shows whether a replica is about to release its devices."""
    world.add(*tiny(), make_claim("c"), make_pod("p", "c"))
    service = world.service()
    world.api.hooks["bind_pod"] = lambda: world.api.put(world.api.pod("p"))
    assert await service.bind(world.api.pod("p"), "n1") == ""
    assert service.client.calls == ["add_finalizer", "write_status", "bind_pod", "read_pod", "annotate", "bind_pod"]


async def test_a_pod_that_was_refused_for_a_doubt_is_woken_when_the_doubt_ends(world: World) -> None:
    """c is on a device that is not published at the moment, while another claim uses the pool: nobody can tell whether
    it gives something away twice, so q may not join it. Then the pod of c turns out to be bound: that was verified.
    """
    api = world.api
    world.add(make_class(), make_node("n1"), make_slice("n1", ["a", "b"]), make_allocated("c", "p"), make_claim("d"))
    service = world.service(make_pod("p", "c"), make_pod("q", "c"), make_pod("other", "d"), lag=0.0)
    service.start()
    await world.settle(1.0)
    assert await service.bind(api.pod("other"), "n1") == ""
    world.add(make_slice("n1", ["b"], generation=2))
    await world.settle(5.0)
    assert (await service.filter(api.pod("q"))).NodeNames == []
    await world.settle(5.0)
    service.client.requeues = 0
    bound = msgspec.structs.replace(api.pod("p").spec, node_name="n1")
    api.put(msgspec.structs.replace(api.pod("p"), spec=bound))
    await world.settle(5.0)
    assert service.client.requeues == 1
    assert (await service.filter(api.pod("q"))).NodeNames == ["n1"]
