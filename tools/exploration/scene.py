"""What is there in a small world in the beginning, and what may happen in it. `World` says what a step is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.simulation.api import Api
from tests.support.simulation.objects import KubernetesObject

LIMITS: Final = SchedulingConfig(
    bind_timeout=5.0,
    doubt_seconds=2.0,
    watch_seconds=100.0,
    retry_seconds=1.0,
    retry_most_seconds=100.0,
    sweep_after=1e-9,
    scheduler_names=frozenset({"dra-scheduler"}),
)
"""Pauses of 1, 2, 4, ... seconds, so that few of them lead to the end of a bind (after 4) or of a doubt (2 later)."""

SWEEPER: Final = 0
"""The replica whose sweeper goes its rounds, where any does."""

Price = Literal["", "free", "lost", "gaps", "limits", "sweeps", "set_backs"]
"""What a step takes of what is bounded; "": it has to happen sooner or later; "free": it may."""

PRICES: Final[tuple[Price, ...]] = ("lost", "gaps", "limits", "sweeps", "set_backs")
FAULTS: Final = frozenset({"lost", "gaps", "limits"})


class Bind(msgspec.Struct, frozen=True):
    """A call of the verb at the replica with this number."""

    pod: str
    replica: int
    node: str = "n1"


class Act(msgspec.Struct, frozen=True):
    """A step of another component: a method of `Api` that writes claims or pods. False when it is not possible now."""

    name: str
    step: Callable[[Api], bool]
    kind: type = ResourceClaim


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What is there in the beginning, and what may happen.

    `aged`: the seconds for which it has been there. `between`: seconds before each round of the sweeper, in which the
    other replicas may stand still. `before`: what has happened since, which no replica has seen yet.
    `faulty`: lost replies, gaps and limits happen at the replica with this number only; None: at all.
    `bump`: by how much the versions are higher after the server was set back.
    `actors`: each does his acts one after the other. `prompt_pods`: watches of pods are never late. `tidy`: at the end
    nothing is reserved for a pod that was not bound. `least`: the least number of states; fewer mean that something is
    not walked through any more.
    """

    name: str
    objects: tuple[KubernetesObject, ...]
    binds: tuple[Bind, ...]
    before: tuple[Act, ...] = ()
    actors: tuple[tuple[Act, ...], ...] = ()
    least: int = 0
    replicas: int = 2
    lost: int = 0
    gaps: int = 0
    limits: int = 0
    sweeps: int = 0
    set_backs: int = 0
    bump: int = 0
    faulty: int | None = None
    prompt_pods: bool = False
    tidy: bool = True
    aged: float = 0.0
    between: float = 0.001
