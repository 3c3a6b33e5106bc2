"""What the log says when something goes wrong, and what it keeps to itself."""

from __future__ import annotations

import io
import json
import logging
from typing import Literal

import pytest
import structlog

from dra_extender.service import logs
from tests.support.marked import MARK, is_harmless

SECRET = "token-of-a-service-account"


pytestmark = pytest.mark.usefixtures("restored_logs")


def stumble() -> None:
    held = SECRET
    raise RuntimeError(f"stumbled over {len(held)} letters")


@pytest.fixture(params=["console", "json"])
def form(request: pytest.FixtureRequest) -> Literal["console", "json"]:
    chosen: Literal["console", "json"] = request.param
    return chosen


def test_a_line_is_one_write(form: Literal["console", "json"], monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Recorded(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Recorded())
    logs.configure("info", form)
    structlog.get_logger().info("bind", pod="ns/p")
    assert len(written) == 1
    assert written[0].endswith("\n")


def test_tracebacks_tell_where_but_not_with_which_values(
    form: Literal["console", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", form)
    try:
        stumble()
    except RuntimeError:
        structlog.get_logger().exception("went wrong")
    written = capsys.readouterr().err
    assert "stumbled over 26 letters" in written
    assert "stumble" in written
    assert SECRET not in written


def test_values_of_objects_are_text(form: Literal["console", "json"], capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", form)
    structlog.get_logger().info("refused", claim=MARK, rivals=[MARK], error=ValueError(MARK))
    logging.getLogger("aiohttp").warning("refused %s", MARK)
    written = capsys.readouterr().err
    assert is_harmless(written)
    assert len(written.splitlines()) == 2


def test_a_message_of_an_error_makes_no_event(
    form: Literal["console", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", form)
    logs.log_unexpected("bind", RuntimeError(MARK), {"pod": MARK})
    first, *others = capsys.readouterr().err.splitlines()
    assert is_harmless("\n".join([first, *others]))
    assert all(not line or line.startswith("  ") for line in others)


def test_machines_get_one_line_per_event(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    structlog.get_logger().info("bound", pod="default/p", node="n1")
    structlog.get_logger().debug("not shown")
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["pod"], event["node"]) == ("bound", "info", "default/p", "n1")


def test_an_unexpected_error_is_one_event_with_its_place_and_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logs.log_unexpected("bind", RuntimeError("stumbled"), {"pod": "default/p"})
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["where"], event["pod"]) == (
        logs.UNEXPECTED, "error", "bind", "default/p",
    )  # fmt: skip
    assert event["exception"][0]["exc_value"] == "stumbled"


def test_an_unexpected_error_of_a_command_without_a_log_keeps_standard_output_clean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    structlog.reset_defaults()
    logs.log_unexpected("bind", RuntimeError("stumbled"), {})
    written = capsys.readouterr()
    assert written.out == ""
    assert logs.UNEXPECTED in written.err and "stumbled" in written.err
