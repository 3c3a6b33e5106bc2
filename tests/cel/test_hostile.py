"""Selectors that were made, or measured, to hold up or fill up a process. Work is counted, never timed."""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections.abc import Callable
from datetime import datetime, timedelta
from ipaddress import IPv6Address
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_extender.api.quantity import Quantity
from dra_extender.cel import (
    CelCompileError,
    CelGates,
    CelRuntimeError,
    DeviceView,
    Program,
    Programs,
    Work,
    WorkExceeded,
    remembered_bytes,
    unlimited,
)
from dra_extender.cel.calls import members
from dra_extender.cel.checker import check
from dra_extender.cel.environment import environment
from dra_extender.cel.errors import LONGEST
from dra_extender.cel.library import regexes, strings
from dra_extender.cel.parser import parse
from dra_extender.cel.program import fold
from dra_extender.cel.syntax import Call
from dra_extender.cel.work import Meter
from tests.support.cel.devices import view_of
from tests.support.cel.expressions import bound
from tests.support.counting import calls, lines

LOOP = 20_000
"""Units of work that an event loop allows."""


VIEW = view_of("ab", {}, {})


def grown(count: int) -> str:
    """A text of count × count characters."""
    return f"'{'a' * count}'.replace('a', '{'b' * count}')"


def doubled(levels: int, body: Callable[[str], str]) -> str:
    return bound("[1]", lambda v: f"{v} + {v}", levels, body)


def charged(program: Program, view: DeviceView) -> int:
    work = unlimited()
    before = work.left
    program.evaluate(view, work)
    return before - work.left


# --- Keys whose hashes can be known ----------------------------------------------------------------------------------

MODULUS = sys.hash_info.modulus
"""Numbers that differ by a multiple of it have one hash."""
LINES_PER_UNIT = 40
"""Of evaluations. Usual look-ups run 30."""


def doubles_of_one_hash(dice: Random) -> list[float]:
    """The hash of a double is a rotation of its 53 bits. Six ones among zeros have many rotations of 53 bits."""
    bits = sum(1 << place for place in (0, *(9 * number + dice.randrange(2) for number in range(1, 6))))
    found = set()
    for turned in range(61):
        whole = (bits << turned | bits >> (61 - turned)) & MODULUS
        number = float(whole)
        if number == whole:
            found |= {math.ldexp(number, 61 * times - turned) for times in range(-16, 16)}
    return sorted(number for number in found if hash(number) == bits)


def addresses_of_one_hash(dice: Random) -> list[str]:
    rest = dice.randrange(MODULUS)
    return [str(IPv6Address(rest + times * MODULUS)) for times in dice.sample(range(2**40), 150)]


def instants_of_one_hash(dice: Random) -> list[str]:
    rest, found = dice.randrange(MODULUS), []
    for times in range(-26, 109):
        seconds, nanos = divmod(rest + times * MODULUS, 10**9)
        found.append(f"{datetime(1970, 1, 1) + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.{nanos:09}Z")
    return [text.rjust(30, "0") for text in found]


ONE_HASH: dict[str, Callable[[Random], list[str]]] = {
    "ip": lambda dice: [f"ip('{text}')" for text in addresses_of_one_hash(dice)],
    "cidr": lambda dice: [f"cidr('{text}/128')" for text in addresses_of_one_hash(dice)],
    "timestamp": lambda dice: [f"timestamp('{text}')" for text in instants_of_one_hash(dice)],
    "double": lambda dice: list(map(repr, doubles_of_one_hash(dice))),
}


