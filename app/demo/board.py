"""What the demo shows: one row per pod, what happened last, what to try. Pure: from objects to rows to renderables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.api.resource import ResourceClaim
from app.embedded.objects import FullPod
from app.embedded.podclaims import known_names

EXPECTED = "dra-extender.dev/expected"
"""Annotation of sample pods that must not be placed; its value is the reason they must show."""

UNTRIED = "not tried yet"
_WIDE = 110
"""Columns from which on namespaces are shown."""
_STYLES = {
    "Running": "green",
    "Succeeded": "green",
    "Pending": "yellow",
    "Starting": "yellow",
    "Terminating": "magenta",
}


class Row(msgspec.Struct, frozen=True):
    """One pod."""

    namespace: str
    name: str
    node: str
    devices: str
    state: str
    reason: str
    expected: str = ""
    """Set for a pod that must stay unplaced: the reason that it must show."""
    reported: str = ""
    """The reason of its PodScheduled condition."""
    shared: bool = False
    """True when other pods use its devices as well."""

    @property
    def pod(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def waits(self) -> bool:
        """True when it says why it does not run yet."""
        return self.state in ("Pending", "Starting") and self.reason not in ("", UNTRIED)

    @property
    def settled(self) -> bool:
        """True when the pod is where it should be: it runs, or it says why it cannot."""
        if self.expected:
            return self.reported == self.expected and bool(self.reason)
        return self.state in ("Running", "Succeeded")


class Header(msgspec.Struct, frozen=True):
    """What is above and below the table."""

    api: str
    cluster: str
    service: str
    kubeconfig: str
    commands: tuple[str, ...]


def rows(pods: Iterable[FullPod], claims: Mapping[str, ResourceClaim]) -> list[Row]:
    """One row per pod, by namespace and name."""
    return [_row(pod, claims) for pod in sorted(pods, key=lambda pod: pod.metadata.key)]


def _row(pod: FullPod, claims: Mapping[str, ResourceClaim]) -> Row:
    mine = [claims.get(f"{pod.metadata.namespace}/{name}") for name in known_names(pod)]
    condition = pod.condition
    return Row(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.node_name,
        devices=devices(claim for claim in mine if claim is not None),
        state=state(pod),
        reason=reason(pod, mine),
        expected=pod.metadata.annotations.get(EXPECTED, ""),
        reported=condition.reason if condition is not None and condition.status == "False" else "",
        shared=users(mine) > 1,
    )


def state(pod: FullPod) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    if pod.spec.node_name and pod.status.phase in ("", "Pending"):
        return "Starting"
    return pod.status.phase or "Pending"


def reason(pod: FullPod, claims: Sequence[ResourceClaim | None]) -> str:
    """Why the pod does not run; for one that runs, with whom it shares its claim."""
    if pod.status.phase == "Running":
        sharing = users(claims)
        return f"claim shared by {sharing} pods" if sharing > 1 else ""
    for condition in pod.status.conditions:
        if condition.type in ("PodScheduled", "PodReadyToStartContainers") and condition.status == "False":
            return shortened(condition.message)
    if pod.spec.scheduling_gates:
        return "waits for its scheduling gates"
    return "" if pod.spec.node_name else UNTRIED


def users(claims: Iterable[ResourceClaim | None]) -> int:
    """How many pods use the claim that most pods use."""
    return max((len(claim.status.reserved_for) for claim in claims if claim is not None), default=0)


def shortened(message: str) -> str:
    """kube-scheduler's message without what it says about preemption."""
    return re.split(r"\.? ?(?:no new claims to deallocate, )?preemption: ", message)[0]


def devices(claims: Iterable[ResourceClaim]) -> str:
    """The devices of allocated claims, those of one pool together: `gpu-0,1`."""
    names = [result.device for claim in claims if claim.allocation for result in claim.allocation.devices.results]
    grouped: dict[str, list[str]] = {}
    for name in names:
        stem, dash, number = name.rpartition("-")
        if dash and number.isdigit():
            grouped.setdefault(stem + dash, []).append(number)
        else:
            grouped.setdefault(name, [])
    return " ".join(stem + _numbers(numbers) for stem, numbers in grouped.items())


