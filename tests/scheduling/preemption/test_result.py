"""How events name the pods of a preemption."""

from __future__ import annotations

import msgspec

from dra_extender.scheduling.preemption.terms import known_to
from dra_extender.scheduling.reader import Reader
from tests.support.simulation.objects import make_pod


def test_only_its_own_namespace_is_told_the_name_of_a_pod() -> None:
    pod, neighbour = make_pod("p"), make_pod("q")
    stranger = msgspec.structs.replace(neighbour, metadata=msgspec.structs.replace(neighbour.metadata, namespace="b"))
    assert known_to(Reader(neighbour.metadata.namespace), pod) == "pod default/p"
    assert known_to(Reader(stranger.metadata.namespace), pod) == "pod uid-p"
