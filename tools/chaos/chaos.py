"""Everything at once, from a seed: schedulers, strangers, drivers, faults, crashes, replicas.

A `Chaos` is one run: steps drawn from the seed, then peace, then the question what is left. What is checked, and where:

- S1 no exclusive device in the claims of two bound pods: `Api` at every binding; in no two claims at all: `check`.
- S2 counters and capacities never overdrawn: by claims of bound pods `Rules` at every binding; by any claim `check`.
- S3 at most 256 consumers, no consumer twice, the consumer of a bound pod never removed: `Api` and `Rules` at every
  write.
- S4 an allocation is never changed in place and never stored without the finalizer: `Api` at every write.
- S5 a pod is bound only with all claims allocated, reserved for it, on its node, its devices ready: `Api`, `Rules`.
  A binding that was about to be sent when the server was set back is lost: a limit that `docs/reliability.md` states.
- S6 class, selector and taints hold for a state no older than a bind may take: `Rules` at every allocation.
- S7 at most 32 results, in the order of the requests: `Rules` at every allocation.
- S8 verbs do not change what they are given, scores are 0 to 10, only given victims are returned: `Chaos.schedule`.
- S9 two replicas act at the same time, are deposed and killed; late writes of dead ones arrive: `Chaos.depose`, `kill`.
- S10 the audit of each replica finds what strangers have doubled, and nothing else: `check_audit`.
- L1 what fits is bound: `check`, by the answer of the verbs and by counting free devices independently.
- L2 no refused pod waits for ever: in `end` a refused pod is tried again only after a requeue.
- L3 no hold outlives its bind or the sight of its write, unless what was written cannot be taken back yet:
  `check_holds` after every step; none is left, and nothing is left to take back: `check`.
- S11, L5, L6 what must hold when pods make room for others: `Preempting`.
- S12, L7 what must hold when pods are nominated ahead of the queue: `EarlyNominating`.
- S15, L8 what must hold for gangs: `Gangs`.
- S13, S14 what must hold between namespaces, whatever users write: `Tenants`.
- L4 undecodable objects hinder no other pod, crashes anywhere and permissions that go and come back leave nothing
  behind: `add_undecodable`, `spoil_claim`, `forbid`, `kill`, `check`.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import random
from collections import Counter

import msgspec
from structlog.testing import capture_logs

from dra_extender.api.core import Pod
from dra_extender.api.extender import ExtenderArgs, ExtenderPreemptionArgs, MetaVictims
from dra_extender.api.meta import Condition
from dra_extender.api.resource import DeviceClass, ResourceClaim
from dra_extender.scheduling.config import SchedulingConfig
from dra_extender.scheduling.outcomes import BIND_RESULTS
from dra_extender.scheduling.release.unused import reported_unschedulable
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import Service, World, replay
from tools.chaos.earlynomination import EarlyNominating
from tools.chaos.gangs import Gangs, is_member
from tools.chaos.hardware import Hardware
from tools.chaos.mishaps import Mishaps
from tools.chaos.preempting import Preempting
from tools.chaos.rules import Rules
from tools.chaos.strangers import Strangers
from tools.chaos.tenants import Tenants
from tools.chaos.weights import WEIGHTS
from tools.chaos.workload import Workload

LIMITS = SchedulingConfig(
    bind_timeout=20.0, binding_conditions_timeout=120.0, scheduler_names=frozenset({"dra-scheduler"})
)
NARROW = msgspec.structs.replace(LIMITS, turn_work=40, question_work=20, call_work=400, worker_claim_seconds=1e9)
WORKING = [0.0, 0.01, 0.5, 1.9]
"""Seconds that workers take."""
LAGS = [0.0, 0.002, 0.05, 0.5]
MOMENTS = [[0.0, 0.001, 0.01, 0.3, 2.0], [0.0, 0.001, 0.01], [0.3, 2.0, 10.0]]
FACTORS = [0.0, 0.3, 1.0, 1.0, 4.0]
WATCH_GAP = 30.0
"""Seconds without a watch after which a service refuses to decide, as `--watch-gap` says."""
ROUNDS = 40
"""Of peace. The longest wait is for a write that may still arrive (a minute) and a sweep after it."""


class Chaos:
    """Three nodes, more pods than devices at times, one or two replicas.

    How often what happens is drawn too, once for the whole run: many mistakes show only where some things happen again
    and again and others never do.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.lots = random.Random(f"workers {seed}")
        self.narrow = self.lots.random() < 0.5
        """Almost everything is left to workers, or takes many turns."""
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0
        self.told: list[str] = []
        """Virtual time, and what the services have logged, once the run is over."""
        self.preempting = Preempting(world.api, seed)
        self.tenants = Tenants(world.api, seed)
        self.early = EarlyNominating(world.api, seed)
        self.gangs = Gangs(self, seed)
        extended = self.dice.random() < 0.5
        self.hardware = Hardware(world, self.dice)
        priority = self.preempting.priority
        self.workload = Workload(world, self.dice, self.hardware, extended=extended, priority=priority)
        self.rules = Rules(world, self.hardware)
        world.api.judges.append(self.rules.judge)
        self.strangers = Strangers(world, self.dice) if self.dice.random() < 0.6 else None
        replicas = self.dice.choice([1, 2])
        if self.preempting.calm:
            self.strangers, replicas = None, 1
        self.services: list[Service] = []
        self.mishaps = Mishaps(world, self.dice, self.services, self.replace, self.strangers)
        while len(self.services) < replicas:
            self.services.append(self.new_service(len(self.services)))
        self.weights = {action: weight * self.dice.choice(FACTORS) for action, weight in WEIGHTS.items()}
        self.weights |= {action: WEIGHTS[action] for action in ("schedule", "add pod")}
        self.weights = self.preempting.weights(self.weights) | self.gangs.weights
        self.moments = self.dice.choice(MOMENTS)
        self.twins = self.dice.choice([0.0, 0.05, 0.5])
        """How many binds are called twice, in any replicas."""
        self.refused: dict[str, tuple[int, Pod]] = {}
        """Pods that were refused, with the requeues seen before that and the version that was refused."""

    def new_service(self, index: int) -> Service:
        """The replica of this number; the first one is the leader, as far as making room for pods is concerned."""
        capacity = self.lots.choice([1, 2])
        workers = VirtualWorkers(lambda _: self.lots.choice(WORKING), capacity=capacity) if self.narrow else None
        config = NARROW if self.narrow else LIMITS
        config = config if index else self.early.config(self.preempting.config(config))
        clock, lag, features = self.mishaps.clock(), self.dice.choice(LAGS), self.tenants.features
        service = self.world.service(lag=lag, config=config, features=features, workers=workers, clock=clock)
        if self.dice.random() < 0.3:
            service.watch.lags = {kind: self.dice.choice(LAGS) for kind in (Pod, ResourceClaim)}
        service.watch.repeat = self.dice.choice([0, 0, 1])
        for part in (self.rules, self.preempting, self.tenants, self.gangs):
            part.oversee(service)
        service.start()
        return service

    async def replace(self, index: int) -> None:
        await self.services[index].kill()
        self.services[index] = self.new_service(index)

    def requeues(self) -> int:
        return sum(service.client.requeues for service in self.world.services)

    @property
    def trace(self) -> str:
        """The same for two runs in which the same was stored in the same order."""
        return hashlib.sha256(repr(self.world.api.log).encode()).hexdigest()[:12]

    # --- schedulers -------------------------------------------------------------------------------------------------

    async def schedule(self, service: Service, pod: Pod) -> None:
        """One cycle of a scheduler for one pod; other verbs come in between in any order."""
        if pod.spec.containers and not self.world.api.all(DeviceClass):
            return  # the plugin NodeResourcesFit finds no node with the resource
        if not self.is_ready(service):
            return
        requeued, nodes = self.requeues(), self.hardware.nodes()
        names = [node for node in nodes if self.dice.random() < 0.95]
        if self.dice.random() < 0.05:
            names.append("gone")
        self.refused.pop(pod.metadata.uid, None)
        args = ExtenderArgs(Pod=pod, NodeNames=tuple(names))
        before = copy.deepcopy(args)
        if self.dice.random() < 0.1:
            await self.rank(service, args)
        named = pod.status.nominated_node_name
        first = ExtenderArgs(Pod=pod, NodeNames=(named,))
        if self.early.on and named in names and (await service.extender.filter(first)).NodeNames:
            self.counts["tried where nominated"] += 1
            service.spawn(service.bind(pod, named))
            return
        answer = await service.extender.filter(args)
        refusals = [*(answer.FailedNodes or {}).values(), *(answer.FailedAndUnresolvableNodes or {}).values()]
        self.world.api.tell(pod.metadata.namespace, [answer.Error, *refusals])
        if answer.NodeNames and self.dice.random() < 0.7:
            await self.rank(service, args)
        if args != before:
            self.world.api.violations.append(f"{pod.metadata.name}: a verb has changed its arguments")
        if answer.NodeNames:
            service.spawn(service.bind(pod, self.dice.choice(answer.NodeNames)))
            if self.dice.random() < self.twins:
                other = self.dice.choice(self.services)
                other.spawn(other.bind(pod, self.dice.choice(answer.NodeNames)))
        elif not answer.Error and set(nodes) <= set(names):
            self.refuse(pod, requeued)

    def is_ready(self, service: Service) -> bool:
        """Whether the service answers, and does not say that it is not ready."""
        watch, now = service.watch, asyncio.get_running_loop().time()
        return watch.behind() <= WATCH_GAP and watch.alive and service.client.paused_until <= now

    async def rank(self, service: Service, args: ExtenderArgs) -> None:
        names = args.NodeNames or ()
        scores = await service.extender.prioritize(args)
        given = {name: MetaVictims() for name in names}
        kept = await service.extender.preempt(ExtenderPreemptionArgs(Pod=args.Pod, NodeNameToMetaVictims=given))
        wrong = [score for score in scores if score.Host not in names or not 0 <= score.Score <= 10]
        if wrong or set(kept.NodeNameToMetaVictims) - set(names):
            self.world.api.violations.append(f"{args.Pod.metadata.name}: scores {wrong}, victims {kept}")

    def refuse(self, pod: Pod, requeued: int) -> None:
        """What a scheduler does with a pod that fits nowhere: it reports it and waits for a requeue."""
        if not self.exists(pod):
            return
        named = "" if self.early.on and not self.preempting.on else pod.status.nominated_node_name
        if not reported_unschedulable(pod) or named != pod.status.nominated_node_name:
            others = [each for each in pod.status.conditions if each.type != "PodScheduled"]
            conditions = (*others, Condition(type="PodScheduled", status="False", reason="Unschedulable"))
            status = msgspec.structs.replace(pod.status, conditions=conditions, nominated_node_name=named)
            pod = self.world.api.put(msgspec.structs.replace(pod, status=status))
        self.refused[pod.metadata.uid] = (requeued, pod)

    def waits(self, pod: Pod) -> bool:
        """Whether the pod was refused, and nothing has told the scheduler since then to try again."""
        requeued, version = self.refused.get(pod.metadata.uid, (-1, None))
        return version is pod and requeued == self.requeues()

    # --- a run ------------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        action = self.dice.choices(list(self.weights), list(self.weights.values()))[0]
        self.counts[action] += 1
        await self.do(action)
        self.workload.tick()
        await self.world.settle(self.dice.choice(self.moments))
        for index, service in enumerate(self.services):
            if service.client.dead:
                await self.replace(index)
        self.check_holds()
        self.world.api.violations += self.early.overlaps(self.services[0])

    async def do(self, action: str) -> None:
        simple = {
            "add pod": self.workload.add_pod,
            "delete pod": self.workload.delete_pod,
            "finish pod": self.workload.finish_pod,
            "replace pod": self.workload.replace_any_pod,
            "replace claim": self.workload.replace_claim,
            "touch claim": self.workload.touch_claim,
            "fault": self.mishaps.fault,
            "watch gap": self.mishaps.trip_watch,
            "outage": self.mishaps.outage,
            "permission": self.mishaps.forbid,
            "spoil claim": self.mishaps.spoil_claim,
            "clock jump": self.mishaps.jump,
            "pause": self.mishaps.pause,
            "set back": self.set_back,
            "tenant": self.tenants.act,
            "add gang": self.gangs.add,
            "replace member": self.gangs.replace_member,
            "new leader": self.gangs.elect,
            "depose": self.mishaps.depose,
            "stranger": self.mishaps.intrude,
            "hardware": self.hardware.change,
            "node": self.hardware.lose,
            "driver": self.hardware.report,
        }
        if action in simple:
            simple[action]()
        elif action == "kill":
            await self.mishaps.kill()
        elif action == "time passes":
            await self.world.settle(self.dice.random() * 60)
        elif pods := self.workload.pending():
            await self.schedule_one(self.dice.choice(self.services), self.dice.choice(pods))

    async def schedule_one(self, service: Service, pod: Pod) -> None:
        """The pod, or its gang."""
        if not is_member(pod):
            await self.schedule(service, pod)
        else:
            await self.gangs.schedule(pod)

    def set_back(self) -> None:
        """The replicas that replace these requeue all pods."""
        self.mishaps.set_back()
        self.refused.clear()

    def check_holds(self) -> None:
        for service in self.services:
            view = service.extender.view
            pending = {rollback.pod.uid for rollback in service.extender.pending_rollbacks._entries}
            for hold in view.ledger.holds():
                kept = hold.owner in view.binding or hold.owner in pending
                if not kept and hold.written_version is None:
                    self.world.api.violations.append(f"a hold of {hold.owner} has outlived its bind")

    async def end(self) -> None:
        """Peace: everybody gets a chance again and again, refused pods only after a requeue. Where room is made for
        pods the first replica leads from now on, and requeues all pods as at its start: it knows of no refusals by
        others.
        """
        await self.mishaps.end()
        if self.preempting.on:
            self.refused.clear()
        self.preempting.end()
        self.gangs.leader = 0
        self.hardware.restore()
        paused = max(service.client.paused_until for service in self.services) - asyncio.get_running_loop().time()
        await self.world.settle(6.0 + max(0.0, paused))
        for index, service in enumerate(self.services):
            if service.client.dead:  # it has noticed a set-back when it went on
                await self.replace(index)
        asked = self.services[:1] if self.preempting.on else self.services
        await self.check_audit()
        for number in range(ROUNDS):
            if self.strangers is not None and number in (0, ROUNDS // 2):
                self.strangers.leave()
            for pod in self.workload.pending():
                if self.exists(pod) and not self.waits(pod):
                    await self.schedule_one(self.dice.choice(asked), pod)
            self.hardware.report(well=True)
            await self.world.settle(10.0)
            self.world.api.clean_up()
            self.workload.tick()

    def exists(self, pod: Pod) -> bool:
        """Whether this very version is the stored one."""
        return self.world.api.objects.get((Pod, pod.metadata.key)) is pod

    async def check_audit(self) -> None:
        """What is under way may differ from what is seen for a moment, never for long."""
        for _ in range(30):
            doubles = {"/".join(device) for device in self.world.api.doubles()}
            audits = [service.cluster.ledger.violations() for service in self.services]
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
        wrong += [f"{device} is in two claims" for device in api.doubles(lambda claim: not api.is_unused(claim))]
        wrong += self.hardware.overdrawn(lambda claim: not api.is_unused(claim))
        for service in self.services:
            wrong += [f"{hold.owner} still holds devices" for hold in service.extender.view.ledger.holds()]
            wrong += [f"still to take back: {problem.what}" for problem in service.extender.pending_rollbacks.problems]
            if len(service.extender.view.binding):
                wrong.append("a bind is still under way")
            if service.counted(BIND_RESULTS, "broken"):
                wrong.append("a bind has ended in an internal error")
        wrong += self.preempting.check(self.services[0])
        wrong += self.early.check(self.services[0])
        wrong += self.gangs.check()
        for pod in self.workload.pending():
            for service in self.services:
                if nodes := (await service.filter(pod)).NodeNames:
                    wrong.append(f"{pod.metadata.name} fits on {nodes} and is not bound")
            alone = not is_member(pod) and not api.lacks_group(pod)
            if alone and (node := self.hardware.room_for(pod)):
                wrong.append(f"{pod.metadata.name} was refused although {node} has enough free devices")
        groups = set(api.groups.values())
        for claim in api.all(ResourceClaim):
            users, running = {entry.uid for entry in claim.status.reserved_for}, api.running(claim)
            if users & groups or (claim.metadata.deletion_timestamp and running):
                continue  # it goes with the last running pod, or with the group
            if users != running or bool(users) != (claim.allocation is not None):
                wrong.append(f"{claim.metadata.name} is left behind: reserved for {sorted(users - running)}")


class Violated(AssertionError):
    """A run in which something went wrong: what, and the run as far as it came."""

    def __init__(self, wrong: list[str], chaos: Chaos) -> None:
        super().__init__(wrong)
        self.wrong = wrong
        self.chaos = chaos


def run(seed: int, steps: int) -> Chaos:
    """One run. Raises Violated with all that was wrong; a service that logs an error is."""
    made: list[Chaos] = []
    wrong: list[str] = []
    cause: Exception | None = None

    async def story(world: World) -> None:
        chaos = Chaos(world, seed)
        made.append(chaos)
        for _ in range(steps):
            await chaos.step()
        await chaos.end()
        await chaos.check()
        chaos.seconds = asyncio.get_running_loop().time()

    with capture_logs() as told:
        try:
            replay(story, seed)
        except Exception as problem:
            cause = problem
            found = problem.args[0] if problem.args else None
            wrong += found if isinstance(found, list) else [repr(problem)]
    (chaos,) = made
    chaos.told = [f"{entry.pop('log_level')}: {entry.pop('event')} {entry or ''}".rstrip() for entry in told]
    wrong += [line for line in chaos.told if line.startswith(("error", "critical"))]
    if wrong:
        raise Violated(wrong, chaos) from cause
    return chaos
