"""What people may ask the running service, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from dra_extender.api.events import Undecodable
from dra_extender.api.meta import ObjectKey
from dra_extender.service.service import Service
from embedded_cluster import RequestFault
from embedded_cluster.hardware import GPU_DRIVER
from tests.support.patience import LONGEST, until
from tests.support.service.world import StartService, World


async def ask(service: Service, path: str, accept: str = "*/*") -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{service.insight_url}/insight/{path}", headers={"Accept": accept}) as reply,
    ):
        return reply.status, await (reply.json() if "json" in reply.content_type else reply.text())


async def follow(service: Service, *pods: str) -> None:
    """Until the service has seen the pods."""
    known = service.replica.running.extender.view.pods
    await until(lambda: all(known.named("default", pod) is not None for pod in pods))


# --- diagnosis


async def test_the_diagnosis_is_json_or_text(world: World, service: Service) -> None:
    world.claim("c", count=3)
    world.pod("p", "c")
    await follow(service, "p")
    reason = "claim c: 3 devices of class gpu.example.com requested, no node has more than 2"
    status, found = await ask(service, "diagnosis?pod=default/p")
    assert (status, found["summary"]) == (200, reason)
    status, text = await ask(service, "diagnosis?pod=default/p", "text/plain")
    assert status == 200
    assert " ".join(text.split()).startswith(f"Pod default/p fits none of 3 nodes. Reason: {reason}.")
    assert "claim default/c, request gpu: 3 devices of class gpu.example.com requested" in text


async def test_one_node_can_be_asked_about(world: World, service: Service) -> None:
    world.claim("c")
    world.pod("p", "c")
    await follow(service, "p")
    status, found = await ask(service, f"diagnosis?pod=default/p&node={world.nodes[1]}")
    assert (status, found["fits"], found["examples"]) == (200, 1, [world.nodes[1]])


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("", 400, "pod: Field required"),
        ("?pod=p", 400, "pod: must be NAMESPACE/NAME"),
        ("?pod=default/a/b", 400, "pod: must be NAMESPACE/NAME"),
        ("?pod=default/none", 404, "pod default/none not found: it does not exist or has finished"),
        ("?pod=default/p&node=none", 404, "node none not found"),
    ],
)
async def test_a_question_that_cannot_be_answered_gets_what_is_wrong_with_it(
    world: World, service: Service, query: str, status: int, text: str
) -> None:
    world.pod("p")
    await follow(service, "p")
    assert await ask(service, f"diagnosis{query}") == (status, {"detail": text})


# --- devices


def held(found: Any) -> dict[str, Any]:
    """The devices that claims hold, with their holders."""
    return {f"{each['node']}/{each['name']}": each["holders"] for each in found["devices"] if "holders" in each}


async def test_the_devices_have_the_claims_that_hold_them(world: World, service: Service) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    assert await world.bind(service, pod, world.nodes[0]) == ""
    status, found = await ask(service, "devices")
    assert (status, len(found["devices"]), found["totals"]["used"]) == (200, 6, 1)
    assert {(each["driver"], each["pool"]) for each in found["devices"]} == {(GPU_DRIVER, node) for node in world.nodes}
    (holders,) = held(found).values()
    assert holders == [{"claim": "default/c", "pods": ["p"]}]


async def test_a_device_of_a_running_bind_is_in_flight(world: World, service: Service) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    finish = asyncio.Event()
    slow = world.api.faults.add(RequestFault(verb="patch", resource="resourceclaims/status", until=finish, times=1))
    call = asyncio.create_task(world.bind(service, pod, world.nodes[0]))
    await until(lambda: slow.hits)
    _, found = await ask(service, f"devices?node={world.nodes[0]}")
    ((holder,),) = held(found).values()
    assert (holder["claim"], holder["in_flight"]) == ("default/c", True)
    finish.set()
    assert await call == ""


async def test_the_devices_come_in_pages(world: World, service: Service) -> None:
    pools: list[str] = []
    after = ""
    while True:
        _, page = await ask(service, f"devices?limit=2&after={after}")
        pools += dict.fromkeys(each["pool"] for each in page["devices"])
        after = page.get("next", "")
        if not after:
            break
        assert len(pools) <= 2
    assert pools == world.nodes


async def test_an_unknown_node_has_no_devices(service: Service) -> None:
    assert await ask(service, "devices?node=none") == (404, {"detail": "node none not found"})


# --- problems


async def test_nothing_is_wrong_in_a_sound_cluster(service: Service) -> None:
    assert await ask(service, "problems") == (200, {"total": 0, "problems": []})


async def test_problems_name_the_object_and_what_to_do(world: World, start_service: StartService) -> None:
    world.api.access.policy = lambda attributes: attributes.target != "resourceclaims/binding"
    async with start_service(wait=False) as service:
        await until(lambda: service.replica.engine is not None and service.replica.running.watches.synced)
        service.replica.running.apply(Undecodable(ObjectKey("ResourceSlice", "broken"), "spec.devices: nonsense"))
        name = world.store.list("resourceslices")[0]["metadata"]["name"]
        published = world.stored("resourceslices", name, "")
        published["spec"]["pool"]["resourceSliceCount"] = 2
        world.store.update(published)
        async with asyncio.timeout(LONGEST):
            while (found := (await ask(service, "problems"))[1])["total"] < 3:
                await asyncio.sleep(0.01)
    unreadable, incomplete, denied = found["problems"]
    assert unreadable == {
        "kind": "object",
        "object": "ResourceSlice broken",
        "problem": "cannot be read: spec.devices: nonsense",
        "what_to_do": "its devices are left out: the driver that publishes it has to correct or delete it",
    }
    assert incomplete["object"] == f"ResourceSlice {name}"
    assert "spec.pool.resourceSliceCount is 2" in incomplete["problem"]
    assert incomplete["what_to_do"].startswith("its devices are left out until the numbers agree: the driver has to")
    assert "resourceclaims/binding" in denied["problem"]


async def test_pools_are_checked_one_by_one_and_only_when_they_have_changed(world: World, service: Service) -> None:
    assert len(list(service.replica.problems())) == len(world.nodes)
    assert list(service.replica.problems()) == []


# --- where it is


async def test_it_is_at_the_insight_address_only(world: World, start_service: StartService) -> None:
    async with start_service(insight_listen="127.0.0.1:0") as service:
        assert (await world.get(service.insight_url + "/insight/problems"))[0] == 200
        assert (await world.get(service.url + "/insight/problems"))[0] == 404


async def test_before_the_cluster_is_known_it_says_so(world: World, start_service: StartService) -> None:
    world.api.faults.add(RequestFault(status=503))
    async with start_service(wait=False) as service:
        for path in ("diagnosis?pod=default/p", "devices", "problems"):
            status, found = await ask(service, path)
            assert status == 503, path
            # Discovery is not hit by the fault: how far the service is by now depends on the machine.
            assert "has not been reached yet" in found["detail"] or "not synced" in found["detail"]


async def test_every_answer_has_a_schema(service: Service) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{service.insight_url}/openapi.json") as reply:
        paths = (await reply.json())["paths"]
    for path, answer in (("diagnosis", "pod"), ("devices", "totals"), ("problems", "total")):
        content = paths[f"/insight/{path}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert "$ref" in content or answer in content["properties"]
    assert "text/plain" in paths["/insight/diagnosis"]["get"]["responses"]["200"]["content"]


# --- what if


async def test_what_would_be_is_asked_of_the_running_service_and_nothing_is_written(
    world: World, service: Service
) -> None:
    world.claim("c", count=2)
    world.pod("p", "c")
    await follow(service, "p")

    def written() -> Any:
        return [world.store.list(kind) for kind in ("nodes", "pods", "resourceslices")], world.store.get(
            "resourceclaims", "c", "default"
        )

    before = written()
    async with aiohttp.ClientSession() as session:
        found = []
        for body in ({}, {"drain": list(world.nodes)}):
            async with session.post(f"{service.insight_url}/insight/whatif", json=body) as reply:
                assert reply.status == 200
                found.append((await reply.json())["outcomes"])
    (as_it_is,), (then,) = found
    assert (as_it_is["pod"], as_it_is["verdict"], as_it_is["node"]) == ("default/p", "fits", world.nodes[0])
    assert (then["verdict"], then["node"]) == ("no more", "")
    assert written() == before
    assert (await ask(service, f"headroom?class={GPU_DRIVER}"))[1]["fits"] == 2 * len(world.nodes)
    assert (await ask(service, f"headroom?class={GPU_DRIVER}&limit=1"))[1]["decisions"] == 1, "the page asks for fewer"
