"""PodGroups as commands read them: from a cluster, from a snapshot, and without the permission."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dra_extender.cli.cluster import read, view_of
from dra_extender.cli.output import YES
from dra_extender.cli.questions import Source
from dra_extender.cli.snapshot import take
from dra_extender.insight.whatif.clustercopy import copied
from tests.support.counting import counted_turns
from tests.support.service.podgroups import coscheduled, gang, serve_pod_groups
from tests.support.service.world import World, populated


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    serve_pod_groups(monkeypatch)
    async with populated() as made:
        made.store.create(gang(2))
        made.store.create(coscheduled(5))
        yield made


async def test_the_groups_of_a_cluster_are_in_its_snapshot_and_in_its_copy(
    world: World, source: Source, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.json"
    assert await take(file, source) == YES
    live, stored = await read(source), await read(Source(from_file=str(file)))
    groups = list(live.pod_groups)
    assert [group.min_count for group in groups] == [2, 5]
    assert list(stored.pod_groups) == groups
    assert list(counted_turns(copied(view_of(live))).result.cluster.pod_groups) == groups


async def test_a_user_who_may_not_read_groups_reads_the_rest(world: World, source: Source) -> None:
    world.api.access.policy = lambda attributes: attributes.resource != "podgroups"
    cluster = await read(source)
    assert (list(cluster.pod_groups), list(cluster.nodes)) == ([], world.nodes)