@pytest.mark.parametrize("kind", ONE_HASH)
@pytest.mark.parametrize("seed", range(2))
def test_looking_up_a_key_is_no_more_work_whatever_the_hashes_of_keys_are(kind: str, seed: int) -> None:
    """170 addresses with one hash took 0.7 s for 16,000 units of work."""
    dice = Random(seed)
    keys = ONE_HASH[kind](dice)
    assert len(keys) > 100
    dice.shuffle(keys)
    entries = ", ".join(f"{key}: 1" for key in keys[1:])
    text = f"cel.bind(m, {{{entries}}}, cel.bind(q, {keys[0]}, lists.range(1000).all(i, !(q in m))))"
    program, work = Program(text), unlimited()
    before = work.left
    found = lines(lambda: program.evaluate(VIEW, work), 10**6, "cel")
    assert program.evaluate(VIEW)
    assert found <= LINES_PER_UNIT * (before - work.left)


def test_the_hashes_of_members_and_amounts_cannot_be_known() -> None:
    """A list of constants is a set; amounts differ by their hashes."""
    tree = parse(f"1.0 in [{', '.join(map(repr, doubles_of_one_hash(Random(1))))}]")
    check("", tree, environment(CelGates()), unlimited())
    tree = fold("", tree, environment(CelGates()).functions, Meter(unlimited()))
    assert isinstance(tree, Call)
    found = members(tree)
    assert found is not None
    assert len({hash(member) for member in found}) > 100
    assert len({hash(Quantity(7 + times * MODULUS)) for times in range(100)}) == 100


# --- What was measured ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [245, 540])
def test_finding_all_places_in_a_grown_text_is_no_more_than_reading_it(view: DeviceView, count: int) -> None:
    """539 bytes that took 27 s, and 1,142 bytes that took 80 s."""
    program = Program(f"{grown(count)}.findAll('').size() > 0")
    assert charged(program, view) < LOOP
    assert calls(lambda: program.evaluate(view)) < 1000


def test_finding_many_parts_takes_work_for_each(view: DeviceView) -> None:
    program = Program(f"{grown(540)}.findAll('b').size() == 291600")
    with pytest.raises(WorkExceeded):
        program.evaluate(view, Work(LOOP))
    assert program.evaluate(view)


def test_a_list_doubled_by_variables_takes_no_more_memory_than_values_may(view: DeviceView) -> None:
    """Estimated cost 720; it took 3 GiB."""
    program = Program(doubled(40, lambda v: f"{v}.size() == 549755813888"))
    tracemalloc.start()
    try:
        with pytest.raises(CelRuntimeError, match="64 MiB"):
            program.evaluate(view)
        assert tracemalloc.get_traced_memory()[1] < 2**26 + 2**20
    finally:
        tracemalloc.stop()


def test_many_long_sums_with_a_common_part_are_an_error_before_they_fill_the_memory(view: DeviceView) -> None:
    opening = "".join(f"cel.bind(v{i}, a + [{i}], " for i in range(60))
    used = " && ".join(f"v{i}.exists(x, x == 0)" for i in range(60))
    program = Program(f"cel.bind(a, lists.range(200000), {opening}{used}{')' * 61}")
    with pytest.raises(CelRuntimeError, match="64 MiB"):
        program.evaluate(view)


@pytest.mark.parametrize("key", [grown(2100), f"{grown(2100)} + 'é'"])
def test_a_missing_key_of_megabytes_is_named_by_its_beginning_and_its_length(view: DeviceView, key: str) -> None:
    with pytest.raises(CelRuntimeError, match=r"no such key: b+… \(4,410,00[01] characters\)") as failed:
        Program(f"{{'a': 1}}[{key}] == 1").evaluate(view)
    assert len(str(failed.value)) < 2 * LONGEST


def test_a_nested_loop_within_the_limit_of_costs_is_not_for_an_event_loop(view: DeviceView) -> None:
    program = Program("lists.range(300).all(x, lists.range(300).all(y, x + y >= 0))")

    def refused() -> None:
        with pytest.raises(WorkExceeded):
            program.evaluate(view, Work(LOOP))

    assert calls(refused) < 20 * LOOP
    assert program.evaluate(view)


