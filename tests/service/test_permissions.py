"""What the service asks to be allowed, by its settings, and how it waits until it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from dra_extender.kube.access import Permission
from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.resources import Served
from dra_extender.service import supervision
from dra_extender.service.settings import load
from dra_extender.service.supervision import check_permissions, needed
from embedded_cluster import EmbeddedAPIServer, RequestFault

BOTH = Served(taint_rules="v1alpha3")


def asked(served: Served = BOTH, **settings: Any) -> set[str]:
    """Verb and resource of all that is needed."""
    found = needed(load({"listen": "127.0.0.1:0", **settings}), served)
    return {f"{each.verb} {each.resource}" + (f"/{each.subresource}" if each.subresource else "") for each in found}


READING = {"list nodes", "watch nodes", "list resourceslices", "watch resourceclaims"}
DELEGATED = {"create tokenreviews", "create subjectaccessreviews"}
PREEMPTING = {"create pods/eviction"}
WRITING = {"patch resourceclaims/status", "create pods/binding", "patch pods/status", "create events"}


@pytest.mark.parametrize(
    ("settings", "there", "absent"),
    [
        ({}, READING | WRITING, {"create leases"}),
        ({"mode": "advisor"}, READING, WRITING | {"create leases"}),
        ({"mode": "shadow", "leader_election": True}, READING | {"create leases", "update leases"}, WRITING),
        ({"leader_election": True}, READING | WRITING | {"create leases", "update leases"}, set()),
        ({"mode": "advisor", "leader_election": True}, {"create leases"}, WRITING),
        ({}, READING, DELEGATED),
        ({"mode": "advisor", "insight_authorization": True}, DELEGATED, WRITING),
        ({"preemption": "on"}, PREEMPTING | {"list poddisruptionbudgets"}, set()),
        ({"preemption": "advise"}, {"watch poddisruptionbudgets"}, PREEMPTING),
        ({"preemption": "off"}, READING, PREEMPTING | {"watch poddisruptionbudgets"}),
        ({"provisioning_requests": True}, {"patch podtemplates", "delete provisioningrequests"}, set()),
        ({}, WRITING, {"patch podtemplates", "list provisioningrequests"}),
        ({"feature_gates": "DRAExtendedResource=true"}, {"delete resourceclaims"}, set()),
        ({"feature_gates": "DRAExtendedResource=false"}, WRITING, {"delete resourceclaims"}),
    ],
)
def test_only_what_the_settings_switch_on_is_needed(
    settings: dict[str, Any], there: set[str], absent: set[str]
) -> None:
    found = asked(**settings)
    assert (there - found, absent & found) == (set(), set())


def test_taint_rules_are_followed_where_they_are_served() -> None:
    assert "watch devicetaintrules" in asked()
    assert "watch devicetaintrules" not in asked(Served())


def test_pod_groups_are_read_where_they_are_served_and_the_service_is_ready_without() -> None:
    assert not any("podgroups" in each for each in asked())
    groups = Served(pod_groups=(("scheduling.x-k8s.io", "v1alpha1"),))
    optional = {str(each) for each in needed(load({"listen": "127.0.0.1:0"}), groups) if each.optional}
    where = "podgroups.scheduling.x-k8s.io in the whole cluster (ClusterRole): needed to follow podgroups"
    assert optional == {f"{verb} {where}" for verb in ("get", "list", "watch")}


@pytest.fixture
async def api() -> AsyncIterator[EmbeddedAPIServer]:
    async with EmbeddedAPIServer() as made:
        yield made


@pytest.fixture
async def client(api: EmbeddedAPIServer) -> AsyncIterator[KubeClient]:
    async with await KubeClient.connect(ClientSettings(server=api.url)) as made:
        yield made


async def test_it_asks_until_everything_is_granted_and_says_what_is_missing_once(
    api: EmbeddedAPIServer,
    client: KubeClient,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(supervision, "PERIOD", 0.0)
    api.access.policy = lambda attributes: attributes.resource != "nodes"
    wanted = needed(load({"mode": "advisor"}), Served())
    found: list[int] = []

    def tell(missing: Sequence[Permission]) -> None:
        found.append(len(missing))
        if len(found) == 2:
            api.access.policy = lambda _attributes: True

    await check_permissions(client, wanted, tell)
    assert found == [2, 2, 0]
    captured = capfd.readouterr()
    assert (captured.out + captured.err).count("permission missing") == 2


async def test_a_server_that_fails_after_it_named_what_is_missing_is_asked_until_it_grants_it(
    api: EmbeddedAPIServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "PERIOD", 0.0)
    api.access.policy = lambda attributes: attributes.resource != "nodes"
    wanted = needed(load({"mode": "advisor"}), Served())
    fault = RequestFault(status=500, times=len(wanted))
    found: list[int] = []

    def tell(missing: Sequence[Permission]) -> None:
        found.append(len(missing))
        if missing:
            api.access.policy = lambda _attributes: True
            api.faults.add(fault)

    await check_permissions(client, wanted, tell)
    assert (found, fault.hits) == ([2, 0], len(wanted))


async def test_a_server_that_cannot_be_asked_the_first_time_is_not_asked_again(
    api: EmbeddedAPIServer, client: KubeClient
) -> None:
    api.faults.add(RequestFault(status=500))
    wanted = needed(load({"mode": "advisor"}), Served())
    found: list[Sequence[Permission]] = []
    await check_permissions(client, wanted, found.append)
    assert found == []
