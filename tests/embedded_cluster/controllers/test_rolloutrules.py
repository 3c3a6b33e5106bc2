"""How many pods of which template there are next while a new one takes over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.decoding import convert
from embedded_cluster.controllers import rollouts
from embedded_cluster.controllers.podsets import HASH_LABEL, template_hash
from embedded_cluster.controllers.rollouts import REVISION, Steps
from embedded_cluster.objects import Deployment, ReplicaSet
from tests.embedded_cluster.controllers.test_replicas import deployment

Json = dict[str, Any]


def wanted(count: int, *, image: str = "new", limit: int = 10, paused: bool = False, **strategy: Any) -> Deployment:
    made = deployment(count)
    made["spec"] |= {"strategy": strategy, "revisionHistoryLimit": limit, "paused": paused}
    made["spec"]["template"]["spec"]["containers"][0]["image"] = image
    made["metadata"] |= {"uid": "d", "generation": 1}
    return convert(Deployment, made)


def made(
    image: str, count: int, available: int | None = None, *, revision: int = 1, pods: int | None = None
) -> ReplicaSet:
    """The set of the template with this image; its pods are available unless said otherwise."""
    digest = template_hash(wanted(1, image=image).spec.template)
    available = count if available is None else available
    return convert(
        ReplicaSet,
        {
            "metadata": {"name": image, "labels": {HASH_LABEL: digest}, "annotations": {REVISION: str(revision)}},
            "spec": {"replicas": count},
            "status": {"replicas": count if pods is None else pods, "availableReplicas": available},
        },
    )


def told(steps: Steps) -> str:
    parts = [f"create {steps.create}"] if steps.create is not None else []
    parts += [f"{found.metadata.name} {count}" for found, count in steps.scale]
    return ", ".join([*parts, *(f"delete {found.metadata.name}" for found in steps.delete)])


ROLLING: Json = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
NEVER_LESS: Json = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
RECREATE: Json = {"type": "Recreate"}


@pytest.mark.parametrize(
    ("strategy", "sets", "expected"),
    [
        (ROLLING, [], "create 4"),
        (ROLLING, [made("new", 2)], "new 4"),
        (ROLLING, [made("new", 4)], ""),
        (ROLLING, [made("new", 6)], "new 4"),
        (ROLLING, [made("old", 4)], "create 1"),
        (ROLLING, [made("old", 4), made("new", 1, 0)], "old 3"),
        (ROLLING, [made("old", 3), made("new", 2, 0)], ""),
        (ROLLING, [made("old", 3), made("new", 1, 1)], "old 2, new 2"),
        (ROLLING, [made("old", 4, 1), made("new", 1, 0)], "old 3"),
        (NEVER_LESS, [made("old", 4), made("new", 1, 0)], ""),
        (NEVER_LESS, [made("old", 4), made("new", 1, 1)], "old 3"),
        (ROLLING, [made("older", 1), made("old", 3, revision=2), made("new", 1, 0, revision=3)], "older 0"),
        (RECREATE, [made("old", 4)], "create 0, old 0"),
        (RECREATE, [made("old", 0, 0, pods=1), made("new", 0)], ""),
        (RECREATE, [made("old", 0), made("new", 0)], "new 4"),
    ],
    ids=[
        "the first set",
        "more are wanted",
        "all is well",
        "fewer are wanted",
        "one more than wanted comes first",
        "one fewer than wanted may be there",
        "and then one waits for those that come",
        "both at once when it came",
        "those that are not available go at once, no more than may be gone",
        "nobody goes before its successor is there",
        "and then it does",
        "the oldest go first",
        "Recreate ends the old ones",
        "and waits for their pods",
        "before it makes new ones",
    ],
)
def test_the_next_steps(strategy: Json, sets: Sequence[ReplicaSet], expected: str) -> None:
    assert told(rollouts.steps(wanted(4, **strategy), sets)) == expected


def test_as_many_old_sets_as_wanted_are_kept() -> None:
    old = [made(f"old{number}", 0, revision=number) for number in (3, 1, 2)]
    assert told(rollouts.steps(wanted(1, limit=1), [*old, made("new", 1, revision=4)])) == "delete old1, delete old2"


def test_a_paused_deployment_keeps_its_template_and_follows_its_size() -> None:
    assert told(rollouts.steps(wanted(3, paused=True), [made("old", 2)])) == "old 3"
    assert told(rollouts.steps(wanted(3, paused=True), [])) == ""


def test_what_a_restart_writes_into_the_template_makes_another_set() -> None:
    before = wanted(1).spec.template
    metadata = msgspec.structs.replace(before.metadata, annotations={"kubectl.kubernetes.io/restartedAt": "now"})
    assert template_hash(before) != template_hash(msgspec.structs.replace(before, metadata=metadata))


amounts = st.one_of(st.integers(0, 5), st.integers(0, 100).map(lambda percent: f"{percent}%"))


@given(count=st.integers(1, 12), surge=amounts, unavailable=amounts, data=st.data())
def test_a_rollout_ends_and_keeps_to_its_bounds_whenever_pods_come_and_go(
    count: int, surge: int | str, unavailable: int | str, data: st.DataObject
) -> None:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    goal = wanted(count, type="RollingUpdate", rollingUpdate=rolling)
    most, fewest = count + rollouts.bounds(goal)[0], count - rollouts.bounds(goal)[1]
    sets = {"old": made("old", count)}
    for _ in range(20 * count):
        steps = rollouts.steps(goal, list(sets.values()))
        if steps.create is not None:
            sets["new"] = made("new", steps.create, 0, revision=2)
        for found, replicas in steps.scale:
            name = found.metadata.name
            sets[name] = made(name, replicas, min(found.status.available_replicas, replicas))
        assert sum(found.spec.replicas for found in sets.values()) <= most
        assert sum(found.status.available_replicas for found in sets.values()) >= fewest
        new = sets.get("new")
        if new is not None and new.status.available_replicas < new.spec.replicas:
            come = data.draw(st.integers(1, new.spec.replicas - new.status.available_replicas))
            sets["new"] = made("new", new.spec.replicas, new.status.available_replicas + come, revision=2)
    assert {name: found.spec.replicas for name, found in sets.items()} == {"old": 0, "new": count}
