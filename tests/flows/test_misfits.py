"""Each misfit waits in a running cluster, its diagnosis says why, and with the remedy applied it runs."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dra_extender.insight.why.diagnosis import ADMIN_LABEL
from dra_extender.insight.why.report import Change, Diagnosis, Remedy
from embedded_cluster.cluster import EmbeddedCluster
from tests.support.diagnosis.misfits import CLUSTERS, MISFITS, POD, Misfit
from tests.support.diagnosis.scene import apply, apply_to_node
from tests.support.embedded.manifests import with_classes
from tests.support.flows.flow import Flow, flowing
from tests.support.patience import until
from tests.support.questions import diagnose

pytestmark = pytest.mark.slow

Json = dict[str, Any]

SHARDS = 4


@pytest.fixture
async def flow(request: pytest.FixtureRequest) -> AsyncIterator[Flow]:
    """A cluster of the misfits, service and scheduler running."""
    async with EmbeddedCluster(nodes=0, fabric_delay=0.1) as cluster:
        cluster.store.create_all(CLUSTERS[getattr(request, "param", MISFITS[0].place)]())
        async with flowing(cluster) as running:
            yield running


@pytest.mark.parametrize(
    ("flow", "place", "shard"),
    [(place, place, shard) for place in CLUSTERS for shard in range(SHARDS)],
    indirect=["flow"],
)
async def test_with_the_remedy_the_pod_runs(flow: Flow, place: str, shard: int) -> None:
    played = [misfit for misfit in MISFITS if misfit.place == place and not misfit.pure][shard::SHARDS]
    assert played
    for number, misfit in enumerate(played):
        namespace = f"misfit-{number}"
        await _remedied(flow, misfit, namespace)
        runs = flow.cluster.running(namespace, POD)
        assert runs == bool(misfit.remedy or misfit.among), misfit.name
        await _clean(flow, namespace)


async def _remedied(flow: Flow, misfit: Misfit, namespace: str) -> None:
    """The misfit waits, and what its diagnosis says that helps is done."""
    cluster = flow.cluster
    meta = {"name": namespace, "labels": {ADMIN_LABEL: "true"}}
    await cluster.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": meta}])
    await cluster.apply(with_classes(misfit.before(namespace)))
    names = [holder.name for holder in misfit.holders]
    await cluster.wait_until(lambda: cluster.running(namespace, *names), what=f"{misfit.name}: {names} running")
    documents = with_classes(misfit.after(namespace))
    await cluster.apply(documents)
    found = await until(lambda: _diagnosed(flow, namespace, misfit), f"the diagnosis of {misfit.name}")
    assert found is not None
    remedy = next((r for r in found.remedies if r.short == misfit.among.replace("NAMESPACE", namespace)), None)
    remedy = remedy or next(iter(found.remedies), None)
    if remedy is not None:
        await _apply(flow, remedy, documents, namespace)
        await cluster.wait_until(
            lambda: cluster.running(namespace, POD), what=f"{misfit.name}: running after {remedy.text!r}"
        )


def _diagnosed(flow: Flow, namespace: str, misfit: Misfit) -> Diagnosis | None:
    """What the service says, once it knows all that there is."""
    assert flow.service is not None
    view = flow.service.replica.view
    pod = view.pods.named(namespace, POD)
    found = diagnose(view, pod) if pod is not None else None
    return found if found is not None and found.rule == misfit.rule else None


async def _apply(flow: Flow, remedy: Remedy, documents: list[Json], namespace: str) -> None:
    """As people do: what cannot be changed is deleted and made again."""
    made = copy.deepcopy(documents)
    written = [change for change in remedy.changes if change.object != "Node" and change.op not in ("wait", "delete")]
    for change in remedy.changes:
        if change in written:
            apply(made, change)
        else:
            await _done(flow, change)
    if written:
        await _gone(flow, "pods", POD, namespace)
    for change in written:
        if change.object != "Pod":
            await _gone(flow, f"{change.object.lower()}s", change.name, namespace)
    if written:
        await flow.cluster.apply(made)


async def _done(flow: Flow, change: Change) -> None:
    if change.kind == "uncordon":
        stored = copy.deepcopy(flow.cluster.store.get("nodes", change.name))
        assert stored is not None
        apply_to_node(stored, unschedulable=False)
        flow.cluster.store.update(stored)
    else:
        assert (change.object, change.op) in (("Pod", "wait"), ("Pod", "delete")), change
        await flow.cluster.delete("pods", change.name, change.namespace)


async def _gone(flow: Flow, plural: str, name: str, namespace: str) -> None:
    await flow.cluster.delete(plural, name, namespace)
    await until(lambda: flow.cluster.store.get(plural, name, namespace) is None, f"{plural} {name} gone")


async def _clean(flow: Flow, namespace: str) -> None:
    for pod in flow.cluster.pods(namespace):
        await _gone(flow, "pods", pod.metadata.name, namespace)
    for claim in flow.cluster.claims(namespace):
        await _gone(flow, "resourceclaims", claim.metadata.name, namespace)


async def test_kubectl_describe_says_what_to_change(flow: Flow) -> None:
    misfit = MISFITS[0]
    await flow.cluster.apply(misfit.after("default"))
    note = "claim c: 9 devices of class a100 requested, no node has more than 8; count <= 8 (then it fits 2 nodes)"
    told = [await _told(flow, name, note) for name in (POD, "c")]
    assert told == [note] * 2


async def _told(flow: Flow, name: str, note: str) -> str:
    """The last note of the events that say why the pod or claim waits, once this one is among them."""

    def notes() -> list[str]:
        return [text for reason, text in flow.cluster.events("default", name) if reason == "DevicesUnavailable"]

    await until(lambda: note in notes(), lambda: f"{note!r} after {notes()}")
    return notes()[-1]
