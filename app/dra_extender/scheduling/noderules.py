"""What keeps a pod from a node besides devices, and what the pods of a node use.

Promises: pure. Checks only rules that depend on the node, its pods and the pod: cordons, taints, node selector and
required node affinity, host ports, number of pods and resources. A watch event of a pod costs two look-ups, unless the
pod has many parts: what the pods on a node use is added up when a caller asks, once until a pod comes or goes. Assumed
pods count, too.

Rules: Kubernetes 1.36, pkg/scheduler/framework/plugins/{nodeunschedulable,tainttoleration,nodename,nodeaffinity,
nodeports,noderesources}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, lru_cache
from typing import Final, Literal

import msgspec

from dra_extender.api.core import Node, NodeSelector, Pod, Taint, requested
from dra_extender.api.quantity import Format, Quantity
from dra_extender.api.tolerations import Tolerations
from dra_extender.devices.nodeselection import Matcher, NodeSelectorError, parse, selector_text
from dra_extender.limits import AMOUNTS_OF_POD, PARTS_OF_POD

NodeRule = Literal[
    "node name", "cordoned", "node taint", "node selector", "node affinity", "host port", "pods", "cpu", "memory",
    "ephemeral-storage", "resource", "claim elsewhere", "node allocatable",
]  # fmt: skip
"""What keeps a pod from a node besides devices, by kube-scheduler's rules."""


