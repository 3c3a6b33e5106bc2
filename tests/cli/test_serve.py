"""`dra-extender serve` and `version` as commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dra_extender.cli.main import app
from dra_extender.cli.serve import flag
from dra_extender.service.settings import PREFIX, Settings
from dra_extender.version import VERSION
from tests.support.patience import LONGEST

runner = CliRunner()


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)


def test_the_version_is_printed() -> None:
    assert runner.invoke(app, ["--version"]).output == VERSION + "\n"


def test_without_a_command_it_helps() -> None:
    assert "serve" in runner.invoke(app, []).output


def test_every_setting_is_a_flag() -> None:
    text = runner.invoke(app, ["serve", "--help"], env={"COLUMNS": "300", "TERMINAL_WIDTH": "300"}).output
    for name in Settings.model_fields:
        assert flag(name) in text


def test_a_dry_run_prints_the_effective_settings_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("namespace: from-file\nlog_level: debug\n")
    monkeypatch.setenv("DRA_EXTENDER_LOG_LEVEL", "warning")
    arguments = ["serve", "--dry-run", "--config", str(file), "--no-deallocate", "--bind-timeout", "5"]
    result = runner.invoke(app, arguments)
    printed = yaml.safe_load(result.output)
    assert result.exit_code == 0
    assert (printed["namespace"], printed["log_level"]) == ("from-file", "warning")
    assert (printed["deallocate"], printed["bind_timeout"]) == (False, 5.0)
    assert set(printed) <= set(Settings.model_fields)


def test_bad_settings_end_with_status_2_and_one_line() -> None:
    result = runner.invoke(app, ["serve", "--listen", "nonsense"])
    assert result.exit_code == 2
    assert "listen: 'nonsense' is not host:port" in result.output


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dra_extender.cli",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--log-format",
            "json",
            *arguments,
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "KUBECONFIG"},
    )


def test_the_process_says_where_it_listens_and_ends_in_order_on_a_signal() -> None:
    with start("--server", "http://127.0.0.1:1") as process:
        assert process.stderr is not None
        first = json.loads(process.stderr.readline())
        assert (first["event"], first["level"]) == ("listening", "info")
        assert first["verbs"].startswith("http://127.0.0.1:")
        second = json.loads(process.stderr.readline())
        assert (second["event"], second["level"]) == ("API server not usable yet, will retry", "warning")
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(LONGEST) == 0
    assert [json.loads(line)["event"] for line in rest.splitlines()][-1] == "stopped"


def test_a_process_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    with start("--kubeconfig", str(tmp_path / "none")) as process:
        _, errors = process.communicate(timeout=LONGEST)
    assert process.returncode == 1
    (line,) = errors.splitlines()
    assert json.loads(line)["event"] == "cannot start"
    assert "does not exist" in json.loads(line)["problem"]
