"""The reference of what may be asked over HTTP, made of the schema that the service serves at /openapi.json.

Promises: every path of the schema has a section, with each parameter and each field of the question and the answer as
deep as they have names. An answer that has the fields of an earlier one is a link to it. No service runs for it: a
schema is made of declarations alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from dra_extender.http.application import Health, create_app, health_router
from dra_extender.http.insight import Insight, insight_router
from dra_extender.http.metrics import Metrics

Schema = Mapping[str, Any]
_OK: Final = "200"
_OTHERS: Final = "Errors"
_LIMITS: Final = {"minimum": "at least", "maximum": "at most"}


def schema() -> dict[str, Any]:
    """The OpenAPI document."""
    nobody = None
    return create_app([health_router(cast(Health, nobody), Metrics()), insight_router(cast(Insight, nobody))]).openapi()


def markdown() -> str:
    """The sections, in the order of the schema."""
    document = schema()
    lines: list[str] = []
    told: dict[tuple[str, ...], str] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += _section(f"{method.upper()} {path}", operation, document, told)
    return "\n".join([*lines, *_others(document)])


def _section(title: str, operation: Schema, document: Schema, told: dict[tuple[str, ...], str]) -> Iterator[str]:
    """One path. `told` is by the rows of an answer the section that lists them first; this one adds its own."""
    yield from (f"## {title}", "", _prose(operation.get("description", "")), "")
    parameters = operation.get("parameters", ())
    if parameters:
        yield from ("| parameter | type | meaning |", "|---|---|---|")
        for each in parameters:
            needed = "" if each.get("required") else _default(each["schema"])
            kind = _kind(each["schema"], document)
            yield f"| `{each['name']}` | {kind} | {_prose(each.get('description', ''))}{needed} |"
        yield ""
    asked = operation.get("requestBody", {}).get("content", {})
    for form, body in asked.items():
        yield from (f"The question, `{form}`:", "", *_fields(body["schema"], document), "")
    for form, body in operation["responses"][_OK]["content"].items():
        rows = tuple(_fields(body["schema"], document))
        first = told.setdefault(rows, title)
        if not rows:
            yield from (f"The answer is `{form}`.", "")
        elif first == title:
            yield from (f"The answer, `{form}`:", "", *rows, "")
        else:
            anchor = re.sub(r"[^a-z -]", "", first.lower()).replace(" ", "-")
            yield from (f"The answer, `{form}`, has the fields of [{first}](#{anchor}).", "")
    others = sorted(status for status in operation["responses"] if status != _OK)
    if others:
        yield from (
            f"Otherwise {', '.join(others)}: [errors](#{_OTHERS.lower().replace(' ', '-')}).",
            "",
        )


def _others(document: Schema) -> Iterator[str]:
    """What each status besides the usual one means, of one path or of another."""
    yield from (f"## {_OTHERS}", "", "| status | meaning |", "|---|---|")
    told: dict[str, dict[str, None]] = {}
    for methods in document["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                told.setdefault(status, {})[_prose(response["description"])] = None
    yield from (f"| {status} | {'; or: '.join(told[status])} |" for status in sorted(told) if status != _OK)


def _fields(found: Schema, document: Schema) -> Iterator[str]:
    rows = list(_rows(found, document, "", ()))
    if rows:
        yield from ("| field | type | meaning |", "|---|---|---|", *rows)


def _rows(found: Schema, document: Schema, prefix: str, above: tuple[str, ...]) -> Iterator[str]:
    """The fields of an object, those within them after each; an object within itself is named, not told again."""
    found = _resolved(found, document)
    for name, inner in found.get("properties", {}).items():
        path = f"{prefix}{name}"
        item, mark = _item(inner, document)
        meaning = _resolved(inner, document).get("description") or item.get("description", "")
        yield f"| `{path}` | {_kind(inner, document)} | {_prose(meaning)} |"
        title = str(item.get("title", path))
        if title not in above:
            yield from _rows(item, document, f"{path}{mark}.", (*above, title))


def _item(found: Schema, document: Schema) -> tuple[Schema, str]:
    """What is within: of a list its items, of something that may be null the other."""
    found = _resolved(found, document)
    for each in found.get("anyOf", ()):
        if each.get("type") != "null":
            return _item(each, document)
    if "items" in found:
        inner, mark = _item(found["items"], document)
        return inner, f"[]{mark}"
    return found, ""


def _resolved(found: Schema, document: Schema) -> Schema:
    while "$ref" in found:
        kind = document
        for step in found["$ref"].removeprefix("#/").split("/"):
            kind = kind[step]
        found = kind
    return found


def _kind(found: Schema, document: Schema) -> str:
    found = _resolved(found, document)
    if "anyOf" in found:
        return " or ".join(_kind(each, document) for each in found["anyOf"])
    if "enum" in found:
        return ", ".join(f"`{value}`" for value in found["enum"])
    if "items" in found:
        return f"list of {_kind(found['items'], document)}"
    if isinstance(found.get("additionalProperties"), Mapping) and found["additionalProperties"]:
        return f"object of {_kind(found['additionalProperties'], document)}"
    kinds = found.get("type", "anything")
    limits = [f"{word} {found[name]:g}" for name, word in _LIMITS.items() if name in found]
    return ", ".join([kinds if isinstance(kinds, str) else " or ".join(kinds), *limits])


def _default(found: Schema) -> str:
    default = found.get("default")
    return "; may be left out" if default in (None, "") else f"; {default} when left out"


def _prose(text: str) -> str:
    """One line that a table takes."""
    return re.sub(r"\s+", " ", text).strip().replace("|", r"\|")
