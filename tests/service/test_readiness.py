"""From the start of the process until it may decide, and when it may not any more."""

from __future__ import annotations

import socket
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dra_extender.http.metrics import SPECS
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import CredentialsError
from dra_extender.kube.resources import Served, discover
from dra_extender.service.service import Service
from dra_extender.service.settings import load
from dra_extender.service.supervision import WithdrawnError, until_withdrawn
from embedded_cluster import EmbeddedAPIServer, RequestFault
from embedded_cluster.apiserver.discovery import VERSION
from tests.support.patience import until
from tests.support.service.readiness import until_ready
from tests.support.service.world import StartService, World, serve


async def test_it_listens_before_the_api_server_is_there_and_becomes_ready_when_it_comes(
    world: World, capfd: pytest.CaptureFixture[str]
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
            await until_ready(service)
            assert (await world.get(service.url + "/readyz"))[0] == 200
    captured = capfd.readouterr()
    assert "API server not usable yet, will retry" in captured.out + captured.err
    assert "Traceback" not in captured.out + captured.err


async def test_a_server_without_the_resource_api_is_waited_for(world: World) -> None:
    async with TestServer(web.Application()) as nothing, serve(str(nothing.make_url(""))) as service:
        with pytest.raises(TimeoutError, match="not ready"):
            await until_ready(service, 0.3)
        assert service.replica.live()[0].ok


async def test_while_the_api_server_serves_only_older_versions_the_log_says_what_to_do(
    capfd: pytest.CaptureFixture[str],
) -> None:
    problem = "does not serve claims in resource.k8s.io/v1 (versions served: v1beta2): upgrade it"
    async with EmbeddedAPIServer(versions=("v1beta2",)) as api, serve(api.url) as service:
        await until(lambda: problem in "".join(capfd.readouterr()))
        assert service.replica.unavailable()


async def test_missing_configuration_is_an_error_at_once(tmp_path: Path) -> None:
    settings = load({"listen": "127.0.0.1:0", "kubeconfig": str(tmp_path / "none")})
    with pytest.raises(CredentialsError, match="does not exist"):
        await Service(settings).start()


async def test_without_a_watch_for_too_long_it_is_not_ready_until_it_watches_again(
    world: World, start_service: StartService
) -> None:
    async with start_service(watch_gap=0.2) as service:
        outage = world.api.faults.add(RequestFault(status=503))
        world.api.faults.cut_watches()
        await until(lambda: service.replica.unavailable().startswith("not watching"))
        world.api.faults.remove(outage)
        await until_ready(service)
        assert service.replica.unavailable() == ""


async def test_every_node_is_looked_at_before_the_first_filter_asks(world: World, service: Service) -> None:
    nodes = service.replica.running.cluster.inventory.nodes
    assert all(map(nodes.is_current, nodes.seen.values())), "it is ready"
    assert list(nodes) == world.nodes


async def test_probes_version_and_metrics_tell_about_it(world: World, service: Service) -> None:
    status, report = await world.get(service.url + "/readyz")
    assert status == 200
    assert {check["name"] for check in report["checks"]} == {
        "verbs",
        "Node",
        "Pod",
        "DeviceClass",
        "DeviceTaintRule",
        "ResourceSlice",
        "ResourceClaim",
    }
    _, text = await world.get(service.url + "/metrics")
    assert 'dra_extender_objects{kind="Node"} 3.0' in text
    assert "dra_extender_ready 1.0" in text
    assert "dra_extender_violations 0.0" in text
    assert "dra_extender_violations_reported_total 0.0" in text
    assert "dra_extender_allocation_searches_total 1.0" in text, "for all nodes, before any pod has asked"
    assert [spec.name for spec in SPECS if f"# TYPE dra_extender_{spec.name.removesuffix('_total')}" not in text] == []


async def test_insight_can_have_an_address_of_its_own(world: World, start_service: StartService) -> None:
    async with start_service(insight_listen="127.0.0.1:0") as service:
        assert service.insight_url != service.url
        assert (await world.get(service.insight_url + "/readyz"))[0] == 200
        assert (await world.get(service.url + "/readyz"))[0] == 404


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses of API servers of which the service finds no DeviceTaintRules."""
    found: list[str] = []

    async def as_served(client: KubeClient) -> Served:
        served = await discover(client)
        return msgspec.structs.replace(served, taint_rules="") if client.server in found else served

    monkeypatch.setattr("dra_extender.service.supervision.PERIOD", 0.05)
    monkeypatch.setattr("dra_extender.service.supervision.discover", as_served)
    return found


async def test_after_an_upgrade_it_follows_what_is_served_now(
    hidden: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    async with EmbeddedAPIServer() as api:
        hidden.append(api.url)
        settings = load({"listen": "127.0.0.1:0", "server": api.url, "leader_election": True})
        async with Service(settings) as service:
            await until_ready(service)
            assert service.replica.served.taint_rules == ""
            hidden.clear()
            await until(lambda: service.replica.served.taint_rules == "v1")
            await until_ready(service)
    captured = capfd.readouterr()
    assert "serves other versions" in captured.out + captured.err


async def test_after_an_upgrade_what_the_old_version_denied_is_forgotten(hidden: list[str]) -> None:
    async with EmbeddedAPIServer() as api:
        api.access.policy = lambda attributes: attributes.target != "resourceclaims/binding"
        hidden.append(api.url)
        async with serve(api.url) as service:
            await until(lambda: "resourceclaims/binding" in service.replica.unavailable())
            api.faults.add(RequestFault(resource="selfsubjectaccessreviews", status=500))
            hidden.clear()
            await until(lambda: service.replica.served.taint_rules == "v1")
            await until_ready(service)
            assert "resourceclaims/binding" not in service.replica.unavailable()


@pytest.mark.parametrize(
    ("seen", "asked"),
    [(["v1.36.4", "v1.37.2"], 2), (["v1.35.4", "v1.36.3", "v1.38.0"], 3)],
    ids=["an upgrade", "one API server after the other"],
)
async def test_an_api_server_with_other_rules_is_noticed_though_all_watches_work(
    monkeypatch: pytest.MonkeyPatch, seen: list[str], asked: int
) -> None:
    """During an upgrade, older API servers may answer once more: only a newer release counts."""
    versions = iter(seen)
    asks = 0

    async def discover(client: object) -> Served:
        nonlocal asks
        asks += 1
        return Served("v1", next(versions))

    monkeypatch.setattr("dra_extender.service.supervision.PERIOD", 0.0)
    monkeypatch.setattr("dra_extender.service.supervision.discover", discover)
    with pytest.raises(WithdrawnError):
        await until_withdrawn(None, Served("v1", "v1.36.3"), lambda: False)  # type: ignore[arg-type]
    assert asks == asked


@pytest.mark.parametrize(
    ("version", "gate", "unready"),
    [
        ("v1.36.3", "DRADerivedAttributes", "is not available with the rules of Kubernetes 1.36"),
        ("v1.36.3", "GangScheduling", ""),
        ("v1.37.2", "GangScheduling", ""),
        ("v1.37.2", "DRADerivedAttributes", ""),
    ],
)
async def test_a_gate_that_the_api_servers_release_does_not_have_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], version: str, gate: str, unready: str
) -> None:
    """Without the gate that is meant, devices would be allocated by other rules; what 1.37 removed has no effect, and
    a kube-scheduler that is older still needs it.
    """
    monkeypatch.setitem(VERSION, "gitVersion", version)
    async with EmbeddedAPIServer() as api:
        settings = load({"listen": "127.0.0.1:0", "server": api.url, "feature_gates": f"{gate}=true"})
        async with Service(settings) as service:
            if unready:
                await until(lambda: unready in service.replica.unavailable())
                assert gate in service.replica.unavailable()
            else:
                await until_ready(service)
    captured = capfd.readouterr()
    told = "feature gate that the release of the API server does not have"
    assert (told in captured.out + captured.err) is ((version, gate) == ("v1.37.2", "GangScheduling"))
