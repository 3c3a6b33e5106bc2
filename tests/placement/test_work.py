"""How much is looked at: what changed, and no more than a portion for one question."""

from __future__ import annotations

from weakref import ref

import pytest
from msgspec.structs import replace

from dra_extender.allocation.budget import UNLIMITED, WorkBudget
from dra_extender.allocation.plan import Plan
from dra_extender.api.core import Node
from dra_extender.api.decoding import convert
from dra_extender.api.events import Applied, Removed
from dra_extender.api.resource import CELDeviceSelector, DeviceSelector, ResourceClaim
from dra_extender.placement import freestates, learner, placement, policies
from dra_extender.placement.podshape import filters_of
from dra_extender.placement.policies import PolicyName
from tests.support.allocation.costs import LINES_PER_UNIT
from tests.support.counting import lines
from tests.support.placement.gpunodes import DRIVER, GpuNodes, Json, gpus

NODES = 12


def uneven(policy: PolicyName = "fragmentation") -> GpuNodes:
    """Nodes of which no two are alike; the last by name is the best for a small share."""
    made = GpuNodes(policy)
    for number in range(NODES):
        made.add(f"n{number:02d}", 4, cpu=64 + number)
        made.occupy(f"n{number:02d}", *([1000] * (number % 3)), 50 * number)
    for number in range(6):
        made.learner.learn(made.pod(f"seen-{number}"), [gpus(milli=(200, 450, 1000)[number % 3])])
    return made


def looked_at(made: GpuNodes, name: str) -> int:
    """How many nodes are compared for a pod."""
    before = evaluations(made)
    made.choose(made.pod(name), gpus(milli=450))
    return evaluations(made) - before


def evaluations(made: GpuNodes) -> int:
    """How often states of a node were compared."""
    return sum(ranking.evaluations for ranking in made.placement.rankings.values())


@pytest.mark.parametrize("policy", ["pack", "spread", "fragmentation"])
def test_a_question_that_was_asked_before_looks_at_nothing_and_after_a_change_at_one_node(policy: PolicyName) -> None:
    made = uneven(policy)
    assert looked_at(made, "first") >= NODES
    assert looked_at(made, "second") == 0
    made.occupy("n00", 0, 0, 0, 300)
    assert 0 < looked_at(made, "third") <= 4
    made.learner.put(made.pod("runs", node="n05"))
    assert 0 < looked_at(made, "fourth") <= 4


def test_a_node_is_looked_at_again_when_it_has_more_and_not_when_it_is_alive() -> None:
    made = uneven()
    looked_at(made, "first")
    for cpu, looked in ((69, False), (200, True)):
        amounts = {"cpu": str(cpu), "memory": "256Gi"}
        node = convert(Node, {"metadata": {"name": "n05"}, "status": {"allocatable": amounts}})
        made.cluster.apply(Applied(node))
        made.learner.put(node)
        assert (looked_at(made, "again") > 0) == looked


@pytest.mark.parametrize("policy", ["pack", "spread", "fragmentation"])
def test_questions_with_little_time_catch_up_with_the_answer_of_one_with_enough(
    monkeypatch: pytest.MonkeyPatch, policy: PolicyName
) -> None:
    expected = uneven(policy).choose(uneven(policy).pod("p"), gpus(milli=450))
    monkeypatch.setattr(placement, "PORTION", 1)
    monkeypatch.setattr(learner, "PORTION", 1)
    made = uneven(policy)
    assert made.choose(made.pod("p"), gpus(milli=450)) != ""
    assert looked_at(made, "p") <= placement.CANDIDATES
    for _ in range(3 * NODES):
        chosen = made.choose(made.pod("p"), gpus(milli=450))
    assert chosen == expected


def test_weights_are_renewed_at_the_first_pods_and_then_now_and_then() -> None:
    made = uneven()
    fragmentation = made.learner.fragmentation
    versions = []
    for number in range(learner.EAGER + learner.INTERVAL + 10):
        made.learner.learn(made.pod(f"more-{number}"), [gpus()])
        made.choose(made.pod("p"), gpus())
        versions.append(fragmentation.version)
    first = learner.EAGER - 6
    assert versions[first - 1] - versions[0] == first - 1
    assert versions[first] == versions[learner.INTERVAL - 10]
    assert versions[-1] == versions[first] + 1


