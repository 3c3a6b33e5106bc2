"""A gang that waits for workers is decided with their answers."""

from __future__ import annotations

import pytest

from dra_extender.allocation.budget import EVALUATING
from dra_extender.api.groups import GANG, GANG_SIZE
from dra_extender.scheduling.gangs.topology import REQUIRED
from tests.support.allocation.heavy import LOOPS, selecting
from tests.support.simulation.objects import make_class, make_node, make_pod, make_slice
from tests.support.simulation.strategy import with_metadata
from tests.support.simulation.workers import VirtualWorkers
from tests.support.simulation.world import World

ZONE = "example.com/zone"
TOLERATIONS = [{"key": f"t{number}", "operator": "Exists"} for number in range(20)]


@pytest.mark.parametrize("size", [4, 512], ids=["one turn", "many turns"])
async def test_a_gang_is_requeued_when_workers_have_answered_what_an_earlier_turn_needed(
    world: World, size: int
) -> None:
    """Zone b has room only with the devices that a worker has to look at. What a turn finds without them is unknown."""
    world.add(make_class())
    for name, kind in {"a0": "easy", "b0": "easy", "b1": "easy", "b2": "hard", "b3": "hard"}.items():
        devices = [{"name": f"d{number}", "attributes": {"serial": {"string": kind}}} for number in range(size // 4)]
        node = with_metadata(make_node(name, cpu="1000", pods="1000"), labels={ZONE: name[0]})
        world.add(node, make_slice(name, devices))
    selector = f"device.attributes['gpu.example.com'].serial.startsWith('easy') || {LOOPS}"
    for number in range(size):
        pod = make_pod(f"g-{number}", f"c{number}", tolerations=TOLERATIONS)
        notes = {GANG: "g", GANG_SIZE: str(size), REQUIRED: ZONE}
        world.add(selecting(f"c{number}", selector), with_metadata(pod, annotations=notes))
    service = world.service(workers=VirtualWorkers())
    service.start()
    await world.settle(5.0)
    answer = await service.filter(world.api.pod("g-0"))
    assert set(answer.FailedAndUnresolvableNodes.values()) == {f"gang default/g: {EVALUATING}"}
    before = service.client.requeues
    await world.settle(60.0)
    assert service.client.requeues > before
    assert (await service.filter(world.api.pod("g-0"))).NodeNames == ["b0"]
