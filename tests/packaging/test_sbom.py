"""The software bill of materials: what the image installs, valid by the schema of CycloneDX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_extender.version import VERSION
from requirements.sbom import LOCK, NAME, Pin, document, main, pins

HASH = "a" * 64
LINES = [
    "one==1.0 \\",
    f"    --hash=sha256:{HASH} \\",
    f"    --hash=sha256:{HASH}",
    "    # via two",
    "two==2.0rc1 ; sys_platform == 'win32' \\",
    f"    --hash=sha256:{HASH}",
    "    # via",
    "    #   -c requirements/dev.lock",
    "    #   dra-extender (pyproject.toml)",
    "    #   one",
]


@pytest.fixture(scope="module")
def locked() -> list[Pin]:
    return list(pins(LOCK.read_text().splitlines()))


@pytest.fixture(scope="module")
def written(locked: list[Pin]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document(locked, VERSION))
    return found


def test_a_lock_file_is_read_as_uv_writes_it() -> None:
    assert list(pins(LINES)) == [
        Pin("one", "1.0", [HASH, HASH], ["two"]),
        Pin("two", "2.0rc1", [HASH], [NAME, "one"]),
    ]


@pytest.mark.parametrize("line", ["-e .", "    --index-url https://example.com", "name @ https://example.com/name.whl"])
def test_a_line_that_is_not_understood_ends_it(line: str) -> None:
    for lines in ([line], [*LINES, line]):
        with pytest.raises(ValueError, match="lock file"):
            list(pins(lines))


def test_every_package_of_the_lock_file_is_in_it_with_its_hashes(locked: list[Pin], written: dict[str, Any]) -> None:
    lines = [line for line in LOCK.read_text().splitlines() if line[:1].isalnum()]
    assert [pin.name for pin in locked] == [line.partition("==")[0] for line in lines]
    listed = {component["purl"]: component["externalReferences"] for component in written["components"]}
    assert listed.keys() == {f"pkg:pypi/{pin.name}@{pin.version}" for pin in locked}
    hashes = {content["content"] for (reference,) in listed.values() for content in reference["hashes"]}
    assert hashes == {each for pin in locked for each in pin.hashes}
    assert LOCK.read_text().count("--hash=") == sum(len(pin.hashes) for pin in locked)


def test_everything_in_it_is_there_because_something_needs_it(written: dict[str, Any]) -> None:
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in written["dependencies"]}
    reached, left = set[str](), [written["metadata"]["component"]["bom-ref"]]
    while left:
        ref = left.pop()
        left += [each for each in needs[ref] if each not in reached]
        reached |= set(needs[ref])
    assert reached == {component["bom-ref"] for component in written["components"]}


def test_the_same_lock_file_gives_the_same_text_and_another_one_another(locked: list[Pin]) -> None:
    assert document(locked, VERSION) == document(locked, VERSION)
    numbers = {json.loads(document(each, VERSION))["serialNumber"] for each in (locked, locked[1:])}
    assert len(numbers) == 2


def test_what_is_written_is_valid_by_the_schema(tmp_path: Path) -> None:
    # Here, as in requirements/sbom.py: the import takes seconds.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    target = tmp_path / "new" / "sbom.json"
    assert main([str(target)]) == 0
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    text = target.read_text()
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"type": "application"', '"type": "appliance"')) is not None
    assert json.loads(text)["metadata"]["component"]["version"] == VERSION
