"""The worlds in which all orders of two gangs are run: what is there, and what others do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.resource import FINALIZER, ResourceClaim
from tests.support.scheduling.gangs import gang, member
from tests.support.simulation.api import devices
from tests.support.simulation.objects import (
    KubernetesObject,
    make_allocated,
    make_claim,
    make_class,
    make_node,
    make_pod,
    make_slice,
)
from tests.support.simulation.world import World


class Ground(msgspec.Struct):
    """Where others act. `sizes`: of the gangs by name. `closed`: nodes that are in no call."""

    world: World
    sizes: dict[str, int]
    closed: set[str] = msgspec.field(default_factory=set)


class Act(msgspec.Struct, frozen=True):
    """What another component does, in steps that each may come at any time after the one before."""

    name: str
    steps: tuple[Callable[[Ground], None], ...]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """`devices`: by node. `gangs`: their sizes. `cycles`: the gangs are placed in cycles of the group. `late`: calls do
    not wait until the watches have brought what was written before. `leaders`: `depose` or `kill` once, at any time.
    """

    name: str
    devices: tuple[int, ...]
    gangs: tuple[int, ...] = (2, 2)
    cycles: bool = False
    late: bool = False
    leaders: str = ""
    act: Act | None = None
    single: bool = False
    """A pod of no gang is scheduled, too."""
    extra: bool = False
    """One more pod of gang g than has to ground."""
    most: int = 100_000
    """So many orders, and no more."""


def objects(scene: Scene) -> list[KubernetesObject]:
    found: list[KubernetesObject] = [make_class()]
    for number, count in enumerate(scene.devices):
        node = f"n{number + 1}"
        found += [make_node(node, cpu="100"), make_slice(node, "abcdefgh"[:count])]
    for name, size in zip("gh", scene.gangs, strict=False):
        found += gang(name, size)
    if scene.extra:
        found += [make_claim("g-9"), member("g-9", "g-9", gang="g", size=scene.gangs[0])]
    if scene.single:
        found += [make_claim("single"), make_pod("single", "single")]
    return found


# --- acts -------------------------------------------------------------------------------------------------------------


def _takes(ground: Ground) -> None:
    """Another allocator takes n1/a, if it is free."""
    wanted = make_allocated("f", "s")
    if not any(devices(wanted) & devices(claim) for claim in ground.world.api.all(ResourceClaim)):
        ground.world.api.put(wanted, "foreign")
        ground.world.add(make_pod("s", "f", schedulerName="other", node="n1"))


def _ends(ground: Ground) -> None:
    if (Pod, "default/s") in ground.world.api.objects:
        ground.world.api.delete_pod("s")


def _deleted(ground: Ground) -> None:
    ground.world.api.delete_pod("g-1")


def _again(ground: Ground) -> None:
    (pod,) = [each for each in gang("g", ground.sizes["g"]) if isinstance(each, Pod) and each.metadata.name == "g-1"]
    ground.world.add(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="uid-g-1-again")))


def _claim_replaced(ground: Ground) -> None:
    """The claim of g-1 is deleted and created again, unless it is in use."""
    claim = ground.world.api.claim("g-1")
    if FINALIZER not in claim.metadata.finalizers:
        ground.world.api.drop(claim)
        ground.world.add(make_claim("g-1", uid="uid-g-1-anew"))


def _closes(ground: Ground) -> None:
    """kube-scheduler keeps all pods from n1, for a reason of its own."""
    ground.closed.add("n1")


def _opens(ground: Ground) -> None:
    ground.closed.clear()


TAKES: Final = Act("a device is taken by another allocator", (_takes,))
TAKES_AND_ENDS: Final = Act("a device is taken and given back", (_takes, _ends))
DELETED: Final = Act("g-1 is deleted", (_deleted,))
RECREATED: Final = Act("g-1 is deleted and created again", (_deleted, _again))
CLOSED: Final = Act("n1 is full, and not any more", (_closes, _opens))
REPLACED: Final = Act("the claim of g-1 is created again", (_claim_replaced,))


QUICK: Final = (
    Scene(name="two gangs, devices for one", devices=(2,)),
    Scene(name="cycles, the leader is deposed", devices=(2, 1), cycles=True, leaders="depose"),
    Scene(name="the leader is killed, a pod of no gang", devices=(2,), gangs=(2,), single=True, leaders="kill"),
)


def _with_act(act: Act, cycles: bool, late: bool) -> Scene:
    name = f"{act.name}, {'cycles' if cycles else 'pod by pod'}, {'late' if late else 'prompt'}"
    return Scene(name=name, devices=(2, 1), cycles=cycles, late=late, act=act)


SLOW: Final = (
    *(_with_act(act, True, late) for act in (TAKES, DELETED, REPLACED) for late in (False, True)),
    Scene(name="the leader is killed, cycles", devices=(2, 1), cycles=True, late=True, leaders="kill"),
    Scene(name="a pod more than gang g needs", devices=(2, 1), cycles=True, extra=True),
)
LARGE: Final = (
    *(_with_act(act, False, late) for act in (TAKES, DELETED, REPLACED) for late in (False, True)),
    Scene(name="the leader is killed, pod by pod", devices=(1, 2), late=True, leaders="kill"),
    Scene(name="a device is taken and given back, cycles", devices=(2,), cycles=True, act=TAKES_AND_ENDS),
    Scene(name="g-1 comes back, cycles", devices=(1, 2), cycles=True, late=True, act=RECREATED),
    Scene(name="n1 is full for a while, cycles", devices=(1, 2), cycles=True, act=CLOSED),
    Scene(name="a pod of no gang", devices=(2,), cycles=True, single=True),
)
"""Hundreds of orders each: what `make explore EXPLORE_ARGS=--large` runs, and `.ci/run`."""
