"""The whole service beside an API server: from watch to bind, through outages, crashes and changes of leader."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from app.api.resource import ResourceClaim, ResourceClaimStatus
from app.embedded import EmbeddedAPIServer, Fault
from app.kube.credentials import CredentialsError
from app.service.service import Service
from app.service.settings import load
from tests.support.patience import LONGEST, until

FINALIZER = "resource.kubernetes.io/delete-protection"


def serve(url: str) -> Service:
    return Service(load({"listen": "127.0.0.1:0", "server": url}))


# --- the main job


async def test_a_pod_with_a_claim_gets_a_node_and_a_device(world: Any, service: Service) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    answer = await world.filter(service, pod)
    assert answer == {
        "NodeNames": world.nodes,
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    assert await world.bind(service, pod, world.nodes[1]) == ""
    claim, bound = world.stored("resourceclaims", "c"), world.stored("pods", "p")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["pool"], result["request"]) == (world.nodes[1], "gpu")
    assert [consumer["uid"] for consumer in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert bound["spec"]["nodeName"] == world.nodes[1]


async def test_a_pod_without_claims_passes_and_is_bound_by_us(world: Any, service: Service) -> None:
    pod = world.pod("p")
    assert (await world.filter(service, pod, ["unknown-node", *world.nodes]))["NodeNames"][0] == "unknown-node"
    assert await world.bind(service, pod, world.nodes[0]) == ""
    assert world.stored("pods", "p")["spec"]["nodeName"] == world.nodes[0]


async def test_a_node_whose_devices_are_taken_is_refused_with_the_in_tree_reason(world: Any, service: Service) -> None:
    for name in ("a", "b"):
        world.claim(name, count=2)
        world.pod(name, name)
    assert await world.bind(service, world.stored("pods", "a"), world.nodes[0]) == ""
    answer = await world.filter(service, world.stored("pods", "b"))
    assert answer["NodeNames"] == world.nodes[1:]
    assert answer["FailedAndUnresolvableNodes"] == {world.nodes[0]: "cannot allocate all claims"}


async def test_a_claim_too_large_for_any_node_is_refused_everywhere(world: Any, service: Service) -> None:
    world.claim("c", count=3)
    answer = await world.filter(service, world.pod("p", "c"))
    assert answer["NodeNames"] == []
    assert set(answer["FailedAndUnresolvableNodes"]) == set(world.nodes)


async def test_a_bind_of_a_pod_that_vanished_is_an_error(world: Any, service: Service) -> None:
    pod = world.pod("p")
    world.store.delete("pods", "p", "default", grace=0)
    assert await world.bind(service, pod, world.nodes[0]) != ""


# --- becoming ready


async def test_it_listens_before_the_api_server_is_there_and_becomes_ready_when_it_comes(
    world: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with Service(load({"listen": "127.0.0.1:0", "server": f"http://127.0.0.1:{port}"})) as service:
        status, report = await world.get(service.url + "/readyz")
        assert (status, report["checks"][0]["problem"]) == (503, "the API server has not been reached yet")
        assert (await world.get(service.url + "/livez"))[0] == 200
        async with (
            aiohttp.ClientSession() as session,
            session.post(service.url + "/scheduler/filter", json={}) as reply,
        ):
            assert (reply.status, reply.headers["Connection"]) == (503, "close")
        async with EmbeddedAPIServer(port=port):
            await service.until_ready(LONGEST)
            assert (await world.get(service.url + "/readyz"))[0] == 200
    captured = capfd.readouterr()
    assert "API server not usable yet, will retry" in captured.out + captured.err
    assert "Traceback" not in captured.out + captured.err


async def test_a_server_without_the_resource_api_is_waited_for(world: Any) -> None:
    async with TestServer(web.Application()) as nothing, serve(str(nothing.make_url(""))) as service:
        with pytest.raises(TimeoutError, match="not ready"):
            await service.until_ready(0.3)
        assert service.health.live()[0].ok


async def test_missing_configuration_is_an_error_at_once(tmp_path: Path) -> None:
    settings = load({"listen": "127.0.0.1:0", "kubeconfig": str(tmp_path / "none")})
    with pytest.raises(CredentialsError, match="does not exist"):
        await Service(settings).start()


async def test_without_a_watch_for_too_long_it_is_not_ready_until_it_watches_again(
    world: Any, start_service: Any
) -> None:
    async with start_service(watch_gap=0.2) as service:
        outage = world.api.faults.add(Fault(status=503))
        world.api.faults.cut_watches()
        await until(lambda: service.gate.unavailable().startswith("not watching"))
        world.api.faults.remove(outage)
        await service.until_ready(LONGEST)
        assert service.gate.unavailable() == ""


async def test_every_node_is_looked_at_before_the_first_filter_asks(world: Any, service: Service) -> None:
    assert service.status.engine is not None
    nodes = service.status.engine.cluster.inventory.nodes
    await until(lambda: not any(seen.new or seen.stale for seen in nodes.seen.values()))
    assert list(nodes) == world.nodes


async def test_probes_version_and_metrics_tell_about_it(world: Any, service: Service) -> None:
    status, report = await world.get(service.url + "/readyz")
    assert status == 200
    assert {check["name"] for check in report["checks"]} == {
        "verbs",
        "Node",
        "Pod",
        "DeviceClass",
        "ResourceSlice",
        "ResourceClaim",
    }
    _, version = await world.get(service.url + "/version")
    assert (version["resource_api"], version["server"]) == ("v1", world.api.url)
    _, text = await world.get(service.url + "/metrics")
    assert 'dra_extender_objects{kind="Node"} 3.0' in text
    assert "dra_extender_ready 1.0" in text
    assert "dra_extender_violations 0.0" in text
    assert "dra_extender_violations_reported_total 0.0" in text
    assert "dra_extender_allocation_searches_total 0.0" in text


async def test_insight_can_have_an_address_of_its_own(world: Any, start_service: Any) -> None:
    async with start_service(insight_listen="127.0.0.1:0") as service:
        assert service.insight_url != service.url
        assert (await world.get(service.insight_url + "/readyz"))[0] == 200
        assert (await world.get(service.url + "/readyz"))[0] == 404


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
async def test_older_api_versions_are_spoken_where_v1_is_not_served(world: Any, version: str) -> None:
    async with EmbeddedAPIServer(versions=(version,)) as api, serve(api.url) as service:
        await service.until_ready(LONGEST)
        assert service.health.kubernetes[1] == version


async def test_after_an_upgrade_that_withdraws_its_version_it_speaks_the_new_one(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.service.apiversion.PERIOD", 0.05)
    async with EmbeddedAPIServer(versions=("v1beta1",)) as before:
        port = urlsplit(before.url).port or 0
        service = Service(load({"listen": "127.0.0.1:0", "server": before.url, "leader_election": True}))
        await service.start()
        await service.until_ready(LONGEST)
    async with EmbeddedAPIServer(port=port):
        await until(lambda: service.health.kubernetes[1] == "v1")
        await service.until_ready(LONGEST)
        await service.stop()
    captured = capfd.readouterr()
    assert "withdrawn a version" in captured.out + captured.err


# --- poison


async def test_a_slice_that_cannot_be_read_is_reported_and_the_others_serve(world: Any, service: Service) -> None:
    engine = service.status.engine
    assert engine is not None
    engine.sink.poison("ResourceSlice", "broken", "spec.devices: nonsense")
    assert engine.cluster.problems["ResourceSlice broken"] == "spec.devices: nonsense"
    world.claim("c")
    assert (await world.filter(service, world.pod("p", "c")))["NodeNames"] == world.nodes
    engine.sink.heal("ResourceSlice", "broken")
    assert "ResourceSlice broken" not in engine.cluster.problems


# --- crashes and restarts


async def test_a_killed_service_leaves_everything_to_its_successor(world: Any, start_service: Any) -> None:
    world.claim("c", count=2)
    pod = world.pod("p", "c")
    first = serve(world.api.url)
    await first.start()
    await first.until_ready(LONGEST)
    assert await world.bind(first, pod, world.nodes[0]) == ""
    await first.kill()
    with pytest.raises(aiohttp.ClientConnectionError):
        await world.filter(first, pod)
    world.claim("d", count=2)
    async with start_service() as second:
        answer = await world.filter(second, world.pod("q", "d"))
        assert answer["NodeNames"] == world.nodes[1:]
        assert await world.bind(second, pod, world.nodes[0]) == ""


async def test_a_service_killed_in_the_middle_of_a_bind_is_succeeded_by_one_that_finishes_it(
    world: Any, start_service: Any
) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    first = serve(world.api.url)
    await first.start()
    await first.until_ready(LONGEST)
    slow = world.api.faults.add(Fault(verb="create", resource="pods/binding", until=asyncio.Event(), times=1))
    call = asyncio.create_task(world.bind(first, pod, world.nodes[0]))
    await until(lambda: slow.hits)
    await first.kill()
    await asyncio.gather(call, return_exceptions=True)
    async with start_service() as second:
        assert (await world.filter(second, pod))["NodeNames"] == [world.nodes[0]]
        assert await world.bind(second, pod, world.nodes[0]) == ""
    assert world.stored("pods", "p")["spec"]["nodeName"] == world.nodes[0]
    assert len(world.stored("resourceclaims", "c")["status"]["reservedFor"]) == 1


async def test_stopping_lets_a_running_bind_finish(world: Any, start_service: Any) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    async with start_service(shutdown_grace=LONGEST) as service:
        finish = asyncio.Event()
        slow = world.api.faults.add(Fault(verb="create", resource="pods/binding", until=finish, times=1))
        call = asyncio.create_task(world.bind(service, pod, world.nodes[0]))
        await until(lambda: slow.hits)
        stopping = asyncio.create_task(service.stop())
        await until(lambda: service.gate.unavailable() == "shutting down")
        finish.set()
        await stopping
        assert await call == ""
    assert world.stored("pods", "p")["spec"]["nodeName"] == world.nodes[0]


async def test_requests_and_binds_that_do_not_end_share_one_grace_period(
    world: Any, start_service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    drained: list[float] = []
    async with start_service(shutdown_grace=1.0) as service:
        drain = service.status.engine.drain

        async def recorded(seconds: float) -> None:
            drained.append(seconds)
            await drain(seconds)

        monkeypatch.setattr(service.status.engine, "drain", recorded)
        slow = world.api.faults.add(Fault(verb="create", resource="pods/binding", until=asyncio.Event(), times=1))
        call = asyncio.create_task(world.bind(service, pod, world.nodes[0]))
        await until(lambda: slow.hits)
        await service.stop()
        await asyncio.gather(call, return_exceptions=True)
    assert drained[0] == 0.0


# --- what must not be overlooked


async def test_a_doorbell_that_breaks_ends_the_service_instead_of_leaving_pods_asleep(
    world: Any, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise RuntimeError("boom")

    assert service.status.engine is not None
    monkeypatch.setattr(service.status.engine.extender.wakeups, "_ring", broken)
    service.status.engine.extender.wakeups.wake_everybody()
    async with asyncio.timeout(LONGEST):
        await service.wait()
    assert service.gate.unavailable() == "failed: RuntimeError: boom"
    assert (await world.get(service.url + "/livez"))[0] == 503


def rival(world: Any, service: Service, name: str) -> ResourceClaim:
    """What another allocator writes that does not know of this claim's device."""
    assert service.status.engine is not None
    claim = service.status.engine.cluster.ledger.get("default", name)
    assert claim is not None and claim.allocation is not None
    meta = msgspec.structs.replace(claim.metadata, name="rival", uid="rival", resource_version="999999")
    return msgspec.structs.replace(claim, metadata=meta, status=ResourceClaimStatus(allocation=claim.allocation))


