"""The protocol in which gangs come: what is counted, that everything is given back, and what a missed goal is."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from bench.placement.gangs import (
    ALL,
    OURS,
    SHOWN,
    SIZE,
    WAYS,
    Jobs,
    Played,
    Racks,
    affinity,
    missed,
    place,
    random_rack,
    table,
)


def room(racks: Racks, free: int) -> None:
    """Leave this number of GPUs free in each rack."""
    for rack in sorted(set(racks.racks)):
        nodes = [node for node, name in enumerate(racks.racks) if name == rack]
        for node in nodes:
            racks.free[node] = 0
        racks.free[nodes[0]] = free


def test_random_jobs_fill_the_cluster_as_far_as_asked_for() -> None:
    racks = Racks(Random(1))
    jobs = Jobs(racks, 70)
    for _ in range(3):
        jobs.change()
        assert sum(racks.free) == ALL - ALL * 70 // 100
        assert min(racks.free) >= 0


@pytest.mark.parametrize("way", WAYS)
async def test_a_gang_gets_all_its_pods_in_one_rack_of_an_empty_cluster(way: str) -> None:
    racks = Racks(Random(1))
    placed = await place(racks, way, "g")
    assert len(placed) == SIZE
    assert len({racks.racks[node] for _, node in placed}) == 1
    assert sum(racks.free) == ALL - SIZE


@pytest.mark.parametrize("way", WAYS)
async def test_a_gang_without_room_gives_back_what_its_pods_had(way: str) -> None:
    racks = Racks(Random(1))
    Jobs(racks, 97).change()
    before = list(racks.free)
    assert await place(racks, way, "g") == ()
    assert racks.free == before


def test_a_required_topology_uses_only_a_rack_with_room_for_the_gang() -> None:
    racks = Racks(Random(1))
    room(racks, SIZE - 1)
    fits = range(len(racks.free))
    assert random_rack(racks, fits, ()) == []
    racks.free[20] = SIZE
    assert {racks.racks[node] for node in random_rack(racks, fits, ())} == {racks.racks[20]}
    assert {racks.racks[node] for node in random_rack(racks, fits, [0])} == {racks.racks[0]}


def test_pod_affinity_goes_to_another_rack_when_there_is_no_room() -> None:
    racks = Racks(Random(1))
    fits = range(len(racks.free))
    assert {racks.racks[node] for node in affinity(racks, fits, [0, 20, 21])} == {racks.racks[20]}
    elsewhere = [node for node in fits if racks.racks[node] != racks.racks[0]]
    assert affinity(racks, elsewhere, [0]) == elsewhere


RUN = Played(OURS, SHOWN, 1, 200, 190, 190, 20.0, 5.0)
OTHER = msgspec.structs.replace(RUN, way="pod affinity", placed=200)


@pytest.mark.parametrize(
    ("other", "problems"),
    [
        (OTHER, 0),
        (msgspec.structs.replace(OTHER, within=191), 1),
        (msgspec.structs.replace(OTHER, free=20.1), 1),
        (msgspec.structs.replace(OTHER, filled=SHOWN + 10, within=200), 0),
    ],
)
def test_a_goal_is_missed_where_another_way_is_ahead(other: Played, problems: int) -> None:
    assert len(missed([RUN, other])) == problems


def test_the_table_counts_the_gangs_of_all_seeds() -> None:
    second = msgspec.structs.replace(RUN, seed=2, within=180, free=22.0)
    assert f"| {OURS} | 92.5 % | 95.0 % | 21.0 | 1.4 | 5.0 | 2 |" in table([RUN, second])
