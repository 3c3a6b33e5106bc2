"""How much work compiling and evaluating is allowed to do."""

import pickle

import pytest

from dra_extender.cel import (
    CelCompileError,
    CelRuntimeError,
    DeviceView,
    Programs,
    Work,
    WorkExceeded,
    compile_selector,
    unlimited,
)


def test_what_is_refused_is_not_taken_off() -> None:
    work = Work(10)
    work.charge(4)
    with pytest.raises(WorkExceeded):
        work.charge(7)
    assert work.left == 6
    work.charge(6)


def test_a_loop_needs_an_allowance_for_its_rounds(view: DeviceView) -> None:
    program = compile_selector("lists.range(300).all(x, lists.range(300).all(y, x + y >= 0))")
    with pytest.raises(WorkExceeded):
        program.evaluate(view, Work(20_000))
    assert program.evaluate(view, unlimited())
    assert program.evaluate(view)


def test_an_allowance_is_shared_by_the_calls_it_is_given_to(view: DeviceView) -> None:
    program = compile_selector("device.driver == 'gpu.example.com'")
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


def test_errors_can_be_sent_to_another_process() -> None:
    with pytest.raises(CelCompileError) as refused:
        compile_selector("nope")
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (str(copy), copy.hint, copy.column) == (str(refused.value), refused.value.hint, refused.value.column)
    failed = pickle.loads(pickle.dumps(CelRuntimeError("no such key: a", "check with has()")))
    assert (failed.message, failed.hint) == ("no such key: a", "check with has()")


def test_a_view_can_be_sent_to_another_process(view: DeviceView) -> None:
    program = compile_selector('device.attributes["gpu.example.com"].model == "A100"')
    assert program.evaluate(pickle.loads(pickle.dumps(view)))
