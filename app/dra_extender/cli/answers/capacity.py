"""The answers of `headroom`, `whatif`, `simulate`, `compact` and `migrate`: what fits now, and after what changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import typer
from msgspec.structs import replace

from dra_extender.api.core import PodDisruptionBudget
from dra_extender.api.features import FeatureGates
from dra_extender.api.resource import ResourceClaim
from dra_extender.cli.answers.answer import answered, printed, unanswerable
from dra_extender.cli.answers.why import drafts, known_pod
from dra_extender.cli.cluster import read, view_of
from dra_extender.cli.output import NO, YES, UnanswerableError, table, terminal_width
from dra_extender.cli.questions import CompactOptions, HeadroomOptions, MigrateOptions, SimulateOptions, WhatIfOptions
from dra_extender.insight.compaction import Compaction, EvictionRules, request_of_claims, request_of_gang
from dra_extender.insight.headroom import GangShape, class_request, measuring
from dra_extender.insight.manifests import Draft, claims_of, hypothetical_objects, objects
from dra_extender.insight.migration import Migration, migrating, plan
from dra_extender.insight.requests import InvalidRequestError
from dra_extender.insight.whatif.clustercopy import Placed
from dra_extender.insight.whatif.simulation import request_of, simulation
from dra_extender.insight.whatif.whatif import Changes, NodesLike, simulating
from dra_extender.insight.why.text import WIDTH
from dra_extender.plaintext import wrapped
from dra_extender.scheduling.extended import Requests
from dra_extender.scheduling.preemption.budgets import BudgetsByNamespace
from dra_extender.scheduling.turns import run_at_once
from dra_extender.service.addresses import names_in

SCHEDULER: Final = "dra-scheduler"
"""The scheduler whose pods `compact` may evict by default."""


async def answer_headroom(given: HeadroomOptions) -> int:
    if bool(given.device_class) == bool(given.filename):
        raise typer.BadParameter("name a DeviceClass, or a file with -f", param_hint="CLASS")
    with unanswerable():
        claims: Sequence[ResourceClaim] = claims_of(given.filename) if given.filename else []
        cluster = await read(given)
        view = view_of(cluster)
        if given.filename:
            what = f"pods with {request_of_claims(view, given.filename, claims).name}"
        else:
            what, claims = class_request(view, given.device_class or "", given.count)
    if given.topology and not given.gang_size:
        raise typer.BadParameter("needs --gang-size", param_hint="--topology")
    gang = GangShape(given.gang_size, given.topology) if given.gang_size else None
    found = run_at_once(measuring(view, what, claims, gang))
    status = YES if (found.fits if found.gangs is None else found.gangs) else NO
    return printed(answered(found, given.output, lambda: wrapped(found.lines(), terminal_width())), status, cluster)


async def answer_what_if(given: WhatIfOptions) -> int:
    if given.pod and given.filename:
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    namespace = given.namespace or given.default_namespace()
    schedulers = names_in(given.scheduler_names)
    with unanswerable():
        written = await drafts(given, given.filename, namespace) if given.filename else None
        added = tuple(map(added_node, given.add_node or ()))
        files = given.with_file or ()
        hypothetical = [item for file in files for item in hypothetical_objects(file, namespace)]
        cluster = await read(given)
        pods = [Draft(known_pod(cluster, given.pod, namespace), ())] if given.pod else written
        changes = Changes(
            add_nodes=added,
            without_pods=tuple(known_pod(cluster, name, namespace).metadata.key for name in given.without_pod or ()),
            drain=tuple(given.drain or ()),
        )
        found = run_at_once(simulating(view_of(cluster, schedulers), changes, pods, hypothetical))
    status = YES if all(outcome.node for outcome in found.outcomes) and not found.left_out else NO
    return printed(answered(found, given.output, lambda: wrapped(found.lines(), terminal_width())), status, cluster)


def added_node(text: str) -> NodesLike:
    """Reads `like=NODE,count=N`, or `nodepool=NAME`; one node without a count. Raises ValueError."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    count, likes = parts.pop("count", "1"), [*parts.values()]
    if parts.keys() not in ({"like"}, {"nodepool"}) or not likes[0] or not (count.isascii() and count.isdigit()):
        raise ValueError(f"--add-node {text}: expected like=NODE,count=N or nodepool=NAME,count=N")
    return NodesLike(likes[0], int(count))