COSTLY = {
    "types that double": bound("{}", lambda v: f"{{{v}: {v}}}", 10, lambda v: " && ".join([f"{v} == {v}"] * 800)),
    "a list of types that double": bound("{}", lambda v: f"{{{v}: {v}}}", 9, lambda v: f"[{v}{f',{v}' * 2500}] == []"),
    "sums of lists": "&&".join(["[]" + "+[]" * 240 + "==[]"] * 13),
    "nested lists": "&&".join(["[" * 80 + "]" * 80 + "==" + "[" * 80 + "]" * 80] * 31),
    "empty maps": "[" + ",".join(["{}"] * 3300) + "] == []",
    "selections": "||".join(["device.attributes" + ".a" * 200 + "==1"] * 23),
    "patterns": "&&".join([r"'a'.matches('\\pL{99}')"] * 400),
    "terms": "&&".join(["true"] * 1700),
}  # fmt: skip


@pytest.mark.parametrize("expression", COSTLY.values(), ids=COSTLY)
def test_a_large_expression_is_compiled_elsewhere(expression: str) -> None:
    """One claim of a megabyte with a hundred selectors took 46 s."""

    def refused() -> None:
        with pytest.raises(WorkExceeded):
            Program(expression, CelGates(), Work(LOOP))

    assert calls(refused) < 20 * LOOP
    work = unlimited()
    before = work.left
    Program(expression, CelGates(), work)
    assert before - work.left < 2_000_000


# --- What else takes more than linear time ------------------------------------------------------------------------

SLOW_ONCE = {
    "numbers with a letter behind": (f"double({grown(1000)}.replace('b', '1') + 'x') == 1.0", "conversion"),
    "backslashes as a pattern": (rf"'a'.matches({grown(300)}.replace('b', '\\'))", ""),
    "names of zones": ("timestamp(0).getHours('Etc/' + " + grown(500) + ") == 1", "time zone"),
    "addresses": (f"ip({grown(1000)}) == ip('::1')", "parse error"),
}


@pytest.mark.parametrize(("expression", "problem"), SLOW_ONCE.values(), ids=SLOW_ONCE)
def test_long_texts_that_are_no_values_are_refused_in_linear_time(
    view: DeviceView, expression: str, problem: str
) -> None:
    """Each would not end within an hour if it took quadratic time."""
    program = Program(expression)
    if not problem:
        assert program.evaluate(view) is False
        return
    with pytest.raises(CelRuntimeError, match=problem) as failed:
        program.evaluate(view)
    assert len(str(failed.value)) < 2 * LONGEST


def test_the_last_place_of_a_long_part_is_found_in_linear_time(view: DeviceView) -> None:
    assert Program(f"{grown(1000)}.lastIndexOf('c' + {grown(700)}) == -1").evaluate(view)
    assert Program(f"('c' + {grown(700)} + 'c').lastIndexOf({grown(600)}) == 130001").evaluate(view)


REPEATED = {
    "versions": ("semver('1.0.0-' + {}.replace('b', 'a.') + 'a')", "v.isLessThan(v)"),
    "equal versions": ("semver('1.0.0-' + {}.replace('b', 'a.') + 'a')", "v == v"),
    "urls": ("url('http://h/' + {})", "v == v"),
    "parts of urls": ("url('http://h/' + {})", "v.getEscapedPath() == 'x'"),
    "optionals": ("optional.of({})", "v == v"),
    "lists of lists": ("lists.range(100).map(i, lists.range(100).map(j, j))", "v.indexOf([i]) == 3"),
}


@pytest.mark.parametrize(("value", "step"), REPEATED.values(), ids=REPEATED)
def test_each_round_of_a_loop_is_charged_for_the_size_of_its_operands(view: DeviceView, value: str, step: str) -> None:
    rounds = [
        charged(
            Program(f"cel.bind(v, {value.format(grown(100))}, lists.range({count}).all(i, {step} || true))"),
            view,
        )
        for count in (10, 20)
    ]
    assert rounds[1] - rounds[0] > 10 * 100


