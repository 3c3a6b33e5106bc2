"""Devices as people read them, in terminals of 80 and 200 columns."""

from __future__ import annotations

import re

import pytest

from dra_extender.cli import output
from dra_extender.cli.answers.devices import details, device_table, sum_table, summed
from dra_extender.cli.output import table
from dra_extender.insight.devicereport.listing import DeviceQuery
from dra_extender.insight.devicereport.report import CountedDevice, sums
from dra_extender.plaintext import wrapped
from tests.support.diagnosis.heldcluster import scene, shared_by
from tests.support.questions import device_report


def devices(*nodes: str) -> tuple[CountedDevice, ...]:
    return device_report(scene().view(), DeviceQuery(nodes=frozenset(nodes))).devices


def test_a_device_is_a_line_with_what_explains_its_state() -> None:
    lines = list(device_table(devices("m1", "s1", "t1"), wide=False, width=200))
    assert lines[0] == "NODE  DRIVER             DEVICE            STATE     DETAILS"
    for line in (
        "m1    mig.example.com    m1-mig/half-0     used      default/half (half)",
        "m1    mig.example.com    m1-mig/half-1     free",
        "m1    mig.example.com    m1-mig/whole-0    blocked   taken: card/memory 40Gi of 80Gi",
        "s1    late.example.com   s1-late/late-0    unusable  not all slices of the pool are published yet",
        "s1    share.example.com  s1-share/share-0  shared    memory 30Gi of 40Gi; default/infer (infer)",
        "t1    gpu.example.com    t1-gpu/gpu-0      tainted   maintenance=firmware:NoSchedule",
    ):
        assert line in lines


def test_in_a_terminal_of_80_columns_the_details_are_folded_below_themselves() -> None:
    lines = list(device_table(devices("s1"), wide=False, width=80))
    assert max(map(len, lines)) <= 80
    assert lines[1:3] == [
        "s1    late.example.com   s1-late/late-0    unusable  not all slices of the pool",
        "                                                     are published yet",
    ]


def test_without_a_terminal_every_device_is_one_line() -> None:
    assert len(list(device_table(devices("s1"), wide=False, width=0))) == 1 + 3


def test_wide_tells_pools_classes_taints_and_counters() -> None:
    lines = list(device_table(devices("m1", "t1"), wide=True, width=0))
    assert lines[0].split() == [
        "NODE", "DRIVER", "POOL", "DEVICE", "STATE", "FILL", "CLASSES", "TAINTS", "COUNTERS", "DETAILS"
    ]  # fmt: skip
    rows = {tuple(line.split()[2:4]): line.split()[4:] for line in lines[1:]}
    assert rows["t1-gpu", "gpu-0"][:4] == ["tainted", "0%", "any,gpu", "maintenance=firmware:NoSchedule"]
    assert rows["m1-mig", "quarter-0"] == ["free", "0%", "any", "-", "card/memory=40Gi/80Gi"]


def test_states_are_coloured_and_nothing_else_and_the_columns_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = list(device_table(devices("m1"), wide=False, width=0))
    monkeypatch.setattr(output, "is_coloured", lambda stream: True)
    coloured = list(device_table(devices("m1"), wide=False, width=0))
    assert coloured != plain
    assert [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in coloured] == plain


def test_sums_leave_out_states_without_devices() -> None:
    lines = list(sum_table(sums(devices("a1", "s1"), "nodes"), "nodes", width=80))
    assert lines == [
        "NODE  DEVICES  FREE  SHARED  USED  UNUSABLE  FILL  CLAIMS  PODS",
        "a1          8     6       0     2         0   25%       1     1",
        "s1          3     1       1     0         1   25%       1     1",
    ]


def test_a_namespace_has_what_its_claims_hold() -> None:
    assert list(sum_table(sums(devices(), "namespaces"), "namespaces", width=80)) == [
        "NAMESPACE  DEVICES  SHARED  USED  CLAIMS  PODS",
        "default          4       1     3       3     3",
        "team             1       0     1       1     1",
    ]


def test_the_totals_are_a_sentence() -> None:
    found = device_report(scene().view(), DeviceQuery(nodes=frozenset({"s1"})))
    assert summed(found.totals) == "3 devices: 1 free, 1 shared, 1 unusable; 25% taken"


def test_a_word_that_is_longer_than_its_column_is_not_lost() -> None:
    assert "".join(table(("A",), [("x" * 60,)], width=40)).count("x") == 60


def test_a_last_column_stands_below_its_row_where_its_words_have_no_room() -> None:
    rows = [("n" * 20, "p" * 20, "team-a/trainer-claim (trainer)"), ("n", "p", "-")]
    assert list(table(("NODE", "POOL", "DETAILS"), rows, width=56)) == [
        f"NODE{' ' * 16}  POOL{' ' * 16}  DETAILS",
        f"{'n' * 20}  {'p' * 20}",
        "    team-a/trainer-claim (trainer)",
        f"n{' ' * 19}  p{' ' * 19}  -",
    ]


def test_columns_move_together_before_lines_run_over() -> None:
    assert list(table(("A", "B", "C"), [("xxxx", "1", "2")], width=8, numbers=frozenset((1, 2)))) == [
        "A    B C",
        "xxxx 1 2",
    ]


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two", 0, ["one two"]),
        ("one two", 7, ["one two"]),
        ("one two three", 8, ["one two", "  three"]),
        ("  - one two", 8, ["  - one", "    two"]),
        ("averylongword", 5, ["averylongword"]),
    ],
)
def test_texts_are_folded_below_themselves(text: str, width: int, lines: list[str]) -> None:
    assert wrapped([text], width).splitlines() == lines


def test_holders_that_are_not_listed_are_counted() -> None:
    (device,) = device_report(shared_by(300, 1).view()).devices
    assert details(device).endswith(", default/c0-0255 (c0-0255), 44 more")
