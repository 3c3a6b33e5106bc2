"""The whole service with an API server: from watch to bind, through outages, crashes and changes of leader."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
import trustme
from msgspec.structs import replace

from dra_extender.api.core import Pod
from dra_extender.api.decoding import DecodeError, convert
from dra_extender.api.events import Applied, Removed, Source, Undecodable
from dra_extender.api.meta import ObjectKey, OwnerReference
from dra_extender.api.resource import ResourceClaim, ResourceClaimStatus
from dra_extender.service.service import Service
from dra_extender.service.settings import load
from embedded_cluster import RequestFault
from tests.support.counting import lines
from tests.support.http.certificates import write_certificate
from tests.support.http.expanding import field, groups_in, request, template
from tests.support.patience import LONGEST, until
from tests.support.service.readiness import until_ready
from tests.support.service.world import StartService, World

FINALIZER = "resource.kubernetes.io/delete-protection"


# --- the main job


async def test_a_pod_with_a_claim_gets_a_node_and_a_device(world: World, service: Service) -> None:
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


async def test_a_pod_without_claims_passes_and_is_bound_by_us(world: World, service: Service) -> None:
    pod = world.pod("p")
    assert (await world.filter(service, pod, ["unknown-node", *world.nodes]))["NodeNames"][0] == "unknown-node"
    assert await world.bind(service, pod, world.nodes[0]) == ""
    assert world.stored("pods", "p")["spec"]["nodeName"] == world.nodes[0]


async def test_a_node_whose_devices_are_taken_is_refused_with_the_in_tree_reason(
    world: World, service: Service
) -> None:
    for name in ("a", "b"):
        world.claim(name, count=2)
        world.pod(name, name)
    assert await world.bind(service, world.stored("pods", "a"), world.nodes[0]) == ""
    answer = await world.filter(service, world.stored("pods", "b"))
    assert answer["NodeNames"] == world.nodes[1:]
    assert answer["FailedAndUnresolvableNodes"] == {world.nodes[0]: "cannot allocate all claims"}


async def test_a_claim_too_large_for_any_node_is_refused_everywhere(world: World, service: Service) -> None:
    world.claim("c", count=3)
    answer = await world.filter(service, world.pod("p", "c"))
    assert answer["NodeNames"] == []
    assert set(answer["FailedAndUnresolvableNodes"]) == set(world.nodes)


async def test_a_bind_of_a_pod_that_vanished_is_an_error(world: World, service: Service) -> None:
    pod = world.pod("p")
    world.store.delete("pods", "p", "default", grace=0)
    assert await world.bind(service, pod, world.nodes[0]) != ""


# --- poison


async def test_a_slice_that_cannot_be_read_is_reported_and_the_others_serve(world: World, service: Service) -> None:
    engine = service.replica.running
    engine.apply(Undecodable(ObjectKey("ResourceSlice", "broken"), "spec.devices: nonsense"))
    assert [str(problem.object) for problem in engine.cluster.problems] == ["ResourceSlice broken"]
    world.claim("c")
    assert (await world.filter(service, world.pod("p", "c")))["NodeNames"] == world.nodes
    engine.apply(Removed(ObjectKey("ResourceSlice", "broken")))
    assert engine.cluster.problems == []


# --- what must not be overlooked


async def test_fields_to_be_ignored_are_those_of_the_setting(world: World, start_service: StartService) -> None:
    body = {"metadata": {"name": "c"}, "spec": {"hint": 1}}
    async with start_service(ignored_fields="ResourceClaim.spec.hint"):
        assert convert(ResourceClaim, body).metadata.name == "c"
    async with start_service():
        with pytest.raises(DecodeError, match="hint"):
            convert(ResourceClaim, body)


async def test_a_requeue_that_breaks_ends_the_service_instead_of_leaving_pods_asleep(
    world: World, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(service.replica.running.extender.requeue, "_requeue", broken)
    service.replica.running.extender.requeue.requeue_all()
    async with asyncio.timeout(LONGEST):
        await service.wait()
    assert service.replica.unavailable() == "failed: RuntimeError: boom"
    assert (await world.get(service.url + "/livez"))[0] == 503


def rival(world: World, service: Service, name: str) -> ResourceClaim:
    """What another allocator writes that does not know of this claim's device."""
    claim = service.replica.running.cluster.ledger.get("default", name)
    assert claim is not None and claim.allocation is not None
    meta = replace(claim.metadata, name="rival", uid="rival", resource_version="999999")
    return replace(claim, metadata=meta, status=ResourceClaimStatus(allocation=claim.allocation))


async def test_a_device_that_is_held_twice_for_a_moment_is_reported(world: World, service: Service) -> None:
    world.claim("c")
    assert await world.bind(service, world.pod("p", "c"), world.nodes[0]) == ""
    second = rival(world, service, "c")
    service.replica.running.apply(Applied(second))
    service.replica.running.apply(Removed.of(second))
    _, text = await world.get(service.url + "/metrics")
    assert "dra_extender_violations_reported_total 1.0" in text


@pytest.mark.parametrize(
    ("leads", "source"), [(True, "list"), (False, "watch")], ids=["old owners in a list", "a bind of the leader"]
)
async def test_what_is_about_to_be_undone_is_not_reported(
    world: World, service: Service, leads: bool, source: Source
) -> None:
    world.claim("c")
    assert await world.bind(service, world.pod("p", "c"), world.nodes[0]) == ""
    engine, second = service.replica.running, rival(world, service, "c")
    engine.lead(leads)
    engine.apply(Applied(second, source))
    engine.apply(Removed.of(second))
    assert engine.audit.reported == 0


