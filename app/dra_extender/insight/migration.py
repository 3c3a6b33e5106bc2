"""What changes when device plugins give way to DRA: nodes that have both, claims of pods with extended resources, where
the pods fit, what ResourceQuotas charge, and the order of nodes to drain and switch.

Promises: pure; nothing changes, because pods are placed on a copy, as in a what-if. On a switched node the plugin
offers nothing, and devices provide the resource. Waiting pods get their places first. The next node is the first, by
number of pods, whose pods all fit elsewhere. If no node is left like that, pods of the smallest node wait until it is
back. Pods go to nodes that are not drained later, if they fit there. It runs in turns; `MOST_NODES` bounds the work.

A node whose slices have no device for the resource is assumed to publish as many devices as its plugin offers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Pod, requested
from dra_extender.api.decoding import convert, to_builtins
from dra_extender.api.events import Removed
from dra_extender.api.quantity import ratio
from dra_extender.api.resource import EXTENDED_RESOURCE_CLASS_PREFIX as IMPLICIT
from dra_extender.api.resource import DeviceClass
from dra_extender.insight.devicereport.listing import reporting
from dra_extender.insight.requests import InvalidRequestError
from dra_extender.insight.whatif.clustercopy import MOST_NODES, ClusterCopy, Placed, Placing, copied
from dra_extender.insight.whatif.whatif import by_priority, is_tied
from dra_extender.insight.why.waiting import pending_pods
from dra_extender.plaintext import counted
from dra_extender.scheduling.claims import known_claims
from dra_extender.scheduling.extended import NANO, Requests, class_names, is_extended, requests_of
from dra_extender.scheduling.turns import UNDECIDED, Turns
from dra_extender.scheduling.view import View

Json = dict[str, Any]


class NodeProvision(msgspec.Struct, frozen=True):
    """How a node offers the resource. `plugin`: allocatable. `devices`: that the class selects in its slices."""

    node: str
    resource: str
    plugin: int
    devices: int
    state: str


class Workload(msgspec.Struct, frozen=True):
    """Pods of a controller with equal claims. By pod, `now`: where it runs or fits; `after`: where it fits then."""

    namespace: str
    workload: str
    claim: Requests
    now: Mapping[str, Placed]
    after: Mapping[str, Placed]


class Switch(msgspec.Struct, frozen=True):
    """The node to drain. `moves`: of pods with devices. `waits`: they fit nowhere until it is back with its `needs`."""

    node: str
    moves: Mapping[str, str]
    waits: tuple[str, ...]
    needs: str


class QuotaCharge(msgspec.Struct, frozen=True):
    """What pods of the namespace are charged under `name`. ResourceQuotas charge claims under `claims_name`, too."""

    namespace: str
    name: str
    claims_name: str
    charged: int


class Migration(msgspec.Struct, frozen=True):
    """`classes`: by resource. `changed`: manifests of DeviceClasses that are missing, or lack extendedResourceName."""

    classes: Mapping[str, str]
    changed: tuple[Json, ...]
    nodes: tuple[NodeProvision, ...]
    workloads: tuple[Workload, ...]
    quotas: tuple[QuotaCharge, ...]
    order: tuple[Switch, ...]
    problems: tuple[str, ...]

    @property
    def harmless(self) -> bool:
        """No hardware is offered twice, and no pod loses its place."""
        pods = [(now, each.after[pod]) for each in self.workloads for pod, now in each.now.items()]
        lost = any(each.waits for each in self.order) or any(now.node and not after.node for now, after in pods)
        return not lost and all(each.state != "offered twice" for each in self.nodes)


def migrating(view: View, chosen: Mapping[str, str]) -> Turns[Migration]:
    """`chosen`: DeviceClasses of resources that no class provides. Raises InvalidRequestError in the first turn."""
    changed = list[Json]()
    amounts = [(f"pod {pod.metadata.key}", *each) for pod in view.pods for each in requested(pod).items()]
    for name, node in view.cluster.nodes.items():
        amounts += [(f"node {name}", key, amount.nano) for key, amount in node.status.allocatable.items()]
    amounts = [each for each in amounts if "/" in each[1] and (is_extended(each[1]) or each[1].startswith(IMPLICIT))]
    wanted = sorted({resource for _, resource, nano in amounts if nano > 0} | chosen.keys())
    classes = {name: item for name in wanted if (item := _class_for(view, name, chosen, changed)) is not None}
    fractions = [(where, f"{ratio(nano):g} of {key}") for where, key, nano in amounts if nano % NANO]
    problems = [f"{where} has {amount}: Kubernetes accepts whole numbers only" for where, amount in fractions]
    without = [name for name in wanted if name not in classes]
    problems += [f"{name}: no DeviceClass has this extendedResourceName: add --class {name}=CLASS" for name in without]
    copy = yield from copied(view)
    for item in classes.values():
        copy.put(item)
    for pod in [pod for pod in copy.pods if pod.metadata.deletion_timestamp]:
        copy.remove(pod)
    names = {resource: item.metadata.name for resource, item in classes.items()}
    provisions = yield from _provisions(copy, names, problems)
    users = [pod for pod in sorted(copy.pods, key=by_priority) if not pod.finished and copy.view.wanted(pod)]
    bare = sum(bool(pod.spec.node_name) and pod.metadata.controller is None for pod in users)
    problems += [f"{counted(bare, 'running pod')} without a controller: a drain deletes them for good"] if bare else []
    switching = _Switching(copy, provisions)
    yield from switching.place((yield from pending_pods(copy.view)))
    now, order = dict(switching.places), (yield from switching.switch())
    undecided = sum(not placed.decided for placed in switching.places.values())
    problems += [f"{counted(undecided, 'pod')} not decided: the work of one answer is limited"] if undecided else []
    workloads, quotas = _workloads(copy.view, users, now, switching.places), _charges(users, names)
    found = tuple(changed), tuple(provisions), tuple(workloads), tuple(quotas), order, tuple(problems)
    return Migration(names, *found)


def _class_for(view: View, resource: str, chosen: Mapping[str, str], changed: list[Json]) -> DeviceClass | None:
    """The class as it has to be; a manifest is added to `changed` if it is another one. A class or driver that is named
    like the resource of a node, such as gpu.nvidia.com for nvidia.com/gpu, provides it if no other is chosen.
    """
    known, implicit = view.cluster.classes, resource.removeprefix(IMPLICIT)
    provider = class_names(known.values()).get(resource) or (implicit if implicit != resource else "")
    name = provider or chosen.get(resource, ".".join(reversed(resource.split("/"))))
    item, spec = known.get(name), Json(extendedResourceName=resource)
    if provider:
        return item
    if resource not in chosen and not any(resource in node.status.allocatable for node in view.cluster.nodes.values()):
        return None  # anybody may name a resource in a pod
    other = item.spec.extended_resource_name if item is not None else None
    if resource in chosen and (item is None or other):
        problem = f"--class {resource}={name}: DeviceClass " + (f"provides {other}" if other else "not found")
        raise InvalidRequestError("", problem, "give RESOURCE=CLASS with a class without extendedResourceName")
    if item is None and any(driver == name for driver, _ in view.cluster.inventory.pools):
        spec["selectors"] = [{"cel": {"expression": f'device.driver == "{name}"'}}]
    elif item is None or other:
        return None
    changed.append(_manifest("DeviceClass", spec, {"name": name}))
    return (
        convert(DeviceClass, changed[-1])
        if item is None
        else replace(item, spec=replace(item.spec, extended_resource_name=resource))
    )


def _manifest(kind: str, spec: Json, metadata: Json) -> Json:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def _provisions(copy: ClusterCopy, names: Mapping[str, str], problems: list[str]) -> Turns[list[NodeProvision]]:
    devices, strange, found = Counter[tuple[str, str]](), set[str](), list[NodeProvision]()
    for device in (yield from reporting(copy.view)).devices:
        strange |= set() if device.classes else {device.driver}
        devices.update((device.node, name) for name in device.classes if device.state != "unusable")
    problems += [f"driver {driver}: no DeviceClass selects its devices" for driver in sorted(strange)]
    for node, (resource, name) in product(sorted(copy.cluster.nodes), names.items()):
        amount, own = copy.cluster.nodes[node].status.allocatable.get(resource), devices[node, name]
        plugin = amount.nano // NANO if amount is not None else 0
        if plugin or own:
            state = "DRA" if not plugin else "offered twice" if own else "plugin"
            found.append(NodeProvision(node, resource, plugin, own, state))
    return found


class _Switching:
    def __init__(self, copy: ClusterCopy, provisions: Iterable[NodeProvision]) -> None:
        self.places = {pod.metadata.uid: Placed(pod.spec.node_name) for pod in copy.pods}
        self._copy = copy
        self._tried = 0
        self._left: dict[str, set[str]] = {}
        """By node to switch: the resources of its plugin that its devices provide then. Pods avoid these nodes."""
        for each in provisions:
            if each.plugin:
                self._left.setdefault(each.node, set()).update({each.resource} if each.devices else ())

    def place(self, pods: Iterable[Pod], on: str = "") -> Turns[list[Pod]]:
        """Returns the pods that fit nowhere."""
        placing, pods = Placing(self._copy, MOST_NODES - self._tried, self._left), sorted(pods, key=by_priority)
        for pod in pods:
            placed = yield from placing.place(replace(pod, spec=replace(pod.spec, node_name="")), on)
            self.places[pod.metadata.uid] = placed or Placed(reason=UNDECIDED, decided=False)
            yield
        self._tried += placing.tried
        return [pod for pod in pods if not self.places[pod.metadata.uid].node]

    def switch(self) -> Turns[tuple[Switch, ...]]:
        copy, order = self._copy, list[Switch]()
        while self._left:
            copy.commit()
            ranked = sorted(self._left, key=lambda name: (len(copy.usage.on(name)), name))
            for number, name in enumerate((*ranked, ranked[0]), start=1):
                node, before = copy.cluster.nodes[name], dict(self.places)
                pods = [pod for pod in copy.usage.on(name) if copy.view.uses_devices(pod) or not is_tied(pod)]
                claims = [claim for pod in pods for claim in known_claims(pod, copy.cluster.ledger)]
                for pod in pods:
                    copy.evict(pod)
                copy.cluster.apply(Removed.of(node))
                waits = yield from self.place(pod for pod in pods if not is_tied(pod))
                if not waits or number > len(ranked) or self._tried >= MOST_NODES:
                    break
                yield from copy.revert()
                for claim in claims:
                    copy.put(claim)
                for pod in pods:
                    copy.put_pod(pod)
                copy.put(node)
                self.places = before
            users = [pod for pod in pods if copy.view.uses_devices(pod) and not is_tied(pod)]
            moves = {pod.metadata.key: target for pod in users if (target := self.places[pod.metadata.uid].node)}
            provided, keys = self._left.pop(name), tuple(pod.metadata.key for pod in waits)
            order.append(Switch(name, moves, keys, "" if provided else "DRA driver"))
            rest = {key: amount for key, amount in node.status.allocatable.items() if key not in provided}
            copy.put(replace(node, status=replace(node.status, allocatable=rest)))
            yield from self.place([pod for pod in pods if is_tied(pod)], name)
            again = (*waits, *(yield from pending_pods(copy.view)))
            yield from self.place({pod.metadata.uid: pod for pod in again}.values())
        return tuple(order)


def _workloads(
    view: View, pods: Iterable[Pod], now: Mapping[str, Placed], after: Mapping[str, Placed]
) -> Iterator[Workload]:
    groups: dict[tuple[str, str, Requests], list[Pod]] = {}
    for pod in pods:
        owner, wanted = pod.metadata.controller, view.wanted(pod)
        if wanted is not None:
            creator = f"{owner.kind}/{owner.name}" if owner is not None else f"Pod/{pod.metadata.name}"
            claim = requests_of(pod, wanted, frozenset(wanted.classes))
            groups.setdefault((pod.metadata.namespace, creator, claim), []).append(pod)
    for key, members in groups.items():
        yield Workload(*key, *({pod.metadata.key: each[pod.metadata.uid] for pod in members} for each in (now, after)))


def _charges(pods: Iterable[Pod], names: Mapping[str, str]) -> Iterator[QuotaCharge]:
    """Rules: Kubernetes 1.37, pkg/quota/v1/evaluator/core/resource_claims.go and pods.go."""
    charged = Counter[tuple[str, str]]()
    for pod in pods:
        charged.update({(pod.metadata.namespace, key): -(-nano // NANO) for key, nano in requested(pod).items()})
    claims = {resource: f"{name}.deviceclass.resource.k8s.io/devices" for resource, name in names.items()}
    for namespace, key in sorted(each for each in charged if each[1] in names):
        yield QuotaCharge(namespace, f"requests.{key}", claims[key], charged[namespace, key])


def plan(found: Migration, *, templates: bool) -> tuple[list[Json], list[str]]:
    """(objects to apply, what else to do). `templates`: for a cluster without the feature gate DRAExtendedResource."""
    if not templates:
        todo = [f"{pods.namespace} {pods.workload}: nothing to change" for pods in found.workloads]
        return [*found.changed], [*todo, *("ResourceQuotas: nothing to change" for _ in found.quotas[:1])]
    objects = [each for each in found.changed if "selectors" in each["spec"]]  # the API server drops the other field
    todo = [f"{each.namespace} ResourceQuotas: add {each.claims_name} ({each.charged} in use)" for each in found.quotas]
    for number, pods in enumerate(found.workloads, start=1):
        meta = {"name": f"{pods.workload.partition('/')[2][:200]}-devices-{number}", "namespace": pods.namespace}
        spec = {"spec": {"devices": {"requests": to_builtins(pods.claim.requests)}}}
        objects.append(_manifest("ResourceClaimTemplate", spec, meta))
        entry = f"{{name: devices, resourceClaimTemplateName: {meta['name']}}}"
        todo.append(f"{pods.namespace} {pods.workload}: resourceClaims: [{entry}]")
        for each in pods.claim.mappings:
            uses = f"{{name: devices, request: {each.request_name}}}"
            todo.append(
                f"  container {each.container_name}: resources.claims: [{uses}] instead of {each.resource_name}"
            )
    return objects, todo