def test_the_cost_of_a_search_in_a_list_of_shared_parts_is_found_part_by_part(view: DeviceView) -> None:
    nested = bound("[1]", lambda v: f"[{v}, {v}]", 60, lambda v: f"dyn({v}).indexOf(1) == -1")
    with pytest.raises(CelRuntimeError, match="cost limit"):
        Program(nested).evaluate(view, Work(LOOP))


def found_one_by_one(text: str, regex: str) -> list[str]:
    """All matches as upstream finds them: an empty match right after another match does not count."""
    compiled = regexes.pattern(regex, Meter(unlimited())).regex
    matched: list[str] = []
    place, previous = 0, -1
    while place <= len(text):
        found = compiled.search(text, place)
        if found is None:
            break
        start, end = found.span()
        if end != start or start != previous:
            matched.append(text[start:end])
        place, previous = (end if end > place else place + 1), end
    return matched


@given(
    st.text("abé€😀 \n", max_size=12),
    st.sampled_from(["", "a", "a*", "a|b*", "é?", "(é|a)*", ".", "[^a]", r"\b", "^", "$", "(?m)^", "a??", "b|"]),
    st.integers(-1, 4),
)
def test_all_matches_are_those_of_one_search_after_the_other(text: str, regex: str, limit: int) -> None:
    wanted = found_one_by_one(text, regex)
    assert regexes.find_all(Meter(unlimited()), text, regex, limit) == (wanted if limit < 0 else wanted[:limit])


@given(st.text("ab,", max_size=12), st.sampled_from([",", "a", "ab", ""]), st.integers(-1, 6))
def test_a_text_is_split_as_python_does_whatever_is_split_at_once(text: str, separator: str, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strings, "_AT_ONCE", 2)
        parts = strings.split(Meter(unlimited()), text, separator, limit)
    if limit == 0:
        assert parts == []
    elif separator:
        assert parts == text.split(separator, limit - 1 if limit > 0 else -1)
    else:
        assert "".join(parts) == text
        assert len(parts) == (len(text) if limit < 0 else min(limit, len(text)))


# --- What is remembered -----------------------------------------------------------------------------------------------

LARGE = {
    "sums": "&&".join(["0" + "+1" * 240 + ">0"] * 4),
    "loops": "&&".join(["[1].all(x,x>0)"] * 100),
    "types": bound("{}", lambda v: f"{{{v}: {v}}}", 10, lambda v: " && ".join([f"{v} == {v}"] * 80)),
    "attributes": " && ".join(["device.attributes.d.x==device.attributes.d.y"] * 200),
}


@pytest.mark.parametrize("expression", LARGE.values(), ids=LARGE)
def test_a_program_takes_no_more_memory_than_is_reckoned_for_its_length(expression: str) -> None:
    Program(expression, CelGates())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        program = Program(expression, CelGates())
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken <= remembered_bytes(program.expression)


def test_programs_are_remembered_up_to_a_number_of_bytes() -> None:
    remembered, filler = Programs(2**20), "true //" + "x" * 1_000
    made = [remembered.compile(f"{filler}{number}") for number in range(10)]
    again = [remembered.compile(program.expression) is program for program in reversed(made)]
    kept = sum(again)
    assert again == [True] * kept + [False] * (10 - kept)
    assert (kept + 1) * remembered_bytes(made[0].expression) > 2**20 >= kept * remembered_bytes(made[0].expression)


def test_patterns_are_remembered_up_to_a_number_of_bytes() -> None:
    cache = regexes.pattern_cache()
    for number in range(300):
        regexes.pattern(f"a{{{number}}}b", Meter(unlimited(), cache))
    assert 0 < len(cache) < 200


def test_errors_that_quote_an_expression_are_cut() -> None:
    for expression in ("n" * 10_000, "'a'." + "n" * 10_000 + "()", "1 " + "'" + "n" * 9_000 + "'"):
        with pytest.raises(CelCompileError, match="characters") as refused:
            Program(expression)
        assert len(str(refused.value)) < 1000