async def test_an_event_of_a_bound_pod_costs_nothing_for_claims_that_name_it_as_their_owner(
    world: World, service: Service
) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    assert await world.bind(service, pod, world.nodes[0]) == ""
    engine = service.replica.running
    bound, own = convert(Pod, world.stored("pods", "p")), engine.cluster.ledger.get("default", "c")
    assert own is not None
    owner = OwnerReference(kind="Pod", name="p", uid=bound.metadata.uid, controller=True)
    before = lines(lambda: engine.apply(Applied(bound)), 100_000, "dra_extender")
    for number in range(500):
        meta = replace(own.metadata, name=f"c{number}", uid=f"c{number}", owner_references=(owner,))
        engine.cluster.apply(Applied(replace(own, metadata=meta, status=ResourceClaimStatus())))
    assert lines(lambda: engine.apply(Applied(bound)), 100_000, "dra_extender") <= before + 100


async def test_what_a_bind_under_way_relies_on_is_reported_when_the_pod_is_bound(
    world: World, service: Service
) -> None:
    world.claim("c")
    pod = world.pod("p", "c")
    finish = asyncio.Event()
    slow = world.api.faults.add(RequestFault(verb="create", resource="pods/binding", until=finish, times=1))
    call = asyncio.create_task(world.bind(service, pod, world.nodes[0]))
    await until(lambda: slow.hits)
    engine = service.replica.running
    second = rival(world, service, "c")
    engine.apply(Applied(second))
    assert engine.audit.reported == 0
    known = convert(Pod, world.stored("pods", "p"))
    engine.apply(Applied(replace(known, spec=replace(known.spec, node_name=world.nodes[0]))))
    engine.apply(Removed.of(second))
    assert engine.audit.reported == 1
    finish.set()
    assert await call == ""


async def test_a_service_that_cannot_listen_leaves_nothing_open(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = f"127.0.0.1:{taken.getsockname()[1]}"
        service = Service(load({"listen": "127.0.0.1:0", "insight_listen": wanted, "server": world.api.url}))
        with pytest.raises(OSError, match=f"cannot listen on {wanted}"):
            await service.start()
    with pytest.raises(aiohttp.ClientConnectionError):
        await world.get(service.url + "/scheduler/filter")


# --- permissions


async def test_missing_permissions_are_named_at_the_start(
    world: World, start_service: StartService, capfd: pytest.CaptureFixture[str]
) -> None:
    world.api.access.policy = lambda attributes: attributes.target != "resourceclaims/binding"
    async with start_service(wait=False) as service:
        await until(lambda: "resourceclaims/binding.resource.k8s.io" in service.replica.unavailable())
    captured = capfd.readouterr()
    text = captured.out + captured.err
    assert "permission missing" in text
    assert "resourceclaims/binding.resource.k8s.io" in text


async def test_an_advisor_needs_no_permission_to_write(world: World, start_service: StartService) -> None:
    world.api.access.policy = lambda attributes: attributes.verb in ("get", "list", "watch")
    async with start_service(mode="advisor") as service:
        await until_ready(service)
        assert not service.replica.missing


# --- mutual TLS


async def test_the_verbs_can_demand_client_certificates_while_probes_stay_open(
    world: World, start_service: StartService, tmp_path: Path
) -> None:
    files = map(str, write_certificate(tmp_path, trustme.CA()))
    secure: dict[str, Any] = dict(zip(("tls_cert", "tls_key", "tls_client_ca"), files, strict=True))
    async with start_service(insight_listen="127.0.0.1:0", **secure) as service:
        assert service.url.startswith("https://")
        assert (await world.get(service.insight_url + "/readyz"))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await world.get(service.url + "/scheduler/filter")


async def test_the_expander_answers_from_the_state_of_the_service(
    world: World, start_service: StartService, tmp_path: Path
) -> None:
    """A node has two GPUs. Of two pods only one fits a group whose template has its labels."""
    authority = trustme.CA()
    files = map(str, write_certificate(tmp_path, authority))
    secure: dict[str, Any] = dict(zip(("tls_cert", "tls_key", "tls_client_ca"), files, strict=True))
    labels = {"example.com/group": "a"}
    like = world.store.get("nodes", world.nodes[0], "")
    assert like is not None
    like["metadata"]["labels"] |= labels
    world.store.update(like)
    uids = []
    for name, count in (("small", 2), ("large", 3)):
        world.claim(name, count)
        uids.append(world.pod(name, name)["metadata"]["uid"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"localhost:{free.getsockname()[1]}"
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with (
        start_service(expander_listen=address, expander_any_client=True, **secure) as service,
        grpc.aio.secure_channel(address, credentials) as channel,
    ):
        call = channel.unary_unary("/grpcplugin.Expander/BestOptions")
        for uid, kept in zip(uids, (["a"], []), strict=True):
            wanted = field(1, "a") + field(2, 1) + field(3, "why") + field(5, field(1, field(5, uid)))
            assert groups_in(await call(request([wanted], {"a": template(like | {"spec": {}})}))) == kept
        assert service.replica.ready()
