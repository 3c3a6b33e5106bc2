"""What one evaluation of a selector costs, over expressions as people write them."""

from __future__ import annotations

from statistics import median
from timeit import Timer
from typing import Any, Final

from dra_extender.api.semver import VersionText
from dra_extender.cel import CelGates, CelRuntimeError, DeviceView, Program
from tests.support.cel.devices import view_of

_EVALUATIONS: Final = 2000
SHOWN: Final = 6
"""Rows in the document."""
LISTS: Final = CelGates(list_attributes=True)
_D: Final = 'device.attributes["gpu.example.com"]'
_C: Final = 'device.capacity["gpu.example.com"]'

SELECTORS: Final = (
    "true",
    'device.driver == "gpu.example.com"',
    'device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "A100"',
    f'{_D}.model == "H100"',
    f"{_D}.model in ['A100', 'H100']",
    f"{_D}.index in [0, 1, 2, 3]",
    f"{_D}.index < 4",
    f"{_D}.index >= 0 && {_D}.index <= 7",
    f"{_D}.ecc",
    f"!{_D}.mig",
    f"{_D}.ecc && !{_D}.mig",
    f"{_D}.ecc == true",
    f'{_D}["model"] != "V100"',
    f'{_C}.memory.compareTo(quantity("10Gi")) >= 0',
    f'{_C}.memory.isGreaterThan(quantity("20Gi"))',
    f'{_C}.memory.isLessThan(quantity("80Gi"))',
    f'{_C}.memory == quantity("40Gi")',
    f'{_C}.memory.sub(quantity("8Gi")).isGreaterThan(quantity("30Gi"))',
    f'device.driver == "gpu.example.com" && {_D}.model == "A100" && {_C}.memory.compareTo(quantity("40Gi")) >= 0',
    f'{_D}.version.isGreaterThan(semver("1.2.3"))',
    f'{_D}.version.compareTo(semver("1.3.0")) == 0',
    f"{_D}.version.major() == 1 && {_D}.version.minor() >= 2",
    f'{_D}.version == semver("1.3.0")',
    f'{_D}.model.startsWith("A")',
    f'{_D}.uuid.endsWith("1234") || {_D}.uuid.contains("GPU")',
    f'{_D}.model.matches("^A[0-9]+$")',
    f'{_D}.model.lowerAscii() == "a100"',
    f'{_D}.uuid.split("-")[1] == "1234"',
    f"has({_D}.model)",
    f'has({_D}.model) && {_D}.model == "A100"',
    f'"model" in {_D}',
    '"other.example.com" in device.attributes',
    f'{_D}.?model.orValue("none") == "A100"',
    f'{_D}.?nope.orValue("none") == "none"',
    f'{_D}[?"model"].hasValue()',
    f'{_C}.?memory.optMap(m, m.isGreaterThan(quantity("1Gi"))).orValue(false)',
    f'{_D}.nope == "x" || {_D}.model == "A100"',
    f'{_D}.model == "A100" ? {_D}.index == 3 : {_D}.index == 0',
    'cel.bind(dra, device.attributes["gpu.example.com"], dra.ecc && dra.model == "A100")',
    f"{_D}.all(k, k.size() < 20)",
    f'{_D}.exists(k, k == "model")',
    'device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:00"',
    "device.allowMultipleAllocations == false",
    f'sets.contains(["A100", "H100"], [{_D}.model])',
    f'cidr("10.0.0.0/8").containsIP({_D}.addr)',
    f'string({_D}.index) == "3"',
)

LIST_SELECTORS: Final = (
    f'{_D}.features.includes("a")',
    f'{_D}.features.exists(f, f == "b")',
    f'"a" in {_D}.features',
)


def device(gates: CelGates) -> DeviceView:
    attributes: dict[str, Any] = {
        "model": "A100", "family": "Ampere", "uuid": "GPU-1234", "index": 3, "ecc": True, "mig": False,
        "version": VersionText("1.3.0"), "addr": "10.1.2.3", "other.example.com/zone": "z1",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    }  # fmt: skip
    if gates.list_attributes:
        attributes["features"] = ["a", "b"]
    return view_of("gpu.example.com", attributes, {"memory": "40Gi", "cores": "108"}, gates=gates)


def _answer(program: Program, view: DeviceView) -> str:
    try:
        return str(program.evaluate(view)).lower()
    except CelRuntimeError:
        return "error"


def _seconds(program: Program, view: DeviceView) -> float:
    """The shortest of some repetitions, per evaluation."""
    statement = "_answer(program, view)" if _answer(program, view) == "error" else "evaluate(view)"
    names = {"_answer": _answer, "program": program, "view": view, "evaluate": program.evaluate}
    return min(Timer(statement, globals=names).repeat(repeat=5, number=_EVALUATIONS)) / _EVALUATIONS


def _compile_seconds(expression: str, gates: CelGates) -> float:
    names = {"Program": Program, "expression": expression, "gates": gates}
    return min(Timer("Program(expression, gates)", globals=names).repeat(repeat=3, number=1))


def run() -> dict[str, Any]:
    """Microseconds per evaluation of each expression, their median and the compile times."""
    rows: list[dict[str, Any]] = []
    for gates, expressions in ((CelGates(), SELECTORS), (LISTS, LIST_SELECTORS)):
        view = device(gates)
        for expression in expressions:
            program = Program(expression, gates)
            rows.append(
                {
                    "expression": expression,
                    "answer": _answer(program, view),
                    "micros": _seconds(program, view) * 1e6,
                    "compile_micros": _compile_seconds(expression, gates) * 1e6,
                }
            )
    return {
        "rows": rows,
        "median_micros": median(row["micros"] for row in rows),
        "median_compile_micros": median(row["compile_micros"] for row in rows),
    }


def markdown(result: dict[str, Any]) -> str:
    """The slowest, and the median of all; results.json has every row."""
    slowest = sorted(result["rows"], key=lambda row: row["micros"], reverse=True)[:SHOWN]
    lines = [
        f"The {SHOWN} slowest of {len(result['rows'])} selectors, and the median of all. `bench/results.json` has all.",
        "",
        "| selector | answer | µs | compile µs |",
        "|---|---|---:|---:|",
    ]
    for row in slowest:
        expression = row["expression"].replace("|", "\\|")
        lines.append(f"| `{expression}` | {row['answer']} | {row['micros']:.2f} | {row['compile_micros']:.0f} |")
    lines.append(f"| **median** | | **{result['median_micros']:.2f}** | **{result['median_compile_micros']:.0f}** |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown(run()))
