"""A device as selectors see it, what an expression reads of it, and the keys built on that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.semver import VersionText
from dra_extender.cel import CelGates, CelRuntimeError, DeviceView, Program, ReadSet
from tests.support.cel.devices import view_of

LISTS = CelGates(list_attributes=True)


def evaluate(expression: str, attributes: dict[str, Any], gates: CelGates = CelGates()) -> bool:
    view = view_of("d.example.com", attributes, {"memory": "1Gi"}, False, gates)
    return Program(expression, gates).evaluate(view)


@pytest.mark.parametrize("order", [("x", "d.example.com/x"), ("d.example.com/x", "x")])
def test_a_bare_name_wins_over_one_with_the_drivers_domain(order: tuple[str, str]) -> None:
    attributes = {name: "bare" if name == "x" else "qualified" for name in order}
    assert evaluate("device.attributes['d.example.com'].x == 'bare'", attributes)


def test_a_name_is_split_at_its_first_slash() -> None:
    assert evaluate("device.attributes['a.example.com']['b/c'] == 1", {"a.example.com/b/c": 1})


def test_a_domain_that_nobody_uses_is_empty_but_not_there() -> None:
    assert evaluate("!('x' in device.attributes['nope']) && !('nope' in device.attributes)", {"y": 1})


@pytest.mark.parametrize(
    ("attributes", "gates", "words"),
    [
        ({"v": VersionText("99999999999999999999.0.0")}, CelGates(), "v"),
        ({"list": [1, 2]}, CelGates(), "list"),
        ({"odd": None}, LISTS, "odd"),
    ],
)
def test_a_value_that_cannot_be_used_fails_every_selector(
    attributes: dict[str, Any], gates: CelGates, words: str
) -> None:
    with pytest.raises(CelRuntimeError, match=words):
        evaluate("true", attributes, gates)


def test_lists_can_be_read_when_their_gate_is_on() -> None:
    assert evaluate("device.attributes['d.example.com'].list.includes(2)", {"list": [1, 2]}, LISTS)


def test_includes_examines_48_elements_and_from_1_37_on_all_of_them() -> None:
    expression = "lists.range(49).includes(48)"
    with pytest.raises(CelRuntimeError, match="lists longer than 48 values"):
        evaluate(expression, {}, LISTS)
    assert evaluate(expression, {}, CelGates(stored=True, is_1_37=True))


# --- Reads ---------------------------------------------------------------------------------------------------------


def attributes(*names: str) -> tuple[tuple[str, str, str], ...]:
    return tuple(("attributes", "d", name) for name in names)


READS = [
    ("true", ReadSet()),
    ('device.driver == "x"', ReadSet(fields=("driver",))),
    ("device.allowMultipleAllocations", ReadSet(fields=("allowMultipleAllocations",))),
    ('device.attributes["d"].a == 1', ReadSet(entries=attributes("a"))),
    ("device.attributes.d.a == 1", ReadSet(entries=attributes("a"))),
    ('device.attributes["d"]["a"] == device.attributes["d"].b', ReadSet(entries=attributes("a", "b"))),
    ('device.capacity["d"].m.isInteger()', ReadSet(entries=(("capacity", "d", "m"),))),
    ('has(device.attributes["d"].a)', ReadSet(entries=attributes("a"))),
    ('"a" in device.attributes["d"]', ReadSet(entries=attributes("a"))),
    ('device.attributes["d"].?a.orValue(1) == 1', ReadSet(entries=attributes("a"))),
    ('device.attributes[?"d"].a.hasValue()', ReadSet(entries=attributes("a"))),
    ('"d" in device.attributes', ReadSet(domains=(("attributes", "d"),))),
    ("has(device.attributes.d)", ReadSet()),
    ('cel.bind(x, device.attributes["d"], x.a == 1 && x.b == 2)', ReadSet(entries=attributes("a", "b"))),
    ('[1, 2].exists(i, device.attributes["d"].a == i)', ReadSet(entries=attributes("a"))),
    ('device.attributes["d"].all(k, true)', ReadSet(everything=True)),
    ('device.attributes["d"].size() == 1', ReadSet(everything=True)),
    ('["a"].exists(k, device.attributes["d"][k] == 1)', ReadSet(everything=True)),
    ('device.attributes[device.driver].a == 1', ReadSet(fields=("driver",), everything=True)),
    ("device.attributes == {}", ReadSet(everything=True)),
    ("cel.bind(x, device, x.driver == 'd')", ReadSet(fields=("driver",))),
    ("device == device", ReadSet(everything=True)),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "reads"), READS)
def test_the_parts_of_the_device_that_are_read_are_known(expression: str, reads: ReadSet) -> None:
    assert Program(expression).reads == reads


def key(expression: str, value: Any) -> Any:
    view = view_of("d", {} if value is None else {"a": value}, {}, False, LISTS)
    return view.read_key(Program(expression, LISTS).reads)


def test_values_that_python_takes_for_equal_have_different_keys() -> None:
    values = [1, True, "1", VersionText("1.0.0"), VersionText("1.0.0+b"), [1], [True], ["1"], [], None, 0, False]
    expression = 'device.attributes["d"].a == 1'
    assert len({key(expression, value) for value in values}) == len(values)


def test_equal_amounts_in_different_forms_have_different_keys() -> None:
    reads = Program('device.capacity["d"].m.isInteger()').reads
    views = [view_of("d", {}, {"m": text}) for text in ("1", "1000m", "1.0")]
    assert len({view.read_key(reads) for view in views}) == 3


def test_devices_that_agree_in_what_is_read_have_one_key() -> None:
    reads = Program('device.attributes["d"].model == "A"').reads
    views = [view_of("d", {"model": model, "serial": i}, {}) for i, model in enumerate("AABBA")]
    assert len({view.read_key(reads) for view in views}) == 2


def test_a_device_with_an_error_has_a_key_of_its_own() -> None:
    reads = Program("true").reads
    undecodable = view_of("d", {"v": VersionText("1")}, {})
    assert undecodable.read_key(reads) != view_of("d", {}, {}).read_key(reads)


EXPRESSIONS = [
    'device.attributes["d"].a == device.attributes["d"].b',
    'device.attributes["d"].a in [1, 2] || has(device.attributes["d"].b)',
    'device.attributes["d"].exists(k, device.attributes["d"][k] == 1)',
    '"d" in device.attributes && device.attributes["d"].?a.orValue(0) == 1',
    'device.attributes["d"].a.isGreaterThan(semver("1.0.0"))',
    'device.attributes["d"].a < 2 && device.attributes["d"].b',
    'device.capacity["d"].m.isInteger() || device.capacity["d"].m == quantity("1")',
    "device.attributes.d.a.includes(1)",
]
kinds = (
    st.integers(-2, 3), st.booleans(), st.sampled_from(["", "a", "1"]), st.sampled_from([VersionText("1.2.0")]),
)  # fmt: skip
values = st.one_of(*kinds, *(st.lists(kind, max_size=2) for kind in kinds))
devices = st.builds(
    lambda entries, amount: view_of("d", entries, {"m": amount}, False, LISTS),
    st.dictionaries(st.sampled_from("abc"), values, max_size=3),
    st.sampled_from(["1", "1000m", "2", "0.5"]),
)


def answer(program: Program, view: DeviceView) -> str:
    try:
        return str(program.evaluate(view))
    except CelRuntimeError as error:
        return str(error)


@given(st.sampled_from(EXPRESSIONS), devices, devices)
def test_devices_with_equal_keys_get_equal_answers(expression: str, one: DeviceView, other: DeviceView) -> None:
    program = Program(expression, LISTS)
    if one.read_key(program.reads) == other.read_key(program.reads):
        assert answer(program, one) == answer(program, other)