async def answer_simulate(given: SimulateOptions) -> int:
    with unanswerable():
        documents = objects(given.filename)
        if len(documents) != 1:
            raise ValueError(f"{given.filename} has {len(documents)} objects: give one request")
        cluster = await read(given)
    schedulers = names_in(given.scheduler_names)
    try:
        request = request_of(msgspec.json.encode(documents[0]))
        found = run_at_once(simulation(view_of(cluster, schedulers), request))
    except InvalidRequestError as problem:
        raise UnanswerableError(f"{given.filename}: {problem.sentence}") from None
    return printed(answered(found, given.output, str), NO if found.least is None else YES, cluster)


async def answer_compact(given: CompactOptions) -> int:
    if bool(given.pod) == bool(given.filename):
        raise typer.BadParameter("name a pod, or a file with -f", param_hint="POD")
    with unanswerable():
        claims = claims_of(given.filename) if given.filename else []
        cluster = await read(given, evictions=True)
        for key, found in cluster.undecodable.items():
            if key.kind == PodDisruptionBudget.__name__:
                raise ValueError(f"{key}: {found.problem}")
        view, own = view_of(cluster), ""
        if given.pod:
            pod = known_pod(cluster, given.pod, given.namespace or given.default_namespace())
            request, own = request_of_gang(view, pod), pod.spec.scheduler_name
        else:
            request = request_of_claims(view, given.filename, claims)
    rules = EvictionRules(frozenset(given.scheduler_name or (own or SCHEDULER,)), BudgetsByNamespace(cluster.budgets))
    advice = Compaction(request, rules).advice()
    text = answered(advice, given.output, lambda: wrapped(advice.lines(), WIDTH))
    return printed(text, YES if advice.moves or advice.fits else NO, cluster)


async def answer_migrate(given: MigrateOptions) -> int:
    chosen = dict(each.partition("=")[::2] for each in given.device_class or ())
    # Without the gate, pods get claims from templates: with the same requests.
    with unanswerable():
        cluster = await read(replace(given, feature_gates=f"{given.feature_gates},DRAExtendedResource=true"))
        found = run_at_once(migrating(view_of(cluster), chosen))
    status = YES if found.harmless else NO
    if given.what == "check":
        return printed(answered(found, given.output, lambda: "\n".join(_tables(found)).rstrip()), status, cluster)
    items, todo = plan(found, templates=not FeatureGates.parse(given.feature_gates).DRAExtendedResource)
    todo += [f"then drain {each.node}, remove its plugin, and uncordon it" for each in found.order]
    made = {"apiVersion": "v1", "kind": "List", "items": items}
    text = answered(made, "json" if given.output == "json" else "yaml", str)
    notes = "" if given.output == "json" else wrapped([f"# {line}" for line in todo], 0) + "\n"
    return printed(notes + text, status, cluster)


_TABLES: Final = {
    "nodes": ("node", "resource", "plugin", "devices", "state"),
    "workloads": ("namespace", "workload", "claim", "now", "after"),
    "quotas": ("namespace", "name", "claims_name", "charged"),
    "order": ("node", "moves", "waits", "needs"),
}


def _tables(found: Migration) -> Iterator[str]:
    if not (found.nodes or found.workloads):
        yield "No node and no pod has an extended resource that a DeviceClass provides."
    for field, columns in _TABLES.items():
        rows = [[_cell(getattr(row, name)) for name in columns] for row in getattr(found, field)]
        head = [name.upper().replace("_", " ") for name in columns]
        yield from (*table(head, rows, width=terminal_width()), "") if rows else ()
    yield wrapped([f"problem: {each}" for each in found.problems], terminal_width())


def _cell(value: object) -> str:
    if isinstance(value, Requests):
        exact = [each.exactly for each in value.requests if each.exactly is not None]
        return ", ".join(f"{each.count} x {each.device_class_name}" for each in exact)
    if isinstance(value, Mapping):
        nodes = Counter(each.node or each.reason if isinstance(each, Placed) else each for each in value.values())
        return ", ".join(f"{node} ({count})" for node, count in nodes.items())
    return ", ".join(value) if isinstance(value, tuple) else str(value)
