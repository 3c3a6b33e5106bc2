"""Everything at once, from a seed: schedulers, strangers, drivers, faults, crashes, replicas.

A `Chaos` is one run: steps drawn from the seed, then peace, then the question what is left. What is checked, and where:

- S1 no exclusive device in the claims of two bound pods: `Api` at every binding; in no two claims at all: `check`.
- S2 counters and capacities never overdrawn by claims of bound pods: `Rules` at every binding; by nobody: `check`.
- S3 at most 256 consumers, none twice, never that of a bound pod removed: `Api` and `Rules` at every write.
- S4 an allocation is never changed in place and never stored without the finalizer: `Api` at every write.
- S5 a pod is bound only with all claims allocated, reserved for it, on its node, its devices ready: `Api`, `Rules`.
- S6 class, selector and taints hold for a state no older than a bind may take: `Rules` at every allocation.
- S7 at most 32 results, in the order of the requests: `Rules` at every allocation.
- S8 verbs do not change what they are given, scores are 0 to 10, victims are none but the given: `Chaos.schedule`.
- S9 two replicas act at the same time, are deposed and killed; late writes of dead ones arrive: `Chaos.depose`, `kill`.
- S10 the audit of each replica finds what strangers have doubled, and nothing else: `check_audit`.
- L1 what fits is bound: `check`, by the answer of the verbs and by counting free devices independently.
- L2 no refused pod waits for ever: in `end` a refused pod is tried again only after the doorbell rang.
- L3 no hold outlives its bind or the sight of its write: `check_holds` after every step; none is left: `check`.
- L4 poisonous objects hinder nobody, crashes anywhere leave nothing behind: `add_poison`, `kill`, `check`.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from typing import Any, TypeVar

import msgspec

from app.api.core import Pod
from app.api.errors import ApiError, ConflictError, OutcomeUnknownError, ThrottledError, UnreachableError
from app.api.extender import ExtenderArgs, ExtenderPreemptionArgs, MetaVictims
from app.api.meta import Condition
from app.api.resource import DeviceClass, ResourceClaim
from app.scheduling.limits import Limits
from tests.scheduling.client import When
from tests.scheduling.hardware import GPU, Hardware, Rules
from tests.scheduling.objects import make_claim, make_pod
from tests.scheduling.strangers import STRANGER, Strangers
from tests.scheduling.world import Replay, Service, World

T = TypeVar("T")

LIMITS = Limits(bind_seconds=20.0, scheduler_names=frozenset({"dra-scheduler"}))
FORWARD = ("add_finalizer", "write_status", "bind_pod", "annotate", "create_claim", "patch_pod_status")
BACKWARD = ("deallocate", "delete_claim", "remove_finalizer")
READS = ("read_claim", "read_pod")
FAULTS: list[tuple[ApiError, tuple[When, ...]]] = [
    (ConflictError(409, "Conflict"), ("before",)),
    (ThrottledError(429, "TooManyRequests"), ("before",)),
    (UnreachableError(0, "Unreachable"), ("before",)),
    (OutcomeUnknownError(500, "InternalError"), ("before", "after", "late")),
    (OutcomeUnknownError(0, "Timeout"), ("before", "after", "late")),
]
LAGS = [0.0, 0.002, 0.05, 0.5]
ROUNDS = 40
"""Of peace. The longest wait is for a write that may still arrive (a minute) and a sweep after it."""


class Chaos:
    """Three nodes, more pods than devices at times, one or two replicas. Which features take part is drawn too."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0
        """Of virtual time, once the run is over."""
        self.serial = 0
        self.extended = self.dice.random() < 0.5
        self.hardware = Hardware(world, self.dice)
        world.api.judges.append(Rules(world, self.hardware).judge)
        self.strangers = Strangers(world, self.dice) if self.dice.random() < 0.6 else None
        self.services = [self.new_service() for _ in range(self.dice.choice([1, 1, 2]))]
        self.refused: dict[str, tuple[int, Pod]] = {}
        """Pods that were refused, with the rings heard before that and the version that was refused."""

    def new_service(self) -> Service:
        service = self.world.service(lag=self.dice.choice(LAGS), limits=LIMITS)
        if self.dice.random() < 0.3:
            service.watch.lags = {kind: self.dice.choice(LAGS) for kind in (Pod, ResourceClaim)}
        service.watch.repeat = self.dice.choice([0, 0, 1])
        service.start()
        return service

    def pending(self) -> list[Pod]:
        pods = [pod for pod in self.world.api.all(Pod) if not pod.spec.node_name]
        return [pod for pod in pods if pod.spec.scheduler_name != STRANGER]

    def rings(self) -> int:
        return sum(service.client.rings for service in self.world.services)

    # --- what can happen --------------------------------------------------------------------------------------------

    def add_pod(self) -> None:
        self.serial += 1
        name, kind = f"{self.serial}", self.dice.random()
        if kind < 0.03:
            self.add_poison(name)
        elif kind < 0.2 and self.extended:
            container = {"name": "main", "resources": {"requests": {GPU: "1"}}}
            self.world.add(make_pod(f"p{name}", containers=[container]))
        elif kind < 0.4 and (shared := self.shared_claims()):
            self.world.add(make_pod(f"p{name}", self.dice.choice(shared)))
        elif kind < 0.5:
            parts: list[Any] = [{"name": "first", "exactly": self.hardware.request()}]
            parts.append({"name": "second", "exactly": self.hardware.request()})
            self.world.add(make_claim(f"c{name}", requests=parts, pod=f"p{name}"), make_pod(f"p{name}", f"c{name}"))
        elif kind < 0.6:
            share = [{"name": "r", "exactly": self.hardware.share_request()}]
            self.world.add(make_claim(f"c{name}", requests=share, pod=f"p{name}"), make_pod(f"p{name}", f"c{name}"))
        else:
            owner = f"p{name}" if self.dice.random() < 0.7 else ""
            claim = make_claim(f"c{name}", count=self.dice.choice([1, 1, 2]), pod=owner)
            self.world.add(claim, make_pod(f"p{name}", f"c{name}"))

    def shared_claims(self) -> list[str]:
        claims = [claim.metadata for claim in self.world.api.all(ResourceClaim)]
        return [meta.name for meta in claims if not meta.controller and meta.name.startswith("c")]

    def add_poison(self, name: str) -> None:
        """A claim that nobody can allocate, of a pod that asks for it again and again."""
        request = self.hardware.request() | {"selectors": [{"cel": {"expression": "device.((("}}]}
        claim = make_claim(f"c{name}", requests=[{"name": "r", "exactly": request}], pod=f"p{name}")
        self.world.add(claim, make_pod(f"p{name}", f"c{name}"))

    def delete_pod(self) -> None:
        pods = self.world.api.all(Pod)
        if pods:
            self.world.api.delete_pod(self.dice.choice(pods).metadata.name)

    def fault(self) -> None:
        error, times = self.dice.choice(FAULTS)
        writes = (*FORWARD, *BACKWARD)
        operations = writes if isinstance(error, ConflictError) else (*writes, *READS, "ring")
        when, times_hit, delay = self.dice.choice(times), self.dice.randint(1, 3), self.dice.random() * 5
        client = self.dice.choice(self.services).client
        client.fail(self.dice.choice(operations), error, when, times=times_hit, delay=delay)

    def touch(self) -> None:
        claims = self.world.api.all(ResourceClaim)
        if claims:
            self.world.api.touch(self.dice.choice(claims).metadata.name)

    def trip_watch(self) -> None:
        watch = self.dice.choice(self.services).watch
        watch.disconnect()
        asyncio.get_running_loop().call_later(self.dice.choice([0.0, 0.1, 3.0]), watch.reconnect)

    def jump(self) -> None:
        """The time of day is set."""
        self.world.clock.offset += self.dice.choice([-3600.0, -5.0, 5.0, 3600.0])

    def depose(self) -> None:
        """A replica loses the lease for a while."""
        state = self.dice.choice(self.services).scheduling.state
        state.leading = lambda: False
        asyncio.get_running_loop().call_later(self.dice.random() * 3, setattr, state, "leading", lambda: True)

    def intrude(self) -> None:
        """A stranger allocates: now, or in the moment before one of our writes is looked at."""
        if self.strangers is None:
            return
        if self.dice.random() < 0.5:
            self.strangers.allocate()
        else:
            self.world.api.hooks[self.dice.choice(FORWARD[:3])] = self.strangers.allocate

    async def kill(self) -> None:
        """Now, or at one of the next calls of the API server."""
        index = self.dice.randrange(len(self.services))
        service = self.services[index]
        if self.dice.random() < 0.5:
            service.client.kill_at = (len(service.client.calls) + self.dice.randrange(4), self.dice.choice(_AROUND))
        else:
            await self.replace(index)

    async def replace(self, index: int) -> None:
        await self.services[index].kill()
        self.services[index] = self.new_service()

    async def schedule(self, service: Service, pod: Pod) -> None:
        """One cycle of a scheduler for one pod; other verbs come in between in any order."""
        if pod.spec.containers and not self.world.api.all(DeviceClass):
            return  # the plugin NodeResourcesFit sees that nobody has the resource
        rung = self.rings()
        names = [node for node in ("n1", "n2", "n3") if self.dice.random() < 0.95] or ["n1"]
        args = ExtenderArgs(Pod=pod, NodeNames=tuple(names))
        before = copy.deepcopy(args)
        if self.dice.random() < 0.1:
            self.rank(service, args)
        answer = await service.scheduling.filter(args)
        if answer.NodeNames and self.dice.random() < 0.7:
            self.rank(service, args)
        if args != before:
            self.world.api.violations.append(f"{pod.metadata.name}: a verb has changed its arguments")
        if answer.NodeNames:
            service.spawn(service.bind(pod, self.dice.choice(answer.NodeNames)))
            if self.dice.random() < 0.05:
                self.dice.choice(self.services).spawn(service.bind(pod, self.dice.choice(answer.NodeNames)))
        elif not answer.Error and len(names) == 3:
            self.refuse(pod, rung)

    def rank(self, service: Service, args: ExtenderArgs) -> None:
        names = args.NodeNames or ()
        scores = service.scheduling.prioritize(args)
        given = {name: MetaVictims() for name in names}
        kept = service.scheduling.preempt(ExtenderPreemptionArgs(Pod=args.Pod, NodeNameToMetaVictims=given))
        wrong = [score for score in scores if score.Host not in names or not 0 <= score.Score <= 10]
        if wrong or set(kept.NodeNameToMetaVictims) - set(names):
            self.world.api.violations.append(f"{args.Pod.metadata.name}: scores {wrong}, victims {kept}")

    def refuse(self, pod: Pod, rung: int) -> None:
        """What a scheduler does with a pod that fits nowhere: it says so and waits for the bell."""
        if not self.exists(pod):
            return
        if not pod.status.conditions:
            condition = Condition(type="PodScheduled", status="False", reason="Unschedulable")
            status = msgspec.structs.replace(pod.status, conditions=(condition,))
            pod = self.world.api.put(msgspec.structs.replace(pod, status=status))
        self.refused[pod.metadata.uid] = (rung, pod)

    def waits(self, pod: Pod) -> bool:
        """Whether the pod was refused, and nothing has told the scheduler since then to try again."""
        rung, version = self.refused.get(pod.metadata.uid, (-1, None))
        return version is pod and rung == self.rings()

    # --- a run ------------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        action = self.dice.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        self.counts[action] += 1
        match action:
            case "add pod":
                self.add_pod()
            case "delete pod":
                self.delete_pod()
            case "fault":
                self.fault()
            case "touch claim":
                self.touch()
            case "kill":
                await self.kill()
            case "relist":
                self.trip_watch()
            case "clock jump":
                self.jump()
            case "depose":
                self.depose()
            case "stranger":
                self.intrude()
            case "hardware":
                self.hardware.change()
            case "driver":
                self.hardware.report()
            case _:
                if pods := self.pending():
                    await self.schedule(self.dice.choice(self.services), self.dice.choice(pods))
        await self.world.settle(self.dice.choice([0.0, 0.001, 0.01, 0.3]))
        for index, service in enumerate(self.services):
            if service.client.dead:
                await self.replace(index)
        self.check_holds()

    def check_holds(self) -> None:
        for service in self.services:
            state = service.scheduling.state
            for hold in state.cluster.ledger.holds():
                if state.running(hold.owner) is None and hold.written_version is None:
                    self.world.api.violations.append(f"a hold of {hold.owner} has outlived its bind")

    async def end(self) -> None:
        """Peace: everybody gets a chance again and again, refused pods only after the bell."""
        self.world.api.hooks.clear()
        for service in self.services:
            service.client.faults.clear()
            service.client.kill_at = None
            service.watch.reconnect()
            service.scheduling.state.leading = lambda: True
        self.hardware.restore()
        await self.world.settle(6.0)
        await self.check_audit()
        if self.strangers is not None:
            self.strangers.leave()
        for _ in range(ROUNDS):
            for pod in self.pending():
                if self.exists(pod) and not self.waits(pod):
                    await self.schedule(self.dice.choice(self.services), pod)
            self.hardware.report(well=True)
            await self.world.settle(10.0)
            self.world.api.clean_up()

    def exists(self, pod: Pod) -> bool:
        """Whether this very version is the stored one."""
        return self.world.api.objects.get((Pod, pod.metadata.key)) is pod

    async def check_audit(self) -> None:
        """What is under way may differ from what is seen for a moment, never for long."""
        for _ in range(30):
            doubles = {"/".join(device) for device in self.world.api.doubles()}
            audits = [service.scheduling.state.cluster.ledger.violations() for service in self.services]
            found = [{one.subject for one in audit if one.kind == "device"} for audit in audits]
            if all(subjects == doubles for subjects in found):
                self.counts["doubled by strangers"] += len(doubles)
                return
            await self.world.settle(1.0)
        self.world.api.violations.append(f"audit: found {found}, there is {sorted(doubles)}")

    async def check(self) -> None:
        """What must be when peace has lasted."""
        api = self.world.api
        wrong = api.violations
        wrong += [f"{device} is in two claims" for device in api.doubles()]
        wrong += self.hardware.overdrawn(lambda claim: True)
        for service in self.services:
            wrong += [f"{hold.owner} still holds devices" for hold in service.scheduling.state.cluster.ledger.holds()]
            if service.scheduling.binds_under_way:
                wrong.append("a bind is still under way")
        for pod in self.pending():
            for service in self.services:
                if nodes := (await service.filter(pod)).NodeNames:
                    wrong.append(f"{pod.metadata.name} fits on {nodes} and is not bound")
            if node := self.hardware.room_for(pod):
                wrong.append(f"{pod.metadata.name} was refused although {node} has enough free devices")
        bound = {pod.metadata.uid for pod in api.all(Pod) if pod.spec.node_name}
        for claim in api.all(ResourceClaim):
            users = {entry.uid for entry in claim.status.reserved_for}
            if not users <= bound or bool(users) != (claim.allocation is not None):
                wrong.append(f"{claim.metadata.name} is left behind: reserved for {sorted(users - bound)}")


_AROUND: list[When] = ["before", "after"]
_WEIGHTS = {
    "schedule": 42,
    "add pod": 20,
    "delete pod": 9,
    "fault": 10,
    "stranger": 4,
    "hardware": 4,
    "driver": 4,
    "kill": 3,
    "relist": 3,
    "touch claim": 2,
    "depose": 1,
    "clock jump": 1,
}


def run(replay: Replay, seed: int, steps: int) -> Chaos:
    """One run. Raises AssertionError with all that was wrong."""
    made: list[Chaos] = []

    async def story(world: World) -> None:
        chaos = Chaos(world, seed)
        made.append(chaos)
        for _ in range(steps):
            await chaos.step()
        await chaos.end()
        await chaos.check()
        chaos.seconds = asyncio.get_running_loop().time()

    replay(story, seed)
    return made[0]
