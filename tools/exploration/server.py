"""The API server as a value: which state a request or a step of another component leads to, and what the watches will
show.

What it answers is what the API server of the simulation answers (`tests.support.simulation`): each step puts one up
with the objects of the state. Pods and claims count their resourceVersions apart, as two kinds of resources may: no
client compares them, and states that differ only in how many pods were written in between are one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dra_extender.api.core import Pod
from dra_extender.api.errors import ApiError
from dra_extender.api.resource import ResourceClaim
from tests.support.simulation.api import Api, devices
from tests.support.simulation.client import Client
from tests.support.simulation.objects import KubernetesObject
from tools.exploration.machines import Things
from tools.exploration.ports import Request
from tools.exploration.replica import KINDS

Event = tuple[int, int, bool]
"""(0 for claims and 1 for pods, number of the object, True when it is gone)"""


class Stored(msgspec.Struct, frozen=True):
    """One state of the server. `born`: (UID of an allocated claim, version at which its allocation was written)."""

    objects: tuple[tuple[int, ...], tuple[int, ...]]
    versions: tuple[int, int]
    born: tuple[tuple[str, int], ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """After one step: the state, the reply (an object, None or an error, by number), and what the watches will show."""

    state: int
    reply: int
    events: tuple[Event, ...]


class _Direct(Client):
    """A client whose calls are carried out at once."""

    async def _call(self, operation: str, commit: Callable[[], Any]) -> Any:
        return commit()


class _Recorder:
    def __init__(self) -> None:
        self.sent: list[tuple[KubernetesObject, bool]] = []

    def send(self, obj: KubernetesObject, *, removed: bool) -> None:
        self.sent.append((obj, removed))


class Server:
    """States by number. `wrong[state]` is what must never be."""

    def __init__(self, things: Things, objects: Sequence[KubernetesObject]) -> None:
        self.states: list[Stored] = []
        self.wrong: list[tuple[str, ...]] = []
        self.bound: list[dict[str, str]] = []
        """By state, the node of each pod that is bound, by pod UID."""
        self._things = things
        self._known: dict[Stored, int] = {}
        self._done: dict[Any, Outcome | None] = {}
        api = Api()
        for obj in objects:
            api.put(obj)
        self.first = self._enter(self._stored(api, (api.version, api.version), {}))
        self.objects = list(api.objects.values())

    # --- steps ------------------------------------------------------------------------------------------------------

    def carry_out(self, state: int, number: int) -> Outcome:
        """A request of a replica."""
        key = state, number
        found = self._done.get(key)
        if found is None:
            request: Request = self._things[number]

            def step(api: Api) -> Any:
                call = getattr(_Direct(api), request.operation)(*request.args, **dict(request.named))
                try:
                    call.send(None)
                except StopIteration as end:
                    return end.value
                except ApiError as error:
                    return type(error)(error.status, error.reason, error.message)
                raise AssertionError("the call waits")

            kind = KINDS.index(Pod) if request.operation in ("bind_pod", "patch_pod_status", "read_pod") else 0
            found = self._done[key] = self._outcome(state, step, kind)
        return found

    def act(self, state: int, name: str, step: Callable[[Api], bool], kind: int) -> Outcome | None:
        """A step of another component, which writes objects of one kind; None when it is not possible now."""
        key = state, name
        if key not in self._done:
            made = self._outcome(state, step, kind)
            self._done[key] = made if self._things[made.reply] else None
        return self._done[key]

    def set_back(self, bump: int) -> int:
        """The first state, as restored from a backup; the next versions are higher by `bump`."""
        first = self.states[self.first]
        return self._enter(
            msgspec.structs.replace(first, versions=(first.versions[0] + bump, first.versions[1] + bump))
        )

    def _outcome(self, state: int, step: Callable[[Api], Any], kind: int) -> Outcome:
        before = self.states[state]
        api, recorder = Api(), _Recorder()
        for number in (*before.objects[0], *before.objects[1]):
            obj = self._things[number]
            api.objects[type(obj), obj.metadata.key] = obj
        api.version = before.versions[kind]
        api.watches.append(recorder)
        reply = step(api)
        events = tuple((KINDS.index(type(obj)), self._things.number(obj), removed) for obj, removed in recorder.sent)
        if not events:
            return Outcome(state, self._things.number(reply), ())
        assert all(event[0] == kind for event in events), f"a step writes objects of one kind: {events}"
        versions = (api.version, before.versions[1]) if kind == 0 else (before.versions[0], api.version)
        after = self._enter(self._stored(api, versions, dict(before.born)), self._judge_step(api))
        return Outcome(after, self._things.number(reply), events)

    def _stored(self, api: Api, versions: tuple[int, int], born: dict[str, int]) -> Stored:
        objects = [sorted((obj for obj in api.all(kind)), key=lambda obj: obj.metadata.name) for kind in KINDS]
        now: dict[str, int] = {}
        for claim in api.all(ResourceClaim):
            if claim.allocation is not None:
                now[claim.metadata.uid] = born.get(claim.metadata.uid, claim.metadata.version)
        numbers = tuple(tuple(self._things.number(obj) for obj in found) for found in objects)
        return Stored((numbers[0], numbers[1]), versions, tuple(sorted(now.items())))

    # --- what must never be -----------------------------------------------------------------------------------------

    def _enter(self, stored: Stored, wrong: Sequence[str] = ()) -> int:
        state = self._known.get(stored)
        if state is None:
            state = self._known[stored] = len(self.states)
            self.states.append(stored)
            pods: list[Pod] = [self._things[number] for number in stored.objects[1]]
            self.bound.append({pod.metadata.uid: pod.spec.node_name for pod in pods if pod.spec.node_name})
            self.wrong.append((*wrong, *self._judge(stored, pods)))
        return state

    @staticmethod
    def _judge_step(api: Api) -> Sequence[str]:
        """What the API server of the simulation says of a commit, but for bindings: `_judge` is stricter there."""
        return [said for said in api.violations if " bound with a device of " not in said]

    def _judge(self, stored: Stored, pods: Sequence[Pod]) -> list[str]:
        """A bound pod's claims are allocated and reserved for it. And no other claim has had one of its devices longer:
        the second writer yields. Only pods of a stranger, which checks nothing, may be second.
        """
        wrong: list[str] = []
        born = dict(stored.born)
        claims: dict[str, ResourceClaim] = {self._things[n].metadata.key: self._things[n] for n in stored.objects[0]}
        for pod in pods:
            if not pod.spec.node_name:
                continue
            for entry in pod.spec.resource_claims:
                claim = claims.get(f"default/{entry.resource_claim_name}")
                if claim is None or claim.allocation is None or not claim.reserved_for(pod.metadata.uid):
                    wrong.append(f"{pod.metadata.name} is bound without {entry.resource_claim_name}")
                    continue
                for other in claims.values():
                    shared = devices(other) & devices(claim) if other is not claim else set()
                    if shared and born[other.metadata.uid] < born[claim.metadata.uid] and not is_foreign(pod):
                        wrong.append(
                            f"{pod.metadata.name} is bound with a device that {other.metadata.name} had before"
                        )
        return wrong

    def left_over(self, state: int) -> list[str]:
        """Claims of ours that are reserved for pods that are there and not bound, or allocated without a consumer."""
        stored, bound, found = self.states[state], self.bound[state], []
        waiting = {self._things[number].metadata.uid for number in stored.objects[1]} - bound.keys()
        for number in stored.objects[0]:
            claim: ResourceClaim = self._things[number]
            users = {entry.uid for entry in claim.status.reserved_for}
            if claim.allocation is not None and (users & waiting or not users) and "uid-s" not in users:
                found.append(f"{claim.metadata.name} is left behind, reserved for {sorted(users)}")
        return found


def is_foreign(pod: Pod) -> bool:
    return pod.spec.scheduler_name != "dra-scheduler"
