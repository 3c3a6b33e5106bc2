"""Whatever any string of an object contains, commands show it as text; JSON and YAML have its exact value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
import yaml
from typer.testing import CliRunner

from dra_extender.api.meta import ObjectKey
from dra_extender.cli.answers import capacity, devices, why
from dra_extender.cli.answers.answer import answered
from dra_extender.cli.answers.devices import list_devices, sum_devices
from dra_extender.cli.cluster import section
from dra_extender.cli.main import app
from dra_extender.cli.output import complain, note, status_of
from dra_extender.cli.questions import (
    AuditOptions,
    CompactOptions,
    DevicesOptions,
    HeadroomOptions,
    Source,
    TopOptions,
    WhatIfOptions,
    WhyOptions,
)
from dra_extender.devices.validity import ObjectProblem
from dra_extender.insight.snapshotfile import FORMAT, KIND
from tests.cli.conftest import options
from tests.support.diagnosis.hardware import device_class, node, pool
from tests.support.diagnosis.scene import Scene
from tests.support.marked import KINDS, MARK, STRUCTS, Json, is_harmless, marked, string_fields
from tests.support.marked import Path as Field

FIELDS: Final = [(kind, field) for kind, struct in STRUCTS.items() for field in string_fields(struct)]


def claim(name: str, **exactly: object) -> Json:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", **exactly}}
    return {"kind": "ResourceClaim", "metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def pod(name: str, **spec: object) -> Json:
    entries = [{"name": "gpu", "resourceClaimName": name}]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"resourceClaims": entries, **spec}}


def documents() -> list[Json]:
    """A pod uses a device, so that two others wait: one for a device, one with a selector that fails."""
    device = {"name": "gpu-0", "attributes": {"model": {"string": "A100"}}, "capacity": {"memory": {"value": "40Gi"}}}
    other = {"name": "gpu-1", "taints": [{"key": "broken", "value": "yes", "effect": "NoSchedule"}]}
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n-gpu", "device": "gpu-0"}
    held = claim("held", count=1) | {
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "held", "uid": "pod-held"}],
        }
    }
    selector = {"cel": {"expression": 'device.attributes["gpu.example.com"].model == "H100"'}}
    rule = {"deviceSelector": {"pool": "n-gpu"}, "taint": {"key": "old", "effect": "NoSchedule"}}
    return Scene(
        [
            node("n"),
            pool("n", "gpu.example.com", [device, other]),
            device_class("gpu", 'device.driver == "gpu.example.com"'),
            {"kind": "DeviceTaintRule", "metadata": {"name": "rule"}, "spec": rule},
            held,
            pod("held", nodeName="n"),
            claim("waits", count=1),
            pod("waits"),
            claim("picky", count=1, selectors=[selector]),
            pod("picky"),
            *(
                {"kind": kind, "metadata": {"name": "g", "namespace": "default"}, "spec": {}}
                for kind in ("PodDisruptionBudget", "PodGroup", "CoschedulingPodGroup")
            ),
        ]
    ).documents


def written(found: list[Json], file: Path) -> str:
    objects: dict[str, list[Json]] = {}
    for document in found:
        objects.setdefault(section(KINDS[document["kind"]]), []).append(document)
    file.write_text(json.dumps({"kind": KIND, "format": FORMAT, "objects": objects}))
    return str(file)


async def answer_all(found: list[Json], source: Source) -> None:
    """Every command that prints what objects contain."""
    for document in found:
        if document["kind"] == "Pod":
            meta = document["metadata"]
            given = {"pod": meta["name"], "namespace": meta["namespace"]}
            await status_of(why.answer(options(WhyOptions, source, **given, everything=meta["uid"] != "pod-waits")))
            if meta["uid"] == "pod-waits":
                await status_of(capacity.answer_compact(options(CompactOptions, source, **given, scheduler_name=[""])))
                await status_of(capacity.answer_what_if(options(WhatIfOptions, source, **given)))
    await status_of(list_devices(options(DevicesOptions, source, output="wide")))
    await status_of(sum_devices(options(TopOptions, source, by="classes")))
    await status_of(capacity.answer_headroom(options(HeadroomOptions, source, device_class="gpu")))
    await status_of(devices.audit(options(AuditOptions, source)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "field"), FIELDS, ids=lambda value: value if isinstance(value, str) else ".".join(map(str, value))
)
async def test_no_command_prints_a_control_sequence_of_an_object(
    kind: str, field: Field, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = marked(documents(), kind, field)
    source = Source(from_file=written(found, tmp_path / "snapshot"))
    await answer_all(found, source)
    printed = capsys.readouterr()
    assert is_harmless(printed.out)
    assert is_harmless(printed.err)


def test_what_describes_a_file_is_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "snapshot"
    items: Json = {f"pods{MARK}": [{}]}
    file.write_text(json.dumps({"kind": KIND, "format": FORMAT, "madeBy": MARK, "taken": MARK, "objects": items}))
    result = CliRunner().invoke(app, ["why", "--from", str(file)])
    assert is_harmless(result.output)


def test_json_and_yaml_are_printable_and_exact() -> None:
    content = {"name": MARK, "plain": "Größe …"}
    as_json, as_yaml = (answered(content, form, str) for form in ("json", "yaml"))
    assert is_harmless(as_json) and json.loads(as_json) == content
    assert is_harmless(as_yaml) and yaml.safe_load(as_yaml) == content
    assert "Größe …" in answered({"plain": "Größe …"}, "yaml", str)


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"pod {MARK} not found")
    note([ObjectProblem(ObjectKey("Pod", MARK), MARK, MARK)])
    assert is_harmless(capsys.readouterr().err)
