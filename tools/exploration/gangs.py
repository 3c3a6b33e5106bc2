"""All orders of what happens to two gangs in a small cluster: calls of schedulers, one act of another component, and
one change of the leader. Each order is run from the beginning, with the real code in virtual time.

A scheduler tries the members of its gang `pod by pod` (filter, bind, the next one), or in a `cycle` of the group as
kube-scheduler does (filter for all, then all binds at once if enough have a node). After the order has
been run, refused pods are tried again after a requeue only, as `RequeueTrigger` promises, until nothing is left to do;
then the gangs that are complete end one after the other.

What must hold
- no device is in two claims, and what the API server of the simulation checks: at every write;
- no pod is bound with devices that a plan of the replica holds for others: at every write;
- a gang is complete or has no bound member, when it is quiet, unless another component took the devices for the rest,
  or a killed leader's last write, which arrives late: `_partial`;
- a minute after the last call nothing is held for a gang of which no member is bound: `_held`;
- a gang that fits alone runs in the end, before or after the others: `_starved`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import structlog

from dra_extender.api.core import Node, Pod
from dra_extender.api.groups import group_of
from dra_extender.api.resource import ResourceClaim
from dra_extender.scheduling.config import SchedulingConfig
from tests.support.simulation.api import devices
from tests.support.simulation.virtualtime import VirtualLoop
from tests.support.simulation.world import Service, World, story
from tools.chaos.gangs import report_what_is_held
from tools.exploration.gangscenes import Act, Ground, Scene, objects

CONFIG: Final = SchedulingConfig(bind_timeout=10.0, nominate="never", scheduler_names=frozenset({"dra-scheduler"}))
QUIET: Final = 100.0
"""Seconds of peace: longer than an unused plan lives, and than a requeue and a new attempt take."""
MOST_REQUEUES: Final = 12
AGAIN: Final = 2.0
"""Seconds after which a scheduler looks at its pods again."""


class Broken(AssertionError):
    """Something that must never be, and the order that leads to it."""

    def __init__(self, scene: Scene, wrong: Sequence[str], way: Sequence[str]) -> None:
        self.way = way
        super().__init__("\n".join((scene.name, *wrong, "after", *way)))


class Order:
    """Which of the next steps is taken each time: given for the first ones, and then always the first."""

    def __init__(self, given: Sequence[int] = ()) -> None:
        self.given = given
        self.taken: list[tuple[int, int]] = []
        """(which, of how many)"""

    def choose(self, count: int) -> int:
        at = len(self.taken)
        found = self.given[at] if at < len(self.given) else 0
        self.taken.append((found, count))
        return found

    def next(self) -> list[int] | None:
        """The choices of the next order; None after the last one."""
        taken = list(self.taken)
        while taken:
            which, count = taken.pop()
            if which + 1 < count:
                return [*(chosen for chosen, _ in taken), which + 1]
        return None


class Run:
    """One order."""

    def __init__(self, scene: Scene, order: Order, world: World) -> None:
        self.scene = scene
        self.world = world
        self.way: list[str] = []
        self._order = order
        self._leader = 0
        self._refused: dict[str, int] = {}
        """Pods by name, with the requeues before they were refused."""
        self._binds: list[asyncio.Task[str]] = []
        self.complete: set[str] = set()
        self.sizes = dict(zip("gh", scene.gangs, strict=False))
        self._ground = Ground(world, self.sizes)
        world.add(*objects(scene))
        for _ in range(2 if scene.leaders else 1):
            service = self.world.service(lag=0.3 if scene.late else 0.001, config=CONFIG)
            report_what_is_held(service, world.api)
        self.service.start()

    @property
    def service(self) -> Service:
        return self.world.services[self._leader]

    # --- what happens -----------------------------------------------------------------------------------------------

    async def go(self) -> None:
        await self.world.settle(1.0)
        actors = [self._scheduler(name) for name in self.sizes]
        if self.scene.single:
            actors.append(self._pod_by_pod(["single"]))
        if self.scene.act is not None:
            actors.append(self._acts(self.scene.act))
        if self.scene.leaders:
            actors.append(self._leaders())
        waiting = [(actor, next(actor)) for actor in actors]
        while waiting:
            which = self._order.choose(len(waiting))
            actor, (what, step) = waiting[which]
            self.way.append(what)
            await step()
            await self.world.settle(0.02 if self.scene.late else 0.5)
            following = next(actor, None)
            if following is None:
                del waiting[which]
            else:
                waiting[which] = actor, following
        await self._peace()

    def _scheduler(self, gang: str) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        members = [f"{gang}-{index}" for index in range(self.sizes[gang])]
        members += ["g-9"] if self.scene.extra and gang == "g" else []
        return self._cycle(gang, members) if self.scene.cycles else self._pod_by_pod(members)

    def _pod_by_pod(self, members: Sequence[str]) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        for name in members:
            chosen: dict[str, str] = {}
            yield f"filter {name}", lambda name=name, chosen=chosen: self._filter(name, chosen)  # type: ignore[misc]
            if chosen:
                yield f"bind {name}", lambda chosen=chosen: self._bind(chosen)  # type: ignore[misc]

    def _cycle(self, gang: str, members: Sequence[str]) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        chosen: dict[str, str] = {}
        for name in members:
            yield f"filter {name}", lambda name=name: self._filter(name, chosen)  # type: ignore[misc]
        bound = sum(bool(pod.spec.node_name) for pod in self._pods(gang))
        if len(chosen) + bound >= self.sizes[gang]:
            yield f"bind {' '.join(chosen)}", lambda: self._bind(chosen)
        elif chosen:
            self._refused |= dict.fromkeys(chosen, self._requeues())

    def _acts(self, act: Act) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        for number, step in enumerate(act.steps):

            async def do(step: Callable[[Ground], None] = step) -> None:
                step(self._ground)

            yield f"{act.name} {number + 1}", do

    def _leaders(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        async def change() -> None:
            before = self.service
            self._leader = 1
            self.service.start()
            self._refused.clear()  # the new leader requeues all pods
            if self.scene.leaders == "kill":
                await before.kill()
            else:
                before.extender.leading = lambda: False

        yield self.scene.leaders, change

    async def _filter(self, name: str, chosen: dict[str, str]) -> None:
        pod = self.world.api.objects.get((Pod, f"default/{name}"))
        if pod is None or pod.spec.node_name:
            return
        requeues = self._requeues()
        nodes = [node.metadata.name for node in self.world.api.all(Node)]
        open_ = [node for node in nodes if node not in self._ground.closed]
        if not open_:
            return  # kube-scheduler asks about no node, and tries again when one changes
        answer = await self.service.filter(pod, *open_)
        self.way[-1] += f": {answer.NodeNames or list((answer.FailedAndUnresolvableNodes or {}).values())[:1]}"
        if answer.NodeNames:
            chosen[name] = answer.NodeNames[0]
            self._refused.pop(name, None)
            self._stands(pod)
        elif not self._ground.closed:
            self._refused[name] = requeues

    def _stands(self, pod: Pod) -> None:
        """A member that is offered a node: so are the others, or they can be, as far as this replica knows."""
        key, ledger = group_of(pod), self.service.extender.view.ledger
        plan = self.service.extender.gangs.plans.get(key) if key is not None else None
        for place in plan.places.values() if plan is not None else ():
            for claim, allocation in place.planned:
                known = ledger.by_uid(claim.metadata.uid)
                if known is None or known.allocation is not None or ledger.held(claim.metadata.uid):
                    continue
                taken = {result.id for other in ledger.claims() for result in _results(other)}
                if taken & {result.id for result in allocation.devices.results}:
                    self._wrong(f"{pod.metadata.name} is offered a node, and {claim.metadata.name} can get none")

    async def _bind(self, chosen: dict[str, str]) -> None:
        for name, node in chosen.items():
            pod = self.world.api.objects.get((Pod, f"default/{name}"))
            if pod is not None and not pod.spec.node_name:
                self._binds.append(self.service.spawn(self._told(name, self.service.bind(pod, node))))

    async def _told(self, name: str, bind: Awaitable[str]) -> str:
        error = await bind
        self.way.append(f"{name} is bound" if not error else f"{name} is not bound: {error}")
        return error

    def _requeues(self) -> int:
        return self.service.client.requeues

    def _pods(self, gang: str) -> list[Pod]:
        found = []
        for pod in self.world.api.all(Pod):
            key = group_of(pod)
            if key is not None and key.name == gang:
                found.append(pod)
        return found

    # --- peace --------------------------------------------------------------------------------------------------------

    async def _peace(self) -> None:
        """Everybody tries again after requeues; complete gangs end; in the end everybody has run."""
        for _ in range(2 + len(self.sizes)):
            self.way.append("peace")
            await self._retry(QUIET)
            self._partial()
            self._held()
            ended = [name for name in self.sizes if self._ends(name)]
            single = self.world.api.objects.get((Pod, "default/single"))
            if single is not None and single.spec.node_name:
                ended.append("single")
                self.world.api.delete_pod("single")
            if not ended:
                break
            self.way.append(f"{' '.join(ended)} ends")
        self._starved()
        violations = self.world.api.violations
        if any(service.extender.view.ledger.holds() for service in self.world.services if not service.client.dead):
            violations.append("a hold is left")

    async def _retry(self, seconds: float) -> None:
        loop, before = asyncio.get_running_loop(), self._requeues()
        until = loop.time() + seconds
        while loop.time() < until:
            for name in (*self.sizes, "single"):
                pods = (
                    self._pods(name)
                    if name != "single"
                    else [pod for pod in self.world.api.all(Pod) if pod.metadata.name == "single"]
                )
                waiting = [pod.metadata.name for pod in pods if not pod.spec.node_name]
                due = [each for each in waiting if self._refused.get(each, -1) < self._requeues()]
                if not due or any(pod.metadata.uid in self.service.extender.view.binding for pod in pods):
                    continue
                pods_first = due if not self.scene.cycles or name == "single" else waiting
                steps = (
                    self._cycle(name, pods_first) if self.scene.cycles and name != "single" else self._pod_by_pod(due)
                )
                for what, step in steps:
                    self.way.append(what)
                    await step()
            await self.world.settle(AGAIN)
        if self._requeues() - before > MOST_REQUEUES:
            self._wrong(f"{self._requeues() - before} requeues although nothing happens")

    def _ends(self, name: str) -> bool:
        """The pods of a complete gang end."""
        pods = self._pods(name)
        if not pods or sum(bool(pod.spec.node_name) for pod in pods) < self.sizes[name]:
            return False
        self.complete.add(name)
        for pod in pods:
            self.world.api.drop(pod)
        self.world.api.clean_up()
        return True

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _partial(self) -> None:
        free, others_act = self._free(), self.scene.act is not None or self.scene.late
        for name, size in self.sizes.items():
            pods = self._pods(name)
            bound = sum(bool(pod.spec.node_name) for pod in pods)
            if 0 < bound < size <= len(pods) and (free >= size - bound or not others_act):
                self._wrong(f"{bound} of {size} pods of {name} run, and {free} devices are free")

    def _held(self) -> None:
        """`QUIET` seconds have passed since the last call that was not about a retry after a requeue."""
        for service in self.world.services:
            for key, plan in service.extender.gangs.plans._plans.items():
                bound = sum(bool(pod.spec.node_name) for pod in self._pods(key.name))
                if not bound and plan.places and not service.client.dead:
                    self._wrong(f"a plan of {key} is held, and no member is bound")

    def _starved(self) -> None:
        """Devices of pods that run with too few others are not free: such pods stay, as in Kubernetes. But where nobody
        else acts, there are no such pods.
        """
        bound = {name: sum(bool(pod.spec.node_name) for pod in self._pods(name)) for name in self.sizes}
        for name, size in self.sizes.items():
            others = sum(count for other, count in bound.items() if other != name) if self.scene.act is None else 0
            fits = self._free() + others >= size - bound[name]
            if name not in self.complete and len(self._pods(name)) >= size and fits:
                self._wrong(f"{name} fits and does not run")

    def _free(self) -> int:
        used = set()
        for claim in self.world.api.all(ResourceClaim):
            used |= devices(claim)
        return sum(self.scene.devices) - len(used)

    def _wrong(self, text: str) -> None:
        self.world.api.violations.append(text)


def _results(claim: ResourceClaim) -> Sequence[Any]:
    return claim.allocation.devices.results if claim.allocation is not None else ()


def explore(scene: Scene) -> int:
    """Run all orders; how many. Raises Broken."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    given: list[int] | None = []
    count = 0
    try:
        while given is not None and count < scene.most:
            order = Order(given)
            once(scene, order)
            given, count = order.next(), count + 1
    finally:
        structlog.configure(**before)
    return count


def once(scene: Scene, order: Order) -> Run:
    """One order. Raises Broken."""
    made: list[Run] = []

    async def tell() -> None:
        async with story() as world:
            made.append(Run(scene, order, world))
            await made[0].go()
            violations, world.api.violations = world.api.violations, []
        if violations:
            raise Broken(scene, violations, made[0].way)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(tell())
    return made[0]
