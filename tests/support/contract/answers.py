"""Answers made comparable: what differs between two runs of the same server becomes a placeholder.

Uids, resource versions, times and random names are replaced, numbered by first appearance, so that "the same as before"
and "another one" still show. Sentences of errors, descriptions of columns and ages say nothing and are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

Json = Any

ABSENT = "<absent>"
# Errors whose text is for people to read, long and of no fixed form.
WORDS_DO_NOT_COUNT = (400, 405, 406, 415, 422, 500)
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Written in the scenarios, so the same on every server.
GIVEN_UIDS = (
    "00000000-0000-0000-0000-000000000000",
    "11111111-2222-3333-4444-555555555555",
    "a671734a-e8e5-11e4-8fde-42010af09327",
)


class Normalizer:
    """Replaces what differs between runs. One per scenario: it remembers what it has replaced before."""

    def __init__(self, namespace: str) -> None:
        self._known: dict[str, str] = {namespace: "<ns>"}
        self._versions: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, value: Json, key: str = "", parent: Mapping[str, Json] | None = None) -> Json:
        if isinstance(value, dict):
            self._learn(value)
            return {self.text(name): self(item, name, value) for name, item in value.items()}
        if isinstance(value, list):
            return [self(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key == "resourceVersion":
            return self._version(value, "uid" in (parent or {}))
        if key == "continue":
            return "<continue>" if value else ""
        return self._message(value) if key == "message" else self.text(value)

    def text(self, value: str) -> str:
        """Text with everything known replaced, the longest first."""
        for known in sorted(self._known, key=len, reverse=True):
            value = value.replace(known, self._known[known])
        value = re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", _time, value)
        return _UID.sub(_foreign_uid, value)

    def _learn(self, item: Mapping[str, Json]) -> None:
        # Before anything of it is replaced: a generated name is repeated in other places.
        prefix, name = item.get("generateName"), item.get("name")
        if isinstance(prefix, str) and isinstance(name, str) and re.fullmatch(re.escape(prefix) + "[a-z0-9]{5}", name):
            self._known.setdefault(name, f"{self.text(prefix)}<random-{self._next('random')}>")
        version, uid = item.get("resourceVersion"), item.get("uid")
        if isinstance(uid, str) and _UID.fullmatch(uid) and uid not in self._known and uid not in GIVEN_UIDS:
            self._known[uid] = f"<uid-{self._next('uid')}>"
        if isinstance(version, str) and version.isdigit() and uid and version not in self._versions:
            self._versions[version] = f"<version-{self._next('version')}>"

    def _next(self, what: str) -> int:
        self._counts[what] = self._counts.get(what, 0) + 1
        return self._counts[what]

    def _version(self, value: str, of_object: bool) -> str:
        if of_object or not value.isdigit() or value == "0":
            return self._versions.get(value, value)
        # That of a list or a bookmark moves with everything else that happens on the server.
        return "<some-version>"

    def _message(self, value: str) -> str:
        value = re.sub(r"StorageError: .*AdditionalErrorMsg: ", "", value)
        value = re.sub(r"(resource version: \d+) \(\d+\)", r"\1 (<some-version>)", value)
        # Short numbers: only as whole words, and only in messages.
        return re.sub(
            r"(?<![\w.-])\d+(?![\w.-])", lambda found: self._versions.get(found[0], found[0]), self.text(value)
        )


def _foreign_uid(found: re.Match[str]) -> str:
    return found[0] if found[0] in GIVEN_UIDS else "<uid>"


def _time(found: re.Match[str]) -> str:
    return "<microtime>" if found.group(1) else "<time>"


def plain_table(table: Json) -> Json:
    """A Table with its cells of age made equal, for how many seconds went by says nothing, and without descriptions."""
    if isinstance(table, dict) and table.get("kind") == "Table":
        for column in table.get("columnDefinitions") or ():
            column.pop("description", None)
        names = [column.get("name") for column in table.get("columnDefinitions") or ()]
        columns = [index for index, name in enumerate(names) if name in ("Age", "TimeAdded")]
        for row in table.get("rows") or ():
            for index in columns:
                if re.fullmatch(r"\d+[smh](\d+s)?", str(row["cells"][index])):
                    row["cells"][index] = "<age>"
    return table


def drop_words(body: Json) -> None:
    """Take the sentences out of an error about the request itself: reason, field and kind of error are what counts."""
    if isinstance(body, dict) and body.get("kind") == "Status" and body.get("code") in WORDS_DO_NOT_COUNT:
        body.pop("message", None)
        causes = body.get("details", {}).get("causes") or []
        for cause in causes:
            cause.pop("message", None)
        # Without their words some are the same.
        causes[:] = [cause for index, cause in enumerate(causes) if cause not in causes[:index]]


def drop_managed_fields(value: Json) -> None:
    if isinstance(value, dict):
        value.pop("managedFields", None)
        for item in value.values():
            drop_managed_fields(item)
    elif isinstance(value, list):
        for item in value:
            drop_managed_fields(item)


def at(value: Json, path: str) -> Json:
    """What is at a dotted path; numbers are places in a list. ABSENT when there is nothing."""
    for part in path.split("."):
        if isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return ABSENT
    return value


def drop(value: Json, path: str) -> None:
    """Remove what is at a dotted path; ``*`` stands for every entry of a list."""
    head, _, rest = path.partition(".")
    if isinstance(value, list):
        for entry in value if head == "*" else value[int(head) : int(head) + 1]:
            drop(entry, rest)
    elif isinstance(value, dict) and head in value:
        if rest:
            drop(value[head], rest)
        else:
            del value[head]


def differences(want: Json, got: Json, path: str = "") -> list[str]:
    """Every place where two answers differ, as readable lines. A null means the same as nothing at all."""
    if isinstance(want, dict) and isinstance(got, dict):
        found: list[str] = []
        for key in sorted(want.keys() | got.keys()):
            one, other = (ABSENT if side.get(key) is None else side[key] for side in (want, got))
            found += differences(one, other, f"{path}.{key}" if path else key)
        return found
    if isinstance(want, list) and isinstance(got, list):
        found = [] if len(want) == len(got) else [f"{path}: {len(want)} entries wanted, {len(got)} came"]
        for index, (one, other) in enumerate(zip(want, got, strict=False)):
            found += differences(one, other, f"{path}.{index}" if path else str(index))
        return found
    if type(want) is type(got) and want == got:
        return []
    return [f"{path}: want {json.dumps(want)}, got {json.dumps(got)}"]
