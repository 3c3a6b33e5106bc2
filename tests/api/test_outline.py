"""What is found in JSON that no decoder can read, and at which price."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.decoding import STEPS, Outline, OutlineError, identity

DEEP = b"[" * 100_000 + b"]" * 100_000

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=30,
)


@given(st.dictionaries(st.text(), values, max_size=5), st.integers(0, 3))
def test_the_members_of_an_object_are_those_a_decoder_finds(obj: dict[str, Any], indent: int) -> None:
    outline = Outline(msgspec.json.format(msgspec.json.encode(obj), indent=indent))
    found = {name: msgspec.json.decode(outline.value(at)) for name, at in outline.members()}
    assert found == msgspec.json.decode(outline.data)


@given(st.lists(values, max_size=5), st.integers(0, 3))
def test_the_elements_of_an_array_are_those_a_decoder_finds(array: list[Any], indent: int) -> None:
    outline = Outline(msgspec.json.format(msgspec.json.encode(array), indent=indent))
    assert [msgspec.json.decode(outline.value(at)) for at in outline.elements(0)] == msgspec.json.decode(outline.data)


@given(st.binary() | st.text(alphabet='{}[]",:\\a1 ').map(str.encode))
def test_whatever_the_bytes_are_it_ends_with_an_answer_or_an_outline_error(data: bytes) -> None:
    outline = Outline(data)
    try:
        parts = [outline.value(at) for _, at in outline.members()] + [outline.value(at) for at in outline.elements(0)]
    except OutlineError:
        return
    assert parts == []  # an object is no array: one of the two must have failed


@pytest.mark.parametrize(
    "text",
    [
        b'{"metadata":{"name":"a","resourceVersion":"5"},"spec":%s}',
        b'{"spec":%s,"metadata":{"resourceVersion":"5","name":"a"}}',
        b'{"metadata":{"managedFields":%s,"name":"a","resourceVersion":"5"}}',
        b'{"spec":{"metadata":{"name":"victim"},"x":%s},"metadata":{"name":"a","resourceVersion":"5"}}',
        b'{"note":"\\"metadata\\":{\\"name\\":\\"victim\\"}","x":%s,"metadata":{"name":"a","resourceVersion":"5"}}',
        b'{"kind" : "X" ,\n "met\\u0061data" : { "name" : "a" , "resourceVersion" : "5", "labels" : %s } }',
    ],
)
def test_an_object_is_identified_by_its_own_metadata_wherever_they_are(text: bytes) -> None:
    assert identity(text % DEEP) == {"name": "a", "resourceVersion": "5"}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", DEEP, b'{"metadata":7}', b'{"spec":%s}' % DEEP, b'{"metadata":"'])
def test_what_has_no_metadata_has_no_identity(data: bytes) -> None:
    assert identity(data) == {}


@pytest.mark.parametrize("name", [b"7", b"[]", b'"\xff"', b'"\\ud800"'])
def test_a_name_that_is_no_text_is_empty_and_hides_nothing_else(name: bytes) -> None:
    assert identity(b'{"metadata":{"name":%s,"uid":"u"}}' % name) == {"name": "", "uid": "u"}


def test_steps_are_limited_for_all_questions_together() -> None:
    brackets = b"[" + b",".join([b"[]"] * STEPS) + b"]"
    with pytest.raises(OutlineError, match="too many steps"):
        Outline(brackets).value(0)
    assert len(bytes(Outline(brackets, steps=None).value(0))) == len(brackets)
    outline = Outline(b"[[]]", steps=3)
    outline.value(0)
    with pytest.raises(OutlineError, match="too many steps"):
        outline.value(0)


def test_depth_costs_no_steps() -> None:
    assert len(bytes(Outline(DEEP, steps=2).value(0))) == len(DEEP)
