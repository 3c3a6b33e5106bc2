"""The alerts fire when they should and not otherwise, by Prometheus' own judgement."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart.helm import CHART, Helm, one, tool

pytestmark = pytest.mark.e2e

RULES = CHART / "files" / "alerts.yaml"
CASES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "alerts.yaml").read_text())


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def promtool() -> Path:
    found = tool("promtool")
    if found is None:
        pytest.skip("promtool is missing: run `make charttools` (needs Go), or install it")
    return found


def said(promtool: Path, *arguments: str) -> str:
    """What it prints; its words where it finds something wrong."""
    done = subprocess.run([str(promtool), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_rules_for_prometheus(promtool: Path) -> None:
    assert f"{len(alerts())} rules found" in said(promtool, "check", "rules", "--lint-fatal", str(RULES))


def test_each_alert_fires_when_it_should_and_not_before_or_otherwise(promtool: Path, tmp_path: Path) -> None:
    pages = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in alerts()}
    for case in CASES["tests"]:
        for check in case["alert_rule_test"]:
            for expected in check["exp_alerts"]:
                expected["exp_annotations"]["runbook_url"] = pages[check["alertname"]]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({**CASES, "rule_files": [str(RULES)]}))
    assert "SUCCESS" in said(promtool, "test", "rules", str(file))


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    outcomes = defaultdict(set)
    for case in CASES["tests"]:
        for check in case["alert_rule_test"]:
            outcomes[check["alertname"]].add(bool(check["exp_alerts"]))
    assert outcomes == {rule["alert"]: {True, False} for rule in alerts()}


def test_the_chart_gives_the_operator_the_same_rules(helm: Helm, promtool: Path, tmp_path: Path) -> None:
    spec = one(helm.render({"metrics": {"rules": True}}), "PrometheusRule")["spec"]
    assert spec == yaml.safe_load(RULES.read_text())
