"""A redacted diagnosis names no pod or claim of another namespace, in any field of any of its structs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec
import pytest
from msgspec import inspect

from dra_extender.insight.why.redaction import redacted
from dra_extender.insight.why.report import Change, Diagnosis, Preempted, Remedy
from dra_extender.insight.why.text import fully, shortly
from dra_extender.scheduling.noderules import Obstacle
from dra_extender.scheduling.reader import ADMINISTRATOR, HIDDEN, Reader
from tests.support.diagnosis.misfits import MISFITS, POD, Misfit
from tests.support.diagnosis.strangers import SECRET, among_strangers

Paths = set[str]
TENANT: Final = Reader("default")
MARK: Final = f"{SECRET}/x"

OWN: Final = {
    # the pod and its claims
    "pod", "uid", "claim", "claims.claim", "claims.entry", "claims.template", "groups.requests.tally.claim",
    "groups.constraints.claim", "statements.claim", "statements.label", "statements.requested.claim",
    "statements.requested.label", "statements.places.requested.claim", "statements.places.requested.label",
    # the pods of its gang
    "statements.gang", "statements.pod", "statements.places.pod", "statements.labels", "statements.places.devices",
    # sentences about the pod, its claims, their selectors and requests
    "statements.text", "statements.cause", "groups.reason", "groups.cause", "statements.problem", "unchecked",
    "statements.clause",
    "statements.scope.claims", "preemption.reason", "remedies.yaml",
    # made from the redacted statements
    "summary",
}  # fmt: skip
"""Fields about the pod itself."""
CLUSTER_WIDE: Final = {
    # nodes, devices, pools, classes, taints, labels
    "examples", "claims.allocated", "groups.nodes", "groups.example", "groups.obstacles.what",
    "groups.obstacles.asked", "groups.pools.driver", "groups.pools.pool", "groups.pools.problem", "statements.pools",
    "statements.scope.nodes", "statements.places.node", "statements.node", "statements.device",
    "statements.obstacles.what", "statements.obstacles.asked", "remedies.example", "preemption.node",
    "preemption.devices",
}  # fmt: skip
"""Fields about objects without a namespace."""
DEEP: Final = ("groups.requests.tally.", "groups.constraints.", "placement.", "statements.requested.",
               "statements.places.requested.", "statements.taints.", "statements.capacities.", "statements.counters.",
               "statements.clauses", "statements.values", "statements.attribute", "statements.constraints")  # fmt: skip
"""What starts so is about requests, their selectors, devices and costs."""


def filled(kind: inspect.Type) -> list[Any]:
    """A value for each alternative of the type, in which each text is the name of an object of another namespace."""
    match kind:
        case inspect.StructType(cls) if cls is Obstacle:
            return [Obstacle("host port", MARK, MARK, MARK)]
        case inspect.StructType(cls) if cls is Change:
            return [Change("pod deleted", "Pod", MARK, SECRET, "delete", MARK, MARK, MARK)]
        case inspect.StructType(cls):
            return [cls(**{field.name: filled(field.type)[-1] for field in kind.fields})]
        case inspect.UnionType(types):
            return [value for each in types for value in filled(each)]
        case inspect.VarTupleType(item):
            return [tuple(filled(item))]
        case inspect.TupleType(items):
            return [tuple(filled(item)[-1] for item in items)]
        case inspect.LiteralType(values):
            return [values[0]]
        case inspect.IntType() | inspect.FloatType() | inspect.BoolType():
            return [1]
        case inspect.NoneType():
            return []
        case _:
            return [MARK]


def marked(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the fields that have the name."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from marked(each, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from marked(each, path)
    elif SECRET in str(value):
        yield path


def test_every_field_is_redacted_or_known_to_be_about_the_pod_or_the_cluster() -> None:
    """A new field fails here until it is redacted, or is listed above with what it is about."""
    (whole,) = filled(inspect.type_info(Diagnosis))
    before, after = (set(marked(msgspec.to_builtins(each))) for each in (whole, redacted(whole, TENANT)))
    holders = {"groups.requests.holders.claim", "statements.holders.pods", "remedies.changes.name", "remedies.text"}
    assert holders | {"groups.obstacles.has", "statements.obstacles.has", "preemption.pods"} <= before - after
    found = {path.replace("statements.reasons.", "statements.") for path in after}
    assert {path for path in found - OWN - CLUSTER_WIDE if not path.startswith(DEEP)} == set()
    assert before >= OWN | CLUSTER_WIDE


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.name)
def test_no_answer_about_a_misfit_names_a_pod_of_another_namespace(misfit: Misfit) -> None:
    found = redacted(among_strangers(misfit).diagnose(POD), TENANT)
    texts = msgspec.json.encode(found).decode(), fully(found), shortly(found)
    assert [text for text in texts if SECRET in text] == []


def test_an_administrator_reads_everything() -> None:
    found = (among_strangers(misfit).diagnose(POD) for misfit in MISFITS)
    named = list(islice((each for each in found if SECRET in fully(each)), 6))
    assert [redacted(each, ADMINISTRATOR) is each for each in named] == [True] * 6


def _change(namespace: str, name: str, op: Any = "wait", path: str = "") -> Change:
    return Change("pod ends", "Pod", name, namespace, op, path)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([_change("secret", "x")], "wait for 1 pod of another namespace"),
        ([_change("default", "a"), _change("secret", "x")], "wait for pod default/a and 1 pod of another namespace"),
        ([_change("secret", "x", "delete"), _change("secret", "y", "delete")], "delete 2 pods of other namespaces"),
        (
            [_change("default", "p", "replace", "/spec/nodeSelector/zone"), _change("secret", "x")],
            "change spec.nodeSelector of pod p and wait for 1 pod of another namespace",
        ),
        (
            [Change("node added", "Node", "n-like", op="create", like="n"), _change("secret", "x")],
            "create node n-like and wait for 1 pod of another namespace",
        ),
    ],
)
def test_a_remedy_counts_the_objects_of_other_namespaces(changes: list[Change], text: str) -> None:
    remedy = Remedy(f"delete {SECRET}/x", SECRET, tuple(changes), 1, "n", commands=(f"kubectl delete {SECRET}",))
    found = Diagnosis(pod="default/p", uid="u", state="refused", rule="in use", summary="", remedies=(remedy,))
    (seen,) = redacted(found, TENANT).remedies
    assert (seen.text, seen.short, seen.commands) == (text, text, ())


def test_whom_a_pod_would_preempt_is_counted() -> None:
    found = Diagnosis(
        pod="default/p", uid="u", state="refused", rule="in use", summary="",
        preemption=Preempted((f"{SECRET}/x", "default/a"), "n1", ("d/p/gpu-0",)),
    )  # fmt: skip
    seen = redacted(found, TENANT)
    assert seen.preemption == Preempted((HIDDEN, "default/a"), "n1", ("d/p/gpu-0",))
    told = "would preempt pod default/a and 1 pod of another namespace on node n1 for device d/p/gpu-0"
    assert told in fully(seen, width=200)
