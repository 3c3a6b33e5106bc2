"""However long selectors are and however many values devices have, few words are looked for."""

from __future__ import annotations

from app.allocation.selection import cel_gates
from app.api.features import FeatureGates
from app.api.resource import DeviceAttribute, attribute_values
from app.cel import DeviceView
from app.scheduling.diagnosis.selectorchanges import KNOWN, LONGEST, Vocabulary


def test_few_words_and_short_ones_are_known() -> None:
    attributes = {f"gpu.example.com/n{i}": DeviceAttribute(string=f"value-{i}") for i in range(3 * KNOWN)}
    attributes["gpu.example.com/long"] = DeviceAttribute(string="x" * (LONGEST + 1))
    view = DeviceView.build("gpu.example.com", attribute_values(attributes), {}, False, cel_gates(FeatureGates()))
    known = Vocabulary([view])
    assert len(known.words) <= KNOWN + 1
    assert known.values["gpu.example.com/long"] == {}
    assert len(known.of("")) == KNOWN
