"""Tries every combination of devices of a node, on the raw objects: is there one for all requests of a pod?

Like the scheduler, it takes the requests in order: of two requests with admin access and without, the first may take a
device that the second cannot have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from dra_extender.insight.why.statements import Unsatisfiable
from tests.support.diagnosis.facts import ID, Device, Facts, Json, charges

RULES: Final = frozenset(("constraints", "counters", "capacity"))
"""What can be left out, to see whether it matters."""
_COUNTER = re.compile(r"counter (\S+)/(\S+) has (\d+) left, the requested devices need at least (\d+)")


class _Taken(NamedTuple):
    claim: str
    request: str
    device: Device
    wanted: Json


class Combinations:
    """The combinations of devices of one node. Only these `rules` apply; every device is given to one request, unless
    it can be shared. `claims`: only these claims.
    """

    def __init__(
        self, facts: Facts, node: str, rules: Collection[str] = RULES, claims: Collection[str] | None = None
    ) -> None:
        self._facts = facts
        self._node = node
        self._rules = rules
        found = [*facts.requests(), *facts.through_devices(node)]
        self._requests = [(claim, request) for claim, request in found if claims is None or claim in claims]

    def exist(self) -> bool:
        """A combination of devices satisfies all requests."""
        return next(self.every(), None) is not None

    def every(self, taken: Sequence[_Taken] = (), start: int = 0) -> Iterator[Sequence[_Taken]]:
        """All combinations that satisfy the requests."""
        if start == len(self._requests):
            yield taken
            return
        claim, request = self._requests[start]
        for wanted in request.get("firstAvailable", [request.get("exactly")]):
            for devices in self._choices(wanted):
                more = [*taken, *(_Taken(claim, request["name"], device, wanted) for device in devices)]
                if self._allowed(more):
                    yield from self.every(more, start + 1)

    def _choices(self, wanted: Json) -> Iterator[Sequence[Device]]:
        facts = self._facts
        matching = facts.matching(wanted, self._node)
        free = [device for device in matching if not facts.lost(wanted, device)]
        if wanted.get("allocationMode") != "All":
            yield from combinations(free, int(wanted.get("count", 1)))
            return
        every = [device for device in matching if not facts.lacks_capacity(wanted, device, empty=True)]
        if not facts.features.is_1_37:
            every = [device for device in every if not self._is_full_share(wanted, device)]
        if every and {device.id for device in every} <= {device.id for device in free}:
            yield every

    def _is_full_share(self, wanted: Json, device: Device) -> bool:
        shares = any(name == device.id for name in self._facts.shared)
        return shares and self._facts.lacks_capacity(wanted, device)

    def _allowed(self, taken: Sequence[_Taken]) -> bool:
        return (
            self._apart(taken)
            and ("counters" not in self._rules or self._counters_suffice(taken))
            and ("capacity" not in self._rules or self._capacity_suffices(taken))
            and ("constraints" not in self._rules or self._agree(taken))
        )

    def _apart(self, taken: Sequence[_Taken]) -> bool:
        """No exclusive device is taken twice, except with admin access for another claim."""
        for number, item in enumerate(taken):
            if self._facts.is_shared(item.device):
                continue
            before = [other for other in taken[:number] if other.device.id == item.device.id]
            if any(other.claim == item.claim or not item.wanted.get("adminAccess") for other in before):
                return False
        return True

    def _counters_suffice(self, taken: Sequence[_Taken]) -> bool:
        if not self._facts.features.DRAPartitionableDevices:
            return True
        paying = {item.device.id: item.device for item in taken if not item.wanted.get("adminAccess")}
        needed: dict[tuple[str, str, str], int] = {}
        some: dict[tuple[str, str, str], Device] = {}
        for device in paying.values():
            for name, amount in charges(device.body):
                key = (*device.id[:2], name)
                needed[key], some[key] = needed.get(key, 0) + amount, device
        return all(amount <= self._facts.counter_left(some[key], key[2]) for key, amount in needed.items())

    def _capacity_suffices(self, taken: Sequence[_Taken]) -> bool:
        needed: dict[ID, int] = {}
        for item in taken:
            if self._facts.is_shared(item.device):
                needed[item.device.id] = needed.get(item.device.id, 0) + self._facts.asked(item.wanted, item.device)
        devices = {item.device.id: item.device for item in taken}
        return all(amount <= self._facts.capacity_left(devices[key]) for key, amount in needed.items())

    def _agree(self, taken: Sequence[_Taken]) -> bool:
        for claim in {item.claim for item in taken}:
            found = self._facts.objects.get(("ResourceClaim", claim), {}).get("spec", {}).get("devices", {})
            devices = [item.device for item in taken if item.claim == claim]
            for constraint in found.get("constraints", ()):
                if not _agrees(constraint, devices):
                    return False
        return True


def _agrees(constraint: Mapping[str, str], devices: Sequence[Device]) -> bool:
    ((kind, attribute),) = constraint.items()
    values = [device.attribute(attribute) for device in devices]
    different = len(set(values))
    return None not in values and different == (1 if kind == "matchAttribute" else len(values))


CAUSES: Final[Mapping[str, Collection[str]]] = {
    "no combination of devices does": RULES,
    "there are not enough devices for all requests together": (),
    "there are not enough devices that satisfy the constraints for all requests together": ("constraints",),
    "the capacity left does not suffice for all shares together": ("capacity",),
    "no distribution of the claims over groups of matching devices is possible": ("constraints",),
}
"""By cause: the rules that leave no combination."""


def unsatisfied(facts: Facts, statement: Unsatisfiable) -> Iterator[str]:
    """What is wrong with the statement."""
    for node in statement.scope.nodes:
        if not statement.label:
            yield from _ended(facts, statement.cause, node)
        elif Combinations(facts, node).exist():
            yield f"there are devices for all requests on {node}"
        elif statement.cause in CAUSES:
            if Combinations(facts, node, CAUSES[statement.cause]).exist():
                yield f"that is not why there is no combination on {node}"
        elif match := re.fullmatch(
            r"no combination of matching devices satisfies the constraints of claim default/(\S+)", statement.cause
        ):
            if Combinations(facts, node, ("constraints",), [match[1]]).exist():
                yield f"devices of {node} satisfy the constraints"
        elif match := _COUNTER.match(statement.cause):
            yield from _counter(facts, node, match)
            users = {f"default/{claim}" for claim, result in facts.results if result["driver"] == "gpu.example.com"}
            if not {holder.claim for holder in statement.holders} <= users:
                yield f"the counters are used by {users}"
        else:
            yield "no check of this cause"


def _counter(facts: Facts, node: str, match: re.Match[str]) -> Iterator[str]:
    devices = [d for d in facts.devices(node) if any(name == match[2] for name, _ in charges(d.body))]
    if {facts.counter_left(device, match[2]) for device in devices} != {int(match[3])}:
        yield f"another amount of {match[2]} is left"
    needed = [
        sum(amount for d in {t.device.id: t.device for t in taken}.values() for _, amount in charges(d.body))
        for taken in Combinations(facts, node, ("constraints", "capacity")).every()
    ]
    if min(needed, default=int(match[4])) < int(match[4]):
        yield f"{min(needed)} of {match[2]} suffice"


def _ended(facts: Facts, cause: str, node: str) -> Iterator[str]:
    """A text of the scheduler about one node."""
    requests = [request for _, request in facts.requests()]
    wants = [want for request in requests for want in request.get("firstAvailable", [request.get("exactly")])]
    every = any(want.get("allocationMode") == "All" for want in wants)
    if cause == "cannot fit resource":
        pass  # an extended resource without a class; `NodesExcluded` names it
    elif "is currently being updated" in cause:
        pools = {pool for pool in facts.incomplete(node) if f"/{pool} is " in cause}
        if not every or not pools:
            yield "no request for all devices of an incomplete pool"
    elif "cannot add device" in cause:
        if not every or not any(item["spec"]["devices"].get("constraints") for item in facts.claims):
            yield "no request for all devices breaks a constraint"
    else:
        yield "no check of this cause"
