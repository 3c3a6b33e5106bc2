"""What if is why, asked about a cluster in which the change has been made; and asking changes nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from dra_extender.api.decoding import encode
from dra_extender.insight.whatif.whatif import Changes, NodesLike
from dra_extender.scheduling.view import View
from tests.support.diagnosis.scenarios import POD, changed, scenes
from tests.support.diagnosis.scene import Scene
from tests.support.examples import examples
from tests.support.questions import diagnose, what_if


def state(view: View) -> Any:
    """All that decisions are made of."""
    ledger, inventory = view.ledger, view.cluster.inventory
    return (
        sorted(map(encode, view.cluster.nodes.values())),
        sorted(map(encode, inventory.slices())),
        sorted(map(encode, ledger.claims())),
        sorted(map(encode, view.pods)),
        sorted(map(encode, view.cluster.classes.values())),
        {pool: inventory.pools[pool] and set(ledger.in_use(pool)) for pool in inventory.pools},
        ledger.holds(),
    )


@st.composite
def hypothetical_changes(draw: st.DrawFn, view: View) -> Changes:
    nodes, pods = sorted(view.cluster.nodes), sorted(pod.metadata.key for pod in view.pods)
    some_nodes = st.lists(st.sampled_from(nodes), unique=True, max_size=2)
    added = draw(st.lists(st.tuples(st.sampled_from(nodes), st.integers(1, 2)), max_size=2))
    without = draw(st.lists(st.sampled_from(pods), unique=True, max_size=2))
    return Changes(
        add_nodes=tuple(NodesLike(*each) for each in added),
        without_pods=tuple(without),
        drain=tuple(draw(some_nodes)),
    )


@given(scene=scenes())
@settings(max_examples=examples(40))
def test_without_changes_the_answer_is_that_of_the_live_cluster(scene: Scene) -> None:
    view = scene.view()
    pod = view.pods.named("default", POD)
    assert pod is not None
    live = diagnose(view, pod)
    found = what_if(view, Changes())
    (outcome,) = found.outcomes
    event(outcome.verdict)
    assert found.complete
    assert outcome.now == outcome.node == (live.examples[0] if live.state == "fits" else "")
    assert outcome.verdict == ("fits" if live.state == "fits" else "does not fit")
    assert not outcome.displaced, "nothing is drained, so no pod moves"


@given(scene=scenes(), data=st.data())
@settings(max_examples=examples(40))
def test_asking_leaves_the_live_cluster_as_it_is(scene: Scene, data: st.DataObject) -> None:
    view = scene.view()
    before = state(view)
    changes = data.draw(hypothetical_changes(view))
    first = what_if(view, changes)
    assert state(view) == before
    assert what_if(view, changes) == first


@given(scene=scenes())
@settings(max_examples=examples(40))
def test_a_hypothetical_change_gives_the_result_of_the_real_one(scene: Scene) -> None:
    view = scene.view()
    for what, after in changed(scene):
        kind, _, name = what.rpartition(" ")
        if kind == "without":
            changes = Changes(without_pods=(f"default/{name}",))
        elif kind == "one more like" and not view.cluster.nodes[name].spec.unschedulable:
            changes = Changes(add_nodes=(NodesLike(name),))
        else:
            continue
        outcome = next(item for item in what_if(view, changes).outcomes if item.pod == f"default/{POD}")
        assert bool(outcome.node) == after.fits(POD), f"{what}: {outcome}"


@given(scene=scenes(), data=st.data())
@settings(max_examples=examples(40))
def test_pods_that_are_moved_are_those_of_the_drained_nodes_and_go_elsewhere(scene: Scene, data: st.DataObject) -> None:
    view = scene.view()
    changes = data.draw(hypothetical_changes(view))
    homes = {pod.metadata.key: pod.spec.node_name for pod in view.pods if pod.metadata.key not in changes.without_pods}
    outcomes = what_if(view, changes).outcomes
    moved = {outcome.pod: outcome.now for outcome in outcomes if outcome.displaced}
    assert moved == {pod: home for pod, home in homes.items() if home in changes.drain}
    assert not {outcome.node for outcome in outcomes} & set(changes.drain)
