"""Which pods are set aside with one that stopped a process, and until when."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dra_extender.api.core import Pod
from dra_extender.api.meta import ObjectKey
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.setaside import MOST, MOST_OF_NAMESPACE, REASON, SECONDS, UNREAD
from tests.support.questions import diagnose
from tests.support.simulation.objects import Objects, make_claim, make_pod
from tests.support.simulation.world import Service, World


@pytest.fixture
async def service(world: World, small: Objects) -> Service:
    """Claim c and pod p, which stopped a process; and pods that could be its equals."""
    world.add(*small, make_claim("c"), make_claim("same"), make_claim("two", count=2), make_pod("p", "c"))
    made = world.service()
    await world.settle()
    set_aside(made, world.api.pod("p"))
    return made


def set_aside(service: Service, *pods: Pod) -> None:
    for pod in pods:
        forget(service, service.extender.set_aside_with(pod))


async def fits(service: Service, pod: Pod) -> bool:
    answer = await service.filter(pod)
    assert answer.NodeNames or set(answer.FailedAndUnresolvableNodes.values()) == {REASON}
    return bool(answer.NodeNames)


def elsewhere(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace="other"))


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (make_pod("p", "c"), False),
        (make_pod("again", "c"), False),
        (make_pod("q", "same"), False),
        (make_pod("q", "two"), True),
        (make_pod("q", "c", priority=1), True),
    ],
    ids=["itself", "created again", "another claim of equal content", "another claim", "another request"],
)
async def test_equal_pods_are_refused_and_others_go_on(service: Service, pod: Pod, expected: bool) -> None:
    assert await fits(service, pod) == expected


async def test_equal_pods_of_another_namespace_go_on(world: World, service: Service) -> None:
    world.add(elsewhere_claim("c"))
    await world.settle()
    assert await fits(service, elsewhere(make_pod("p", "c")))


def elsewhere_claim(name: str) -> ResourceClaim:
    claim = make_claim(name, uid="uid-elsewhere")
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, namespace="other"))


async def test_a_bind_and_an_explanation_decide_nothing_either_and_it_is_a_problem_of_the_cluster(
    world: World, service: Service
) -> None:
    assert REASON in await service.bind(world.api.pod("p"), "n1")
    assert diagnose(service.extender.view, world.api.pod("p")).summary == REASON
    (problem,) = service.extender.set_aside.problems
    assert (str(problem.object), problem.what) == ("Pod default/p", REASON)


@pytest.mark.parametrize(
    "until",
    [
        lambda service, world: world.settle(SECONDS + 1),
        lambda service, world: forget(service, ""),
        lambda service, world: forget(service, "nonsense"),
    ],
    ids=["an hour later", "without the annotation", "with an annotation that cannot be read"],
)
async def test_it_is_tried_again(world: World, service: Service, until: Callable[[Service, World], object]) -> None:
    waiting = until(service, world)
    if waiting is not None:
        await waiting  # type: ignore[misc]
    assert await fits(service, world.api.pod("p"))
    assert not list(service.extender.set_aside.problems)


def forget(service: Service, annotation: str) -> None:
    service.extender.set_aside.annotation = lambda: annotation


async def test_a_namespace_with_several_such_pods_is_set_aside_and_the_others_go_on(
    world: World, service: Service
) -> None:
    set_aside(service, *(make_pod("p", "c", priority=number) for number in range(1, MOST_OF_NAMESPACE)))
    assert not await fits(service, make_pod("q", "two"))
    world.add(elsewhere_claim("c"))
    await world.settle()
    assert await fits(service, elsewhere(make_pod("p", "c")))


@pytest.mark.parametrize(
    "key",
    [
        ObjectKey("ResourceSlice", "s"),
        ObjectKey("DeviceClass", "gpu"),
        ObjectKey("ResourceClaim", "default/c"),
        ObjectKey("Pod", "default/p"),
    ],
    ids=str,
)
async def test_an_object_that_is_set_aside_is_not_read_until_an_hour_is_over(world: World, key: ObjectKey) -> None:
    aside = world.service().extender.set_aside
    assert not aside.object_reason(key)
    annotation = aside.adding(key)
    aside.annotation = lambda: annotation
    assert aside.object_reason(key) == UNREAD
    assert not aside.object_reason(ObjectKey(key.kind, key.name + "2"))
    assert not aside.object_reason(ObjectKey("Node", key.name))
    assert not list(aside.problems)
    await world.settle(SECONDS + 1)
    assert not aside.object_reason(key)


async def test_the_annotation_does_not_grow_for_ever(service: Service) -> None:
    set_aside(service, *(make_pod("p", "c", priority=number) for number in range(2 * MOST)))
    assert len(list(service.extender.set_aside.problems)) == MOST