def _numbers(numbers: Sequence[str]) -> str:
    """`0,1,2,3` as `0-3`, others as they are."""
    values = sorted(int(number) for number in numbers)
    if len(values) > 2 and values == list(range(values[0], values[-1] + 1)):
        return f"{values[0]}…{values[-1]}"
    return ",".join(map(str, values))


def changes(before: Mapping[str, Row], after: Mapping[str, Row]) -> list[str]:
    """What became different, one sentence each."""
    found = []
    for name, row in after.items():
        old = before.get(name)
        if old == row:
            continue
        if row.state == "Running" and (old is None or old.state != "Running"):
            found.append(f"{name} runs on {row.node}" + (f" with {row.devices}" if row.devices else ""))
        elif row.waits and (old is None or old.reason != row.reason):
            found.append(f"{name} waits: {row.reason}")
        elif old is not None and old.state != row.state:
            found.append(f"{name} is {row.state}")
    found += [f"{name} is gone" + _freed(row) for name, row in before.items() if name not in after]
    return found


def _freed(row: Row) -> str:
    return f", {row.devices} of {row.node} free again" if row.devices and not row.shared else ""


# --- on a terminal


def table(shown: Sequence[Row], *, width: int, most: int | None = None, fold: bool = True) -> Table:
    """The pods. Long reasons take more lines or, without `fold`, are cut; narrow terminals get no namespaces."""
    narrow = width < _WIDE
    made = Table(expand=True, box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("POD", "NODE", "DEVICES", "STATE"):
        made.add_column(name, no_wrap=True)
    made.add_column("REASON", ratio=1, no_wrap=not fold, overflow="fold" if fold else "ellipsis")
    visible = list(shown if most is None else shown[:most])
    for row in visible:
        name = row.name if narrow else row.pod
        style = _STYLES.get(row.state, "red")
        state = "as expected" if row.expected and row.settled else row.state
        made.add_row(name, row.node or "-", row.devices or "-", Text(state, style), row.reason)
    if len(visible) < len(shown):
        made.add_row(f"… and {len(shown) - len(visible)} more", "", "", "", "")
    return made


def screen(header: Header, shown: Sequence[Row], log: Sequence[str], *, width: int, height: int) -> RenderableType:
    """Everything, for a terminal of this size: what to try is always there, the pods come before the news."""
    top = [
        Text.assemble(("dra-extender demo", "bold"), "   ", header.cluster, "   API server ", header.api),
        Text(header.service, style="dim"),
        Text(),
    ]
    bottom = [
        Text("Try in another terminal", style="bold"),
        Text(f"  export KUBECONFIG={header.kubeconfig}", style="cyan"),
        *(Text(f"  {command}", style="cyan") for command in header.commands),
        Text("Ctrl-C ends the demo and removes everything.", style="dim"),
    ]
    for line in (*top, *bottom):
        line.no_wrap, line.overflow = True, "ellipsis"
    pods, left = _fitting(shown, width, height - len(top) - len(bottom) - 1)
    lines = left - 2
    news = (
        [Text(), Text("What happened", style="bold"), *(_cut(line) for line in list(log)[-lines:])] if lines > 0 else []
    )
    return Group(*top, pods, *news, Text(), *bottom)


def _cut(line: str) -> Text:
    return Text(f"  {line}", no_wrap=True, overflow="ellipsis")


def _fitting(shown: Sequence[Row], width: int, room: int) -> tuple[Table, int]:
    """The table in as many lines as there is room for, and how many are left."""
    whole = table(shown, width=width)
    lines = len(Console(width=width, file=StringIO()).render_lines(whole))
    if lines <= room:
        return whole, room - lines
    if len(shown) + 1 <= room:
        return table(shown, width=width, fold=False), room - len(shown) - 1
    return table(shown, width=width, fold=False, most=max(room - 2, 1)), 0
