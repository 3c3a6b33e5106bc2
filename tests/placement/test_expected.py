"""A workload that is known before it comes counts as if it had come."""

from __future__ import annotations

from dra_extender.placement.learner import Expected, ExpectedPod
from dra_extender.placement.podshape import PodShape, load_of
from tests.support.placement.gpunodes import GpuNodes, gpus


def made(*kinds: tuple[int, int, int], only: bool = False, policy: bool = True) -> GpuNodes:
    """Two nodes with four GPUs, one of them begun; kinds of pods: number of them, GPUs and milli of each."""
    pods = GpuNodes()
    expected = Expected(
        tuple(ExpectedPod(times, load_of(pods.pod("p")), (gpus(count, milli=milli),)) for times, count, milli in kinds),
        only=only,
    )
    found = GpuNodes("fragmentation" if policy else "first-fit", expected=expected)
    found.add("a whole", 4)
    found.add("begun", 4)
    found.occupy("begun", 1000)
    return found


def frequencies(nodes: GpuNodes) -> dict[PodShape, float]:
    return dict(nodes.learner.workload.frequencies())


def ask(nodes: GpuNodes) -> None:
    """The learner keeps up, and a question is asked."""
    nodes.learner.refresh()
    nodes.placement.choose(nodes.pod("p"), [gpus()], nodes.names)


def test_expected_pods_count_like_pods_that_came() -> None:
    expecting, learning = made((3, 4, 1000), (1, 1, 1000)), made()
    for number in range(3):
        learning.learner.learn(learning.pod(f"large-{number}"), [gpus(4)])
    learning.learner.learn(learning.pod("small"), [gpus()])
    for nodes in (expecting, learning):
        assert nodes.choose(nodes.pod("p"), gpus()) == "begun"
    counts = [
        {shape.need[0].alternatives[0][1]: count for shape, count in frequencies(nodes).items()}
        for nodes in (expecting, learning)
    ]
    assert counts[0] == counts[1] == {4: 0.75, 1: 0.25}
    assert expecting.learner.workload.pods == 4


def test_pods_that_come_count_beside_them() -> None:
    nodes = made((3, 4, 1000))
    ask(nodes)
    nodes.learner.learn(nodes.pod("p"), [gpus()])
    assert sorted(frequencies(nodes).values()) == [0.25, 0.75]


def test_pods_that_come_do_not_count_where_only_the_expected_do() -> None:
    nodes = made((3, 4, 1000), only=True)
    ask(nodes)
    assert not nodes.learner.learns
    nodes.learner.learn(nodes.pod("p"), [gpus()])
    assert not nodes.learner.learns
    assert list(frequencies(nodes).values()) == [1.0]


def test_they_count_once_their_class_is_known_and_anew_when_it_changes() -> None:
    nodes = made((3, 2, 1000))
    ask(nodes)
    (before,) = frequencies(nodes)
    nodes.put_class("gpu", driver="other.example.com")
    ask(nodes)
    (after,) = frequencies(nodes)
    assert after != before
    ask(nodes)
    assert nodes.learner.workload.pods == 6
    assert list(frequencies(nodes).values()) == [1.0]


def test_weights_follow_when_expected_pods_become_known() -> None:
    nodes = made((3, 4, 1000))
    ask(nodes)
    version = nodes.learner.fragmentation.version
    ask(nodes)
    assert nodes.learner.fragmentation.version == version
    nodes.put_class("gpu", driver="other.example.com")
    ask(nodes)
    assert nodes.learner.fragmentation.version > version


def test_other_policies_expect_nobody() -> None:
    nodes = made((3, 4, 1000), policy=False)
    assert nodes.choose(nodes.pod("p", policy="pack"), gpus()) == "begun"
    assert frequencies(nodes) == {}
