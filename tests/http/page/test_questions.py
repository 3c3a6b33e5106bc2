"""Which question the page asks next, and which it does not ask again."""

from __future__ import annotations

import pytest

from dra_extender.http.page.board import Board
from dra_extender.http.page.parts import BoardPart, Pods
from dra_extender.http.page.questions import LATE, SOON, Ask, Questions
from dra_extender.scheduling.slices import Slices


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def answering(key: str) -> Ask:
    def ask() -> Slices[BoardPart]:
        yield
        return Pods(key, 1)

    return ask


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def questions(clock: Clock) -> Questions:
    return Questions(Board(), clock)


async def answer_all(questions: Questions) -> list[str]:
    asked = []
    while (key := questions.due()) is not None:
        asked.append(key)
        await questions.answer(key)
    return asked


async def test_each_is_asked_once_in_the_order_given_while_nothing_changes(questions: Questions) -> None:
    questions.keep("k", ["k2", "k1"], answering)
    assert await answer_all(questions) == ["k2", "k1"]
    assert questions.due() is None


async def test_a_change_makes_them_due_again_after_a_moment(questions: Questions, clock: Clock) -> None:
    questions.keep("k", ["k1"], answering)
    await answer_all(questions)
    questions.change += 1
    assert questions.due() is None
    clock.now = SOON
    assert questions.due() == "k1"


async def test_without_a_change_they_are_due_after_a_while(questions: Questions, clock: Clock) -> None:
    questions.keep("k", ["k1"], answering)
    await answer_all(questions)
    clock.now = LATE - 0.1
    assert questions.due() is None
    clock.now = LATE
    assert questions.due() == "k1"


async def test_what_was_never_asked_comes_first(questions: Questions, clock: Clock) -> None:
    questions.keep("k", ["k1"], answering)
    await answer_all(questions)
    clock.now = LATE
    questions.keep("k", ["k1", "k2"], answering)
    assert questions.due() == "k2"


async def test_the_answer_to_a_question_that_nobody_has_any_more_goes() -> None:
    board = Board()
    questions = Questions(board)
    questions.keep("k", ["k1", "k2"], answering)
    questions.keep("other", ["other"], answering)
    await answer_all(questions)
    questions.keep("k", ["k2"], answering)
    assert sorted(board.keys("")) == ["k2", "other"]


async def test_an_answer_that_comes_too_late_is_not_put(questions: Questions) -> None:
    def ask_and_forget(key: str) -> Ask:
        def ask() -> Slices[BoardPart]:
            questions.keep("k", [], answering)
            yield
            return BoardPart(key)

        return ask

    questions.keep("k", ["k1"], ask_and_forget)
    await questions.answer("k1")
    assert questions.answered == 1
    assert questions.due() is None