class Obstacle(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why the node does not suit the pod, apart from devices. `what`: the resource, taint or label; `asked`: what the
    pod asks for (with rule "node allocatable", together with its devices), or the only node of a claim; `has`: what the
    node has.
    """

    rule: NodeRule
    what: str = ""
    asked: str = ""
    has: str = ""


SURE: Final = frozenset(("cordoned", "node taint", "node selector", "node affinity", "pods", "cpu", "memory"))
"""kube-scheduler always checks these: its configuration can ignore other resources."""
UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
UNHEALTHY: Final = "node.kubernetes.io/"
"""The prefix of the taints that Kubernetes sets while a node cannot run more pods."""
KEEPING_AWAY: Final = frozenset(("NoSchedule", "NoExecute"))
_OWN_RULES: Final[Mapping[str, NodeRule]] = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeral-storage"}
_BYTES: Final = frozenset(("memory", "ephemeral-storage"))

REMEMBERED: Final = 64
"""Containers and amounts of a pod whose sum is not remembered."""

TERMS: Final = 4
"""Requirements of a node affinity that are shown."""

LABELS_OF_ONE: Final = ("kubernetes.io/hostname",)
"""Labels with a different value on every node."""

Amounts = Mapping[str, int]
"""Resource to nano units."""


@lru_cache(maxsize=1024)
def amount_text(resource: str, nano: int) -> str:
    """An amount of the resource as people write it."""
    is_bytes = resource in _BYTES or resource.startswith("hugepages-")
    return Quantity(nano, Format.BINARY_SI if is_bytes else Format.DECIMAL_SI).text


ANY_ADDRESS: Final = "0.0.0.0"
_SOME_ADDRESS: Final = ""

Port = tuple[str, str, int]
"""(IP, protocol, port of the node)"""


def ports(pod: Pod) -> frozenset[Port]:
    return frozenset(
        (port.host_ip or ANY_ADDRESS, port.protocol or "TCP", port.host_port)
        for container in pod.spec.containers
        for port in container.ports
        if port.host_port > 0
    )


def taken_by(pod: Pod) -> frozenset[Port]:
    """The ports of its node that the pod takes; those of one address once more with the address `_SOME_ADDRESS`."""
    found = ports(pod)
    return found | {(_SOME_ADDRESS, protocol, port) for address, protocol, port in found if address != ANY_ADDRESS}


def conflicting(wanted: Iterable[Port], taken: Set[Port]) -> Port | None:
    """The first wanted port that pods have `taken_by`; the wildcard address takes all addresses. Costs the same with
    any number of taken ports.
    """
    for address, protocol, port in wanted:
        other = _SOME_ADDRESS if address == ANY_ADDRESS else ANY_ADDRESS
        if (address, protocol, port) in taken or (other, protocol, port) in taken:
            return address, protocol, port
    return None


class Wants:
    """What one pod needs of a node. `by_devices`: resources that device classes provide, also on nodes without them."""

    def __init__(self, pod: Pod, by_devices: frozenset[str] = frozenset()) -> None:
        self.pod = pod
        self.amounts: Amounts = requested(pod)
        self.ports = sorted(ports(pod))
        self._by_devices = by_devices
        self._tolerations = Tolerations(pod.spec.tolerations)
        self._tolerated: dict[Taint, bool] = {}
        required = required_affinity(pod)
        size = required.size if required is not None else 0
        self._affinity = _matcher(required) if required is not None and size <= PARTS_OF_POD else None
        self._affinity_text = selector_text(required) if required is not None and size <= TERMS else ""
        self.by_name = self._affinity is not None or any(key in pod.spec.node_selector for key in LABELS_OF_ONE)
        """True when nodes that differ only in their names may differ for the pod."""
        self.cost = (
            1 + len(self.ports) + (min(size, PARTS_OF_POD) + len(pod.spec.node_selector) + len(self.amounts)) // 4
        )
        """Units of work for one node, about a microsecond each, without its taints: administrators set them."""

    @cached_property
    def counted(self) -> Counted:
        """What the pod uses of its node."""
        return counted(self.pod)

    @property
    def rules(self) -> Hashable:
        """Equal for pods that may use the same nodes, apart from devices."""
        spec = self.pod.spec
        affinity = spec.affinity.node_affinity if spec.affinity is not None else None
        selector = frozenset(spec.node_selector.items())
        return frozenset(self.amounts.items()), tuple(self.ports), selector, affinity, spec.tolerations

    def obstacles(self, node: Node, used: Amounts, pods: int, taken: frozenset[Port]) -> Iterator[Obstacle]:
        """Everything that keeps the pod from the node, whose `pods` pods have `used` resources and `taken` ports."""
        yield from self.unsuited(node)
        if self.ports and (port := conflicting(self.ports, taken)) is not None:
            yield Obstacle("host port", f"{port[2]}/{port[1]}")
        yield from self._room(node, used, pods)

    def unsuited(self, node: Node) -> Iterator[Obstacle]:
        """What keeps the pod from the node even if it is empty: cordon, taints, labels."""
        spec = node.spec
        if spec.unschedulable and not self.tolerates(UNSCHEDULABLE):
            yield Obstacle("cordoned")
        for taint in spec.taints:
            reported = spec.unschedulable and taint.key == UNSCHEDULABLE.key
            if taint.effect in KEEPING_AWAY and not reported and not self.tolerates(taint):
                yield Obstacle("node taint", str(taint))
        if self.pod.spec.node_selector or self._affinity is not None:
            yield from self._labels(node)

    def left(self, node: Node, used: Amounts) -> Iterator[tuple[str, int]]:
        """What the node has left of each resource that the pod requests, in nano units; at least 0."""
        for name in self.amounts:
            offered = node.status.allocatable.get(name)
            if offered is not None:
                yield name, max(offered.nano - used.get(name, 0), 0)

    def tolerates(self, taint: Taint) -> bool:
        known = self._tolerated.get(taint)
        if known is None:
            known = self._tolerations.tolerate(taint)
            self._tolerated[taint] = known
        return known

    def _labels(self, node: Node) -> Iterator[Obstacle]:
        labels = node.metadata.labels
        for key, value in self.pod.spec.node_selector.items():
            if labels.get(key) != value:
                yield Obstacle("node selector", key, value, labels.get(key, ""))
        if self._affinity is not None and not self._affinity(node.metadata.name, labels):
            yield Obstacle("node affinity", asked=self._affinity_text)

    def _room(self, node: Node, used: Amounts, pods: int) -> Iterator[Obstacle]:
        allocatable = node.status.allocatable
        most = allocatable.get("pods")
        if most is not None and pods + 1 > most.value():
            yield Obstacle("pods", "pods", "1", f"0 of {most.value()}")
        for name, amount in self.amounts.items():
            offered = allocatable.get(name)
            if amount <= 0 or (name in self._by_devices and (offered is None or offered.nano == 0)):
                continue
            left = (offered.nano if offered is not None else 0) - used.get(name, 0)
            if amount > left:
                has = amount_text(name, max(left, 0)) if offered is not None else ""
                yield Obstacle(_OWN_RULES.get(name, "resource"), name, amount_text(name, amount), has)


def required_affinity(pod: Pod) -> NodeSelector | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None


def _matcher(selector: NodeSelector) -> Matcher:
    """A selector that cannot be parsed matches no node."""
    try:
        return parse(selector)
    except NodeSelectorError:
        return lambda name, labels: False


def is_large(pod: Pod) -> bool:
    """True when the pod has more parts than can be compared with nodes in one step."""
    spec = pod.spec
    lists = (spec.volumes, spec.containers, spec.init_containers, spec.tolerations, spec.node_selector)
    containers = (*spec.init_containers, *spec.containers)
    ports = sum(len(each.ports) for each in containers)
    amounts = sum(len(each.resources.requests) for each in containers)
    sizes = ports, amounts, len(spec.topology_spread_constraints), *map(len, lists)
    return max(sizes) > PARTS_OF_POD or has_large_affinity(pod)


def parts_of(pod: Pod) -> int:
    """How much of the pod a decision reads, besides the content of its claims."""
    spec, required = pod.spec, required_affinity(pod)
    parts = len(spec.resource_claims) + len(spec.tolerations) + len(spec.node_selector)
    containers = (*spec.init_containers, *spec.containers)
    parts += sum(1 + len(each.ports) + len(each.resources.requests) for each in containers)
    return parts + (required.size if required is not None else 0)


def has_large_affinity(pod: Pod) -> bool:
    required = required_affinity(pod)
    return required is not None and required.size > PARTS_OF_POD


Used = tuple[Mapping[str, int], int, frozenset[Port]]
"""(What pods ask for by resource, in nano units; how many they are; the ports that are `taken_by` them.)"""

NOTHING_USED: Final[Used] = ({}, 0, frozenset())


Counted = tuple[Amounts, frozenset[Port]]
"""What one pod uses of its node: see `Used`."""


def counted(pod: Pod) -> Counted:
    """What the pod requests, of at most `AMOUNTS_OF_POD` resources, and the ports that are `taken_by` it."""
    asked = {name: amount for name, amount in requested(pod).items() if amount}
    if len(asked) > AMOUNTS_OF_POD:
        ordered = sorted(asked, key=lambda name: (name not in _OWN_RULES, "/" in name))
        asked = {name: asked[name] for name in ordered[:AMOUNTS_OF_POD]}
    return asked, taken_by(pod)


def together(used: Used, pods: Iterable[Counted]) -> Used:
    """What was used before, and by these pods."""
    amounts, count, taken = Counter(used[0]), used[1], [used[2]]
    for asked, ports in pods:
        count += 1
        amounts.update(asked)
        taken.append(ports)
    return amounts, count, frozenset().union(*taken)


def obstacles_together(
    pods: Iterable[Wants], node: Node, used: Used, there: Iterable[Counted] = ()
) -> Iterator[Obstacle]:
    """What keeps these pods from the node together, besides what is `used` of it and the pods that will be `there`. The
    work does not grow with what is used.
    """
    more, count, taken = together(NOTHING_USED, there)
    amounts, ports, count = Counter(more), set(taken), count + used[1]
    for wants in pods:
        both = {name: used[0].get(name, 0) + amounts[name] for name in wants.amounts}
        yield from wants.obstacles(node, both, count, used[2])
        if conflicting(wants.ports, ports) is not None:
            yield Obstacle("host port")
        amounts.update(wants.counted[0])
        ports |= wants.counted[1]
        count += 1


def _asked(pod: Pod) -> object:
    """What `requested` and `ports` read of the pod."""
    spec = pod.spec
    devices = pod.status.node_allocatable_resource_claim_statuses
    return spec.containers, spec.init_containers, spec.resources, spec.overhead, devices


class ResourcesInUse:
    """`put` and `drop` report bound pods; `assume` and `forget`, as in kube-scheduler's cache, pods that will probably
    be bound. A resized pod counts with what its spec requests now.
    """

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._node: dict[str, str] = {}
        self._assumed: dict[str, object] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        self._used: dict[str, Used] = {}
        self._counted: dict[str, tuple[Pod, Counted]] = {}
        """By UID: what pods use that have more parts than `REMEMBERED`."""
        for pod in pods:
            self.put(pod)

    def put(self, pod: Pod) -> int:
        """The watch shows the pod. It counts on its node, if it has one. Returns the units of work, 0 for most pods."""
        uid = pod.metadata.uid
        if pod.finished:
            self.drop(uid)
        elif pod.spec.node_name:
            self._assumed.pop(uid, None)
            self._place(pod, pod.spec.node_name)
            return self._add_up(self._pods[pod.spec.node_name][uid])
        return 0

    def is_resized(self, pod: Pod) -> bool:
        """True when the pod is known on its node, and asked for something else before."""
        known = self._pods.get(pod.spec.node_name, {}).get(pod.metadata.uid)
        return known is not None and _asked(known) != _asked(pod)

    def drop(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        self._counted.pop(uid, None)
        if (node := self._node.pop(uid, None)) is not None:
            pods = self._pods[node]
            del pods[uid]
            self._used.pop(node, None)
            if not pods:
                del self._pods[node]

    def assume(self, pod: Pod, node: str, by: object = None) -> None:
        """Count the pod on the node before it is bound. `by` identifies the caller."""
        self._place(pod, node)
        self._assumed[pod.metadata.uid] = by

    def forget(self, uid: str, by: object = None) -> bool:
        """Stop counting an assumed pod. False when it stays: it was bound, or another caller has assumed it since."""
        if found := uid in self._assumed and self._assumed[uid] is by:
            self.drop(uid)
        return found

    def _place(self, pod: Pod, node: str) -> None:
        uid = pod.metadata.uid
        known = self._pods.get(node, {}).get(uid)
        if known is None or _asked(known) != _asked(pod):
            self.drop(uid)
            self._node[uid] = node
            self._pods.setdefault(node, {})[uid] = pod
            self._used.pop(node, None)

    def _add_up(self, pod: Pod) -> int:
        """Remember what the pod uses, if it has many parts. Units of work."""
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        size = sum(1 + len(each.ports) + len(each.resources.requests) for each in containers)
        known = self._counted.get(pod.metadata.uid)
        if size <= REMEMBERED or (known is not None and known[0] is pod):
            return 0
        self._counted[pod.metadata.uid] = pod, counted(pod)
        return size // 2

    def count(self, pod: Pod) -> Counted:
        self._add_up(pod)
        known = self._counted.get(pod.metadata.uid)
        return known[1] if known is not None and known[0] is pod else counted(pod)

    def size(self, node: str) -> int:
        """Units of work to add up what the pods on the node use."""
        ports = [self._counted[uid][1][1] for uid in self._pods.get(node, ()) if uid in self._counted]
        return len(self._pods.get(node, ())) + sum(map(len, ports)) // 10

    def on(self, node: str) -> Sequence[Pod]:
        return list(self._pods.get(node, {}).values())

    def keeps_away(self, wants: Wants, node: Node) -> bool:
        """True when a rule about something other than devices keeps the pod from the node, or kube-scheduler would
        prefer another node because of a PreferNoSchedule taint.
        """
        if any(True for _ in wants.obstacles(node, *self.used(node.name, (wants.pod.metadata.uid,)))):
            return True
        return any(taint.effect == "PreferNoSchedule" and not wants.tolerates(taint) for taint in node.spec.taints)

    def suits(self, node: Node, pods: Sequence[Wants], without: Collection[str]) -> bool:
        """False when one of `SURE` keeps these pods from the node, once pods of the UIDs `without` are gone."""
        return not any(each.rule in SURE for each in obstacles_together(pods, node, self.used(node.name, without)))

    def used(self, node: str, without: Collection[str] = ()) -> Used:
        """By the pods on the node, those of these UIDs left out, in whose containers it is linear."""
        pods = self._pods.get(node, {})
        known = self._used.get(node)
        if known is None:
            known = self._used[node] = together(NOTHING_USED, map(self.count, pods.values()))
        left_out = [self.count(pod) for uid, pod in pods.items() if uid in without]
        if not left_out:
            return known
        amounts, taken = Counter(known[0]), known[2]
        for asked, _ in left_out:
            amounts.subtract(asked)
        if any(ports for _, ports in left_out):
            taken = frozenset().union(*(self.count(pod)[1] for uid, pod in pods.items() if uid not in without))
        return amounts, known[1] - len(left_out), taken