async def test_a_device_that_is_held_twice_for_a_moment_is_reported(world: Any, service: Service) -> None:
    world.claim("c")
    assert await world.bind(service, world.pod("p", "c"), world.nodes[0]) == ""
    second = rival(world, service, "c")
    assert service.status.engine is not None
    service.status.engine.sink.apply(second)
    service.status.engine.sink.remove(second)
    _, text = await world.get(service.url + "/metrics")
    assert "dra_extender_violations_reported_total 1.0" in text


async def test_what_a_bind_under_way_relies_on_is_reported_when_the_pod_is_bound(world: Any, service: Service) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    finish = asyncio.Event()
    slow = world.api.faults.add(Fault(verb="create", resource="pods/binding", until=finish, times=1))
    call = asyncio.create_task(world.bind(service, pod, world.nodes[0]))
    await until(lambda: slow.hits)
    engine = service.status.engine
    assert engine is not None
    engine.sink.apply(rival(world, service, "c"))
    assert engine.audit.reported == 0
    finish.set()
    assert await call == ""
    await until(lambda: engine.audit.reported == 1)


async def test_a_service_that_cannot_listen_leaves_nothing_open(world: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = f"127.0.0.1:{taken.getsockname()[1]}"
        service = Service(load({"listen": "127.0.0.1:0", "insight_listen": wanted, "server": world.api.url}))
        with pytest.raises(OSError, match=f"cannot listen on {wanted}"):
            await service.start()
    with pytest.raises(aiohttp.ClientConnectionError):
        await world.get(service.url + "/scheduler/filter")


# --- replicas


async def test_only_the_leader_decides_and_a_stopping_leader_hands_over(world: Any, start_service: Any) -> None:
    election = {"leader_election": True, "retry_period": 0.1, "renew_deadline": LONGEST, "lease_duration": LONGEST + 1}
    async with (
        start_service(identity="one", **election) as first,
        start_service(identity="two", wait=False, **election) as second,
    ):
        await until(lambda: second.gate.unavailable() == "standby: one leads")
        assert (await world.get(second.url + "/readyz"))[0] == 503
        async with (
            aiohttp.ClientSession() as session,
            session.post(second.url + "/scheduler/bind", json={}) as reply,
        ):
            assert (reply.status, reply.headers["Connection"]) == (503, "close")
        await first.stop()
        await second.until_ready(LONGEST)
        assert world.store.get("leases", "dra-extender", "dra-system")["spec"]["holderIdentity"] == "two"


# --- permissions


async def test_missing_permissions_are_named_at_the_start(
    world: Any, start_service: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    world.api.access.policy = lambda attributes: attributes.resource != "resourceclaims/binding"
    async with start_service(wait=False) as service:
        await until(lambda: "resourceclaims/binding.resource.k8s.io" in service.gate.unavailable())
    captured = capfd.readouterr()
    text = captured.out + captured.err
    assert "permission missing" in text
    assert "resourceclaims/binding.resource.k8s.io" in text


async def test_an_advisor_needs_no_permission_to_write(world: Any, start_service: Any) -> None:
    world.api.access.policy = lambda attributes: attributes.verb in ("get", "list", "watch")
    async with start_service(advise_only=True) as service:
        await service.until_ready(LONGEST)
        assert service.status.missing_permissions == ()


# --- mutual TLS


async def test_the_verbs_can_demand_client_certificates_while_probes_stay_open(
    world: Any, start_service: Any, tmp_path: Path
) -> None:
    ca = trustme.CA()
    issued = ca.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    issued.private_key_pem.write_to_path(tmp_path / "tls.key")
    ca.cert_pem.write_to_path(tmp_path / "ca.crt")
    secure = {name: str(tmp_path / file) for name, file in TLS_FILES.items()}
    async with start_service(insight_listen="127.0.0.1:0", **secure) as service:
        assert service.url.startswith("https://")
        assert (await world.get(service.insight_url + "/readyz"))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await world.get(service.url + "/scheduler/filter")


TLS_FILES = {"tls_cert": "tls.crt", "tls_key": "tls.key", "tls_client_ca": "ca.crt"}
