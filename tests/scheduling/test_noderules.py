"""Ports of a node: who takes the wildcard address takes all addresses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dra_extender.scheduling.noderules import ANY_ADDRESS, Port, conflicting

PORTS = st.tuples(
    st.sampled_from((ANY_ADDRESS, "10.0.0.1", "10.0.0.2")), st.sampled_from(("TCP", "UDP")), st.integers(1, 3)
)


def _clash(port: Port, other: Port) -> bool:
    return port[1:] == other[1:] and (port[0] == other[0] or ANY_ADDRESS in (port[0], other[0]))


@given(wanted=st.lists(PORTS, max_size=4), taken=st.frozensets(PORTS, max_size=4))
def test_the_first_port_that_clashes_with_one_that_is_taken_is_told(wanted: list[Port], taken: frozenset[Port]) -> None:
    expected = next((port for port in wanted if any(_clash(port, other) for other in taken)), None)
    assert conflicting(wanted, taken) == expected
