"""Work is limited by the caller, the memory of values by one limit; what is charged is not less than what is done."""

from __future__ import annotations

import pickle
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dra_extender.cel import (
    CelCompileError,
    CelGates,
    CelRuntimeError,
    DeviceView,
    Program,
    Programs,
    Work,
    WorkExceeded,
    unlimited,
    work,
)
from dra_extender.cel.device import collect_reads
from dra_extender.cel.parser import parse
from tests.support.cel.devices import view_of
from tests.support.cel.expressions import SELECTORS
from tests.support.counting import calls
from tests.support.examples import examples


def test_what_is_refused_is_not_taken_off() -> None:
    work = Work(10)
    work.charge(4)
    with pytest.raises(WorkExceeded):
        work.charge(7)
    assert work.left == 6
    work.charge(6)


def test_an_allowance_is_shared_by_the_calls_it_is_given_to(view: DeviceView) -> None:
    program = Program("device.driver == 'gpu.example.com'")
    work = Work(100)
    with pytest.raises(WorkExceeded):
        for _ in range(101):
            assert program.evaluate(view, work)


def test_compiling_needs_an_allowance_and_a_lack_of_it_is_not_remembered() -> None:
    programs, expression = Programs(), "true || " * 1000 + "false"
    with pytest.raises(WorkExceeded):
        programs.compile(expression, work=Work(1000))
    program = programs.compile(expression)
    assert programs.compile(expression, work=Work(0)) is program


def test_a_view_can_be_sent_to_another_process(view: DeviceView) -> None:
    program = Program('device.attributes["gpu.example.com"].model == "A100"')
    assert program.evaluate(pickle.loads(pickle.dumps(view)))


VIEW = view_of("ab", {}, {})


def test_the_entries_of_a_map_that_are_copied_are_charged() -> None:
    copied = "lists.range(20).all(i, [1].transformMapEntry(k, v, m).size() == 500)"
    program = Program(f"cel.bind(m, lists.range(500).transformMap(k, v, v), {copied})")
    work = Work(100_000)
    assert program.evaluate(VIEW, work)
    assert 100_000 - work.left > 20 * 500


def test_the_named_groups_of_a_pattern_are_charged_and_others_not_captured() -> None:
    """RE2 copies all captured groups at each of them: 1,300 groups took 1.5 s for 200 characters."""
    text = "b" * 200

    def units(pattern: str) -> int:
        program, work = Program(f"!'{text}'.matches('{pattern}a')"), Work(10_000_000)
        assert program.evaluate(VIEW, work)
        return 10_000_000 - work.left

    assert units("()" * 1_300) < 100
    assert units("".join(f"(?P<n{number}>)" for number in range(500))) > len(text) * 500**2 // 256


def test_a_pattern_with_more_groups_than_memory_is_not_searched() -> None:
    groups = "".join(f"(?P<n{number}>)" for number in range(900))
    again = "['p', 'q', 'r', 's'].map(x, groups.replace('n', x)).join()"
    program = Program(f"cel.bind(groups, '{groups}', '{'b' * 20}'.matches({again} + 'a'))")
    with pytest.raises(CelRuntimeError, match="memory"):
        program.evaluate(VIEW, Work(10_000_000))


def test_each_selection_of_a_chain_is_looked_at_once() -> None:
    """What a selector reads was looked for again from each selection of a chain."""

    def looks(length: int) -> int:
        tree = parse("[1]" + ".a" * length)
        return calls(lambda: collect_reads(tree))

    assert looks(200) < 3 * looks(100)


def test_a_long_selection_is_charged_whatever_it_begins_with() -> None:
    def units(begin: str) -> int:
        work = Work(100_000)
        Programs().compile(f"{begin}{'.a' * 200} == 1", CelGates(), work)
        return 100_000 - work.left

    assert units("dyn(1)") > 200 * 200 // 8


def outcome(program: Program, work: Work) -> str:
    """The answer or the text of the error."""
    try:
        return str(program.evaluate(VIEW, work))
    except CelRuntimeError as error:
        return str(error)


def charged(program: Program) -> int:
    """The units of work that an evaluation takes."""
    work = unlimited()
    before = work.left
    outcome(program, work)
    return before - work.left


def compiled(expression: str) -> Program | None:
    """Hypothesis also makes invalid patterns."""
    try:
        return Program(expression)
    except CelCompileError:
        return None


@pytest.mark.slow
@settings(max_examples=examples(50))
@given(SELECTORS, st.integers(0, 100_000))
def test_more_allowance_never_changes_the_answer(expression: str, allowed: int) -> None:
    program = compiled(expression)
    if program is None:
        return
    answer = outcome(program, unlimited())
    try:
        assert outcome(program, Work(allowed)) == answer
    except WorkExceeded:
        assert charged(program) > allowed
    else:
        assert charged(program) <= allowed


@pytest.fixture
def measured() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peak(program: Program, work: Work) -> int:
    """The most bytes that an evaluation has taken at a time, as far as it comes."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    try:
        outcome(program, work)
    except WorkExceeded:
        pass
    return tracemalloc.get_traced_memory()[1] - before


MIB = 2**20
PASSING = 3
"""An operation may hold its operand, a copy in another encoding and its result."""


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(expression=SELECTORS)
@pytest.mark.usefixtures("measured")
def test_value_sizes_are_bounded(expression: str) -> None:
    program = compiled(expression)
    if program is not None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(work, "LIMIT", MIB // 4)
            assert peak(program, Work(200_000)) < PASSING * MIB // 4 + MIB // 2


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(expression=SELECTORS)
@pytest.mark.usefixtures("measured")
def test_what_is_charged_is_in_proportion_to_the_memory_that_is_taken(expression: str) -> None:
    program, work = compiled(expression), Work(50_000)
    if program is not None:
        assert peak(program, work) < 4096 * (50_000 - work.left) + MIB // 2


def evaluated(program: Program, work: Work) -> None:
    """As far as the evaluation comes."""
    try:
        outcome(program, work)
    except WorkExceeded:
        pass


LONG = "cel.bind(t, 'ab'.replace('b', 'b'.replace('b', 'abcabcabc')), '' == '%s'.format([['', t.replace('b', T)]]))"


@pytest.mark.slow
@settings(max_examples=examples(40))
@example(LONG.replace("T", repr("xyz" * 3000)))
@given(SELECTORS)
def test_what_is_charged_is_in_proportion_to_the_calls_that_are_made(expression: str) -> None:
    program, work = compiled(expression), Work(10_000)
    if program is not None:
        assert calls(lambda: evaluated(program, work)) < 20 * (10_000 - work.left) + 2000
