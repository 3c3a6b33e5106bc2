"""Ports of a node: who takes the wildcard address takes all addresses."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.core import Pod, requested
from dra_extender.api.decoding import convert
from dra_extender.scheduling.noderules import ANY_ADDRESS, Port, conflicting, taken_by
from tests.support.counting import lines
from tests.support.simulation.objects import make_pod

PORTS = st.tuples(
    st.sampled_from((ANY_ADDRESS, "10.0.0.1", "10.0.0.2")), st.sampled_from(("TCP", "UDP")), st.integers(1, 3)
)


def _clash(port: Port, other: Port) -> bool:
    return port[1:] == other[1:] and (port[0] == other[0] or ANY_ADDRESS in (port[0], other[0]))


def listening(ports: Iterable[Port]) -> Pod:
    listed = [{"hostIP": address, "protocol": protocol, "hostPort": port} for address, protocol, port in ports]
    return convert(Pod, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "ports": listed}]}})


@given(wanted=st.lists(PORTS, max_size=4), taken=st.frozensets(PORTS, max_size=4))
def test_the_first_port_that_clashes_with_one_that_is_taken_is_told(wanted: list[Port], taken: frozenset[Port]) -> None:
    expected = next((port for port in wanted if any(_clash(port, other) for other in taken)), None)
    assert conflicting(wanted, taken_by(listening(taken))) == expected


def test_a_wanted_port_costs_the_same_however_many_are_taken() -> None:
    def cost(number: int) -> int:
        taken = taken_by(listening((f"10.0.{host}.1", "TCP", 80) for host in range(number)))
        return lines(lambda: conflicting([(ANY_ADDRESS, "TCP", 81)], taken), 1_000, "scheduling")

    assert cost(200) == cost(1)


def test_what_a_pod_requests_is_read_once_for_each_container() -> None:
    """However many sidecars there are, each with a resource of its own."""
    resources = [{"requests": {f"example.com/r{number}": "1"}} for number in range(500)]
    sidecars = [{"name": "s", "restartPolicy": "Always", "resources": each} for each in resources]
    pod = make_pod("p", initContainers=sidecars)
    assert lines(lambda: requested(pod), 10_000, "app") > 500
