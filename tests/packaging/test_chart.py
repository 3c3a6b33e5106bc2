"""What is generated in the chart is what the sources make; what it says of metrics, pages and versions is so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import dashboard, reference, schema
from charts.reference import CHART
from dra_extender.http.metrics import PREFIX, SPECS

ROOT = Path(__file__).parents[2]
ALERTS = CHART / "files" / "alerts.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"
DOMAIN = "dra-extender.dev"


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def test_the_readme_lists_the_values_as_they_are() -> None:
    """Run `make chart` after a change of values.yaml."""
    text = reference.README.read_text()
    assert text == reference.readme(text, reference.markdown_table(reference.VALUES.read_text()))


def test_the_schema_knows_the_settings_of_the_service() -> None:
    """Run `make chart` after a change of settings."""
    text = schema.SCHEMA.read_text()
    assert text == schema.with_settings(text)


def test_the_dashboard_is_the_one_that_is_made() -> None:
    assert dashboard.FILE.read_text() == dashboard.text()


def test_a_value_without_a_line_is_named() -> None:
    with pytest.raises(ValueError, match=r"a\.b has no line"):
        reference.rows("a:\n  b: 1\n")


def test_every_value_has_a_type_and_every_type_a_value() -> None:
    values = {row.path for row in reference.rows(reference.VALUES.read_text())}
    assert values == set(_typed(json.loads(schema.SCHEMA.read_text()))) - {"global"}


def _typed(found: dict[str, Any], prefix: str = "") -> list[str]:
    """The paths that a schema names, as deep as values are documented one by one."""
    paths = []
    for name, inner in found["properties"].items():
        path = f"{prefix}{name}"
        deeper = "properties" in inner and name not in ("settings", "issuerRef")
        paths += _typed(inner, f"{path}.") if deeper else [path]
    return paths


def test_settings_that_the_chart_makes_are_settings() -> None:
    text = (CHART / "templates" / "_validation.tpl").read_text()
    made = set(re.findall(r'^  "(\w+)" "', text, re.MULTILINE))
    assert len(made) > 15
    known = json.loads(schema.SCHEMA.read_text())["properties"]["settings"]["properties"]
    assert made <= set(known)
    variables = re.findall(r"DRA_EXTENDER_([A-Z_]+),", (CHART / "templates" / "_settings.tpl").read_text())
    own = {name.lower() for name in variables} - {"preemption"}
    assert own <= made, "else the user's word would stand beside the chart's"


def exposed() -> set[str]:
    """The names of all series that a scrape gives."""
    names = set()
    for spec in SPECS:
        suffixes = ("_bucket", "_sum", "_count") if spec.type == "histogram" else ("",)
        names |= {f"{PREFIX}{spec.name}{suffix}" for suffix in suffixes}
    return names


LABELS = {f"{PREFIX}{spec.name}": spec for spec in SPECS}
EXPRESSIONS = [*((rule["alert"], rule["expr"]) for rule in alerts()), *enumerate(dashboard.queries())]


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=lambda part: str(part)[:40])
def test_what_alerts_and_dashboard_ask_for_is_counted(where: object, expression: str) -> None:
    asked = set(re.findall(rf"\b{PREFIX}\w+", expression))
    assert asked or "process_" in expression
    assert asked - exposed() == set()


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=lambda part: str(part)[:40])
def test_values_and_labels_that_are_asked_for_exist(where: object, expression: str) -> None:
    of_the_scrape = {"namespace", "pod", "job", "le"}
    for metric in re.findall(rf"\b{PREFIX}\w+", expression):
        spec = LABELS[re.sub(r"_bucket$", "", metric)]
        grouped = {name.strip() for by in re.findall(r"by \(([^)]*)\)", expression) for name in by.split(",")}
        assert grouped <= {*spec.labels, *of_the_scrape}
        if spec.values:
            values = set(spec.values)
            for label, _, value in re.findall(r'(\w+)(=~|!=|=)"([^"$]*)"', expression):
                assert label not in spec.labels or set(value.split("|")) <= values


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    pages = {}
    for rule in alerts():
        path = rule["annotations"]["runbook_url"].removeprefix(
            "https://github.com/dra-extender/dra-extender/blob/main/"
        )
        pages[rule["alert"]] = ROOT / path
    assert len(set(pages.values())) == len(pages)
    assert set(pages.values()) == set(RUNBOOKS.glob("*.md")) - {RUNBOOKS / "README.md"}
    index = (RUNBOOKS / "README.md").read_text()
    for alert, page in pages.items():
        assert page.read_text().startswith(f"# {alert}\n")
        assert f"[{alert}]({page.name})" in index


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: str(rule["alert"]))
def test_a_page_says_what_it_means_what_to_look_at_and_what_to_do(rule: dict[str, Any]) -> None:
    page = (RUNBOOKS / rule["annotations"]["runbook_url"].rpartition("/")[2]).read_text()
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["What it means", "What to look at", "What to do"]
    assert set(re.findall(rf"\b{PREFIX}\w+", page)) - set(LABELS) == set()


PLACES = ("app", "charts", "docs", "manifests", "scheduler_config")


def test_all_names_of_ours_are_of_one_domain() -> None:
    """Labels and annotations: dra-extender.dev/NAME."""
    found = set()
    for place in PLACES:
        for path in (ROOT / place).rglob("*"):
            if path.suffix in (".py", ".yaml", ".md", ".tpl", ".txt", ".json"):
                found |= set(re.findall(r"\b((?:[a-z0-9-]+\.)*dra-extender\.[a-z.]+)/[a-z]", path.read_text()))
    assert found == {DOMAIN}
