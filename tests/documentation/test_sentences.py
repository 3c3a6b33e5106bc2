"""Commands that stand between words: they exist, with the options that are named."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from charts import reference
from dra_extender.cli.main import app
from dra_extender.service.settings import Settings
from tests.support.documentation.blocks import COMMANDS, ROOT, all_blocks, pages

FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
OURS = re.compile(r"(?:\.venv/bin/)?(?:dra-extender|kubectl dra) (?=[a-z])(?!.*…)")
HISTORY = "CHANGELOG.md"
"""It names what there was."""


def lines() -> Iterator[tuple[str, str]]:
    """The page and the text of everything that is set as code, in sentences and in blocks of commands."""
    for page in pages():
        if page.name != HISTORY:
            name = page.relative_to(ROOT).as_posix()
            yield from ((name, code) for code in re.findall(r"`([^`\n]+)`", FENCED.sub("", page.read_text())))
    for block in all_blocks():
        if block.language in COMMANDS:
            yield from ((block.page, command.text) for command in block.commands())


def words(line: str) -> list[str]:
    """What stands after the name of our program; empty when the line has it not."""
    named = OURS.match(line)
    return re.split(r"[|;&)#]", line[named.end() :])[0].split() if named else []


def problem(asked: list[str]) -> str:
    """What is wrong with the words after the name of the program; empty when it understands them."""
    command = get_command(app)
    rest = list(asked)
    while isinstance(command, TyperGroup) and rest:
        name = rest.pop(0)
        if name not in command.commands:
            return f"there is no command {name}"
        command = command.commands.get(name, command)
    assert isinstance(command, TyperCommand | TyperGroup)
    declared = [(*each.opts, *each.secondary_opts) for each in command.get_params(typer.Context(command))]
    options = {option for names in declared for option in names}
    given = [word.partition("=")[0] for word in rest if re.match(r"--?\w", word)]
    unknown = [option for option in given if option not in options]
    return f"{command.name} has no option {unknown[0]}" if unknown else ""


def test_our_commands_exist_with_their_options() -> None:
    asked = [(page, words(line)) for page, line in lines() if words(line)]
    assert len(asked) > 40
    assert [(page, each, problem(each)) for page, each in asked if problem(each)] == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("dra-extender why POD -n NAMESPACE", ""),
        ("kubectl dra wy POD", "there is no command wy"),
        (".venv/bin/dra-extender top --more", "top has no option --more"),
        ("kubectl dra why POD --from FILE --all | less --raw", ""),
        ("kubectl dra why POD --from FILE --none", "why has no option --none"),
    ],
)
def test_what_is_not_understood_is_named(line: str, wrong: str) -> None:
    assert problem(words(line)) == wrong


def test_commands_about_the_release_name_its_namespace() -> None:
    """Without it Helm and kubectl look into the namespace of the context, and find nothing."""
    about = re.compile(r"helm \w+ dra-extender\b|kubectl .*deployment/dra-extender")
    asked = [(page, line) for page, line in lines() if about.match(line)]
    assert len(asked) > 10
    assert [each for each in asked if not re.search(r"(-n|--namespace)[ =]dra-system", each[1])] == []


def test_values_of_the_chart_exist() -> None:
    rows = reference.rows(reference.VALUES.read_text())
    values = {row.path for row in rows} | {f"settings.{name}" for name in Settings.model_fields} | {"settings.NAME"}
    objects = tuple(f"{row.path}." for row in rows if row.default.startswith("{") and row.path != "settings")
    groups = {path.partition(".")[0] for path in values}
    given = {(page, name) for page, line in lines() for name in re.findall(r"([a-z]\w*(?:\.\w+)+)=", line)}
    named = {(page, name) for page, name in given if name.partition(".")[0] in groups}
    assert len(named) > 15
    assert [each for each in sorted(named) if each[1] not in values and not each[1].startswith(objects)] == []


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {(page, found[1]) for page, line in lines() if (found := re.match(r"make ([a-z][a-z0-9-]*)", line))}
    assert len(named) > 20
    assert [(page, name) for page, name in named if name not in targets] == []