def test_a_choice_does_not_use_what_another_question_has_left_of_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = uneven(), uneven()
    claim = gpus(milli=450)
    expected = first.devices(first.pod("p"), "n04", claim)
    chooser = second.placement.chooser(second.pod("p"), [claim], "n04")
    monkeypatch.setattr(placement, "TURN", 0)
    assert second.placement.choose(second.pod("other"), [gpus(milli=300)], second.names) == ""
    for device in second.cluster.inventory.nodes.seen["n04"].pools:
        for model in device.pool.models if device.pool is not None else ():
            model.memo.clear()  # selectors have to be evaluated again
    plan = second.decisions.plan([claim], "n04", chooser)
    assert isinstance(plan, Plan)
    assert [result.device for result in plan.allocations[0].devices.results] == [expected]


def test_the_grouping_of_a_pool_goes_with_it() -> None:
    made = uneven()
    looked_at(made, "first")
    seen = made.cluster.inventory.nodes.seen["n05"]
    left = [ref(pool) for pool in seen.pools]
    del seen
    for item in list(made.cluster.inventory.slices()):
        if item.spec.node_name == "n05":
            made.cluster.apply(Removed.of(item))
    looked_at(made, "second")
    assert [one() for one in left] == [None]


def device(number: int, **attributes: int) -> Json:
    numbers = {name: {"int": value} for name, value in attributes.items()}
    return {"name": f"d{number}", "attributes": numbers, "capacity": {"milli": {"value": "1000"}}}


def choosing(devices: list[Json], claim: ResourceClaim) -> int:
    """Lines of Python that it takes to choose devices of a node for a pod, after the first devices are known."""
    made = GpuNodes("pack")
    made.add_node("n", devices)
    made.decisions.plan([claim], "n")
    made.choose(made.pod("first"), claim)
    return lines(lambda: made.plan(made.pod("p"), "n", claim), 10**7, "placement")


