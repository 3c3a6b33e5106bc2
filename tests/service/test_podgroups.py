"""PodGroups as the service follows them: where they are served, from when on, and without the permission."""

from __future__ import annotations

import msgspec
import pytest

from dra_extender.kube.client import KubeClient
from dra_extender.kube.credentials import ClientSettings
from dra_extender.kube.resources import Served, discover
from dra_extender.service import supervision
from dra_extender.service.service import Service
from tests.support.patience import until
from tests.support.service.podgroups import CORE, COSCHEDULING, coscheduled, gang, serve_pod_groups
from tests.support.service.readiness import until_ready
from tests.support.service.world import StartService, World


@pytest.fixture(autouse=True)
def pod_groups_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_pod_groups(monkeypatch)
    monkeypatch.setattr(supervision, "PERIOD", 0.05)


def size(service: Service, group: str = CORE) -> int | None:
    engine = service.replica.engine
    found = engine.cluster.pod_groups.get(group, "default", "g") if engine is not None else None
    return found.min_count if found is not None else None


async def test_groups_of_both_apis_are_followed(world: World, start_service: StartService) -> None:
    made = world.store.create(gang(2))
    world.store.create(coscheduled(5))
    async with start_service() as service:
        await until(lambda: (size(service), size(service, COSCHEDULING)) == (2, 5))
        made["spec"]["schedulingPolicy"]["gang"]["minCount"] = 3
        world.store.update(made)
        await until(lambda: size(service) == 3)
        async with await KubeClient.connect(ClientSettings(server=world.api.url)) as client:
            await client.delete(f"/apis/{CORE}/v1alpha2/namespaces/default/podgroups/g")
        await until(lambda: size(service) is None)
        assert size(service, COSCHEDULING) == 5


async def test_an_api_that_appears_later_or_goes_is_noticed(
    world: World, start_service: StartService, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = False

    async def as_served(client: KubeClient) -> Served:
        found = await discover(client)
        return found if served else msgspec.structs.replace(found, pod_groups=())

    monkeypatch.setattr(supervision, "discover", as_served)
    world.store.create(gang(2))
    async with start_service() as service:
        assert service.replica.served.pod_groups == ()
        served = True
        await until(lambda: size(service) == 2)
        served = False
        await until(lambda: service.replica.served.pod_groups == () and service.replica.unavailable() == "")
        assert size(service) is None


async def test_without_the_permission_it_is_ready_and_reports_it(world: World, start_service: StartService) -> None:
    world.api.access.policy = lambda attributes: attributes.resource != "podgroups"
    world.store.create(gang(2))
    async with start_service() as service:
        await until(lambda: len(service.replica.missing) == 6)
        _, report = await world.get(service.url + "/readyz")
        (check,) = (each for each in report["checks"] if each["name"] == "PodGroup")
        assert check["ok"] and "podgroups" in check["problem"]
        _, found = await world.get(service.url + "/insight/problems")
        assert any("watch podgroups.scheduling.k8s.io" in each["problem"] for each in found["problems"])
        assert (service.replica.unavailable(), size(service)) == ("", None)
        world.api.access.policy = lambda attributes: True
        await until(lambda: size(service) == 2 and not service.replica.missing)
        await until_ready(service)


async def test_an_undecodable_group_is_reported_and_affects_no_other(world: World, start_service: StartService) -> None:
    world.store.create(gang(2))
    world.store.create(coscheduled("five"))
    async with start_service() as service:
        await until(lambda: size(service) == 2 and service.replica.running.cluster.problems)
        (problem,) = service.replica.running.cluster.problems
        assert (str(problem.object), size(service, COSCHEDULING)) == ("CoschedulingPodGroup default/g", None)
