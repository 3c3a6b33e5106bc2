"""Filter calls with whole Node objects: cluster-autoscaler asks about nodes that it may add.

Promises: nothing is remembered of such a call. A node that does not exist counts with the labels, taints and
allocatable resources of its object, without pods, and with the devices of slices that apply to it by their node
selector, or to all nodes. The pod is decided on alone, also if it belongs to a gang. A call about existing nodes only
is refused: it comes from a kube-scheduler with the wrong setting.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
from msgspec.structs import replace

from dra_extender.api.core import Node, Pod
from dra_extender.api.decoding import DecodeError, decode
from dra_extender.api.extender import NEEDS_NAMES, ExtenderArgs, ExtenderFilterResult, ExtenderNodesResult, NodeList
from dra_extender.devices.readonly import ChangedCluster
from dra_extender.scheduling.feasibility import NodeStatuses, node_statuses, pre_filter
from dra_extender.scheduling.noderules import NOTHING_USED
from dra_extender.scheduling.turns import PORTION, UNDECIDED, QueryBudget, Turns
from dra_extender.scheduling.view import View


def on_whole_nodes(view: View, args: ExtenderArgs) -> Turns[ExtenderFilterResult]:
    """The answer to a call without `NodeNames`."""
    items, given = args.Nodes.items if args.Nodes is not None else (), dict[str, tuple[Node, msgspec.Raw]]()
    for raw in items or ():
        try:
            node = decode(Node, raw)
            problem = f"Node {node.name!r} needs a name of its own" if not node.name or node.name in given else ""
        except DecodeError as error:
            problem = str(error)
        if problem:
            return ExtenderFilterResult(Error=f"dra-extender: filter request: {problem}")
        given[node.name] = node, raw
        yield
    if all(name in view.cluster.nodes for name in given):
        return ExtenderFilterResult(Error=NEEDS_NAMES)
    budget, names, refused = QueryBudget(view), list(given), dict[str, str]()
    for start in range(0, len(names), PORTION):
        portion = [given[name][0] for name in names[start : start + PORTION]]
        found = yield from budget.turn(partial(_decide, pod=args.Pod, nodes=portion))
        if found is not None and found.error:
            return ExtenderFilterResult(Error=found.error)
        refused |= found.refused if found is not None else {node.name: UNDECIDED for node in portion}
        yield
    fits = {name: raw for name, (_, raw) in given.items() if name not in refused}
    nodes = NodeList(tuple(fits.values()))
    return ExtenderNodesResult(NodeNames=list(fits), FailedAndUnresolvableNodes=refused, Nodes=nodes)


def _decide(view: View, pod: Pod, nodes: Iterable[Node]) -> NodeStatuses:
    """On the state with those of these nodes that do not exist."""
    new = {node.name: node for node in nodes if node.name not in view.cluster.nodes}
    wants = view.wants(pod)
    view.decisions.budget.spend(wants.cost * len(new))
    obstacles = {name: next(wants.obstacles(node, *NOTHING_USED), None) for name, node in new.items()}
    refused = {
        name: "the node does not suit the pod: " + " ".join(dict.fromkeys((each.rule, each.what))).rstrip()
        for name, each in obstacles.items()
        if each is not None
    }
    free = view.with_pod(pod)
    added = replace(free.with_state(free.overlay().with_nodes(new.values())), cluster=ChangedCluster(view.cluster, new))
    found = node_statuses(added, pre_filter(added, pod), [node.name for node in nodes if node.name not in refused])
    return replace(found, refused={**found.refused, **refused})