@pytest.mark.parametrize("group", [1, 4, 1_000], ids=["alone", "in fours", "all close"])
def test_choosing_devices_is_linear_in_the_devices_of_a_node(group: int) -> None:
    def numbered(count: int) -> list[Json]:
        return [device(n, numaNode=n // group) for n in range(count)]

    assert choosing(numbered(256), gpus()) < 6 * choosing(numbered(64), gpus())


def test_each_device_is_compared_once_and_charged_however_many_requests_may_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = gpus()
    (request,) = many.spec.devices.requests
    requests = tuple(replace(request, name=f"r{number}") for number in range(32))
    many = replace(many, spec=replace(many.spec, devices=replace(many.spec.devices, requests=requests)))
    numbered = [device(n) for n in range(256)]
    assert choosing(numbered, many) < 2 * choosing(numbered, gpus())

    made, budget = GpuNodes("pack"), WorkBudget()
    made.add_node("n", numbered)
    made.plan(made.pod("first"), "n", many)
    monkeypatch.setattr(made.placement, "budget", lambda: budget)
    assert lines(lambda: made.plan(made.pod("p"), "n", many), 10**7, "placement") < LINES_PER_UNIT * budget.used


def unlike(count: int, wanted: int) -> tuple[GpuNodes, ResourceClaim]:
    """Devices no two of which are alike for the claim."""
    made = GpuNodes("pack")
    made.add_node("n", [device(n, serial=n) for n in range(count)])
    return made, selecting(SERIAL, wanted)


SERIAL = f"device.attributes['{DRIVER}'].serial >= 0"
COMPUTED = "device.attributes[device.driver].serial >= 0"


def selecting(expression: str, count: int = 1) -> ResourceClaim:
    """A claim for GPUs for which the expression is true."""
    claim = gpus(count)
    (request,) = claim.spec.devices.requests
    assert request.exactly is not None
    exactly = replace(request.exactly, selectors=(DeviceSelector(CELDeviceSelector(expression)),))
    devices = replace(claim.spec.devices, requests=(replace(request, exactly=exactly),))
    return replace(claim, spec=replace(claim.spec, devices=devices))


@pytest.mark.parametrize(("devices", "wanted"), [(8, 2), (64, 16)])
def test_comparing_what_a_pod_may_leave_is_charged(devices: int, wanted: int) -> None:
    """Beyond the budget the pod gets the first devices that fit."""
    made, claim = unlike(devices, wanted)
    chosen: list[str] = []

    def choose() -> None:
        chosen.append(made.placement.choose(made.pod("p"), [claim], made.names))

    assert lines(choose, 2 * LINES_PER_UNIT * placement.TURN, "placement")
    assert chosen == (["n"] if devices == 8 else [""])
    assert made.plan(made.pod("p"), "n", claim).allocations


def with_serials(policy: PolicyName, nodes: int = NODES) -> GpuNodes:
    """Nodes with devices no two of which have one serial."""
    made = GpuNodes(policy)
    for number in range(nodes):
        made.add_node(f"n{number:02d}", [device(n, serial=4 * number + n, index=n) for n in range(4)])
    return made


@pytest.mark.parametrize("policy", ["pack", "spread", "fragmentation"])
@pytest.mark.parametrize("expression", [SERIAL, COMPUTED], ids=["named", "computed"])
def test_an_attribute_with_too_many_values_changes_nothing_for_others(
    monkeypatch: pytest.MonkeyPatch, policy: PolicyName, expression: str
) -> None:
    monkeypatch.setattr(freestates, "VALUES_OF_ATTRIBUTE", 8)
    made = with_serials(policy)
    made.learner.learn(made.pod("seen"), [gpus()])
    assert looked_at(made, "first") > 0
    made.learner.learn(made.pod("odd"), [selecting(expression)])
    assert made.choose(made.pod("odd"), selecting(expression)) == ""
    assert looked_at(made, "second") == 0
    few = selecting(f"device.attributes['{DRIVER}'].index == 1")
    assert made.choose(made.pod("p"), few) != ""


@pytest.mark.parametrize("policy", ["pack", "fragmentation"])
def test_an_attribute_that_gets_too_many_values_later_counts_no_more(
    monkeypatch: pytest.MonkeyPatch, policy: PolicyName
) -> None:
    monkeypatch.setattr(freestates, "VALUES_OF_ATTRIBUTE", 8)
    made = with_serials(policy, nodes=2)
    odd = selecting(SERIAL)
    for claim in (odd, gpus()):
        made.learner.learn(made.pod(str(claim.spec)), [claim])
    assert made.choose(made.pod("odd"), odd) != ""
    made.add_node("more", [device(n, serial=100 + n) for n in range(4)])
    for number in range(3):
        made.choose(made.pod("p"), gpus())
        made.learner.learn(made.pod(f"more-{number}"), [gpus()])
    assert made.choose(made.pod("odd"), odd) == ""
    states = made.learner.free_states
    assert len(set(states.own_groups("more", UNLIMITED).values())) == 1
    learned = [filter for shape, _ in made.learner.workload.frequencies() for filter in filters_of(shape)]
    assert [filter for filter in learned if SERIAL in filter.selectors] == []


def published_again(made: GpuNodes, name: str, devices: list[Json]) -> None:
    made.add_node(name, devices)
    made.names.remove(name)


@pytest.mark.parametrize("policy", ["pack", "spread", "fragmentation"])
def test_values_that_no_device_has_any_more_do_not_count(monkeypatch: pytest.MonkeyPatch, policy: PolicyName) -> None:
    """A boot ID has few values at a time, and many over the years."""
    monkeypatch.setattr(freestates, "VALUES_OF_ATTRIBUTE", 8)
    made = with_serials(policy, nodes=2)
    states, epochs = made.learner.free_states, set[int]()
    for number in range(20):
        claim = selecting(f"{SERIAL} && {number} >= 0")
        made.learner.learn(made.pod(f"p{number}"), [claim])
        assert made.choose(made.pod("p"), claim) != ""
        assert len(set(states.own_groups("n00", UNLIMITED).values())) == 4
        epochs.add(states.epoch)
        published_again(made, "n00", [device(n, serial=100 * number + n) for n in range(4)])
    assert len(epochs) == 1
    assert len(states._values[DRIVER, "serial"]) <= 8 + 4


def test_an_attribute_with_too_many_values_changes_nothing_for_others_while_values_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(freestates, "VALUES_OF_ATTRIBUTE", 8)
    made = with_serials("pack")
    assert looked_at(made, "first") > 0
    for number in range(20):
        published_again(made, f"n{number % NODES:02d}", [device(n, serial=100 * number + n) for n in range(4)])
        odd = selecting(f"{SERIAL} && {number} >= 0")
        assert made.choose(made.pod("odd"), odd) == ""
        assert looked_at(made, "second") <= 1


@pytest.mark.parametrize(("serials", "refused"), [(4, False), (4 * NODES, True)])
def test_counting_the_values_that_devices_have_is_charged(
    monkeypatch: pytest.MonkeyPatch, serials: int, refused: bool
) -> None:
    """It ends with the value that is one too many."""
    monkeypatch.setattr(freestates, "VALUES_OF_ATTRIBUTE", 8)
    made = with_serials("pack")
    looked_at(made, "first")
    for number in range(NODES):
        published_again(made, f"n{number:02d}", [device(n, serial=(4 * number + n) % serials) for n in range(4)])
    looked_at(made, "second")
    budget, read = WorkBudget(), frozenset({(DRIVER, "serial")})
    count = lines(lambda: made.learner.free_states.read(read, budget), 10**5, "freestates", "models")
    assert (read <= made.learner.free_states._reads) is not refused
    assert count <= LINES_PER_UNIT * budget.used
    assert budget.used == ((NODES + 12) // 4 if refused else 5 * NODES // 4)


def test_reading_what_no_device_publishes_looks_at_nothing_again() -> None:
    made = with_serials("pack")
    assert looked_at(made, "first") > 0
    for number in range(2 * freestates.MOST_READS):
        absent = selecting(f"!('x{number}' in device.attributes['{DRIVER}'])")
        assert made.choose(made.pod("odd"), absent) != ""
        assert looked_at(made, "second") == 0


def test_what_is_read_counts_for_a_device_that_publishes_it_later() -> None:
    made = with_serials("pack")
    made.choose(made.pod("p"), selecting(f"has(device.attributes['{DRIVER}'].kind)"))
    made.choose(made.pod("p"), selecting("!('other.example.com' in device.attributes)"))
    made.add_node("new", [device(0), device(1, kind=1), device(2, kind=2)])
    assert made.choose(made.pod("p"), gpus()) != ""
    groups = made.learner.free_states.own_groups("new", UNLIMITED)
    assert len(set(groups.values())) == 3


@pytest.mark.parametrize("policy", ["pack", "spread", "fragmentation"])
def test_states_that_are_unknown_are_charged_and_computed_over_several_questions(
    monkeypatch: pytest.MonkeyPatch, policy: PolicyName
) -> None:
    expected = uneven(policy).choose(uneven(policy).pod("p"), gpus(milli=450))
    made = uneven(policy)
    made.choose(made.pod("p"), gpus(milli=450))
    made.learner.free_states.start_over()
    monkeypatch.setattr(placement, "TURN", 60)
    assert made.placement.choose(made.pod("p"), [gpus(milli=450)], made.names) != ""
    known = [state for state in made.learner.free_states._states if state is not None]
    assert 0 < len(known) < NODES // 2
    for _ in range(3 * NODES):
        chosen = made.choose(made.pod("p"), gpus(milli=450))
    assert chosen == expected


def test_a_shape_with_too_many_filters_is_not_counted() -> None:
    made = with_serials("fragmentation")
    claims = [selecting(f"device.driver != 'x{number}'") for number in range(policies.MOST_FILTERS + 1)]
    for number, counted in ((1, 0), (0, 1)):
        made.learner.learn(made.pod(f"p{number}"), claims[: policies.MOST_FILTERS + number])
        assert len(list(made.learner.workload.frequencies())) == counted
