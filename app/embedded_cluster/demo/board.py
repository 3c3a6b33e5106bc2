"""What the demo shows: one row per pod, what happened last, what to try. Pure: from objects to rows to renderables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import wrap

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dra_extender.api.resource import ResourceClaim
from embedded_cluster.objects import FullPod
from embedded_cluster.podclaims import known_names

EXPECTED = "dra-extender.dev/expected"
"""Annotation of sample pods that must not be placed; its value is the reason they must show."""

UNTRIED = "not tried yet"
UNSCHEDULABLE = "Unschedulable"
"""The reason of a pod that kube-scheduler found no node for."""
_WIDE = 110
"""Columns from which on namespaces are shown."""
_STYLES = {
    "Running": "green",
    "Succeeded": "green",
    "Pending": "yellow",
    "Starting": "yellow",
    "Terminating": "magenta",
}


class PodRow(msgspec.Struct, frozen=True):
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
    explained: bool = False
    """True when the reason is what the service found out, not the scheduler's count of nodes."""
    frees: bool = True
    """True when its devices become free with it: no other pod uses them, and it has no admin access."""

    @property
    def pod(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def waits(self) -> bool:
        """True when the reason why it does not run yet is known. A refusal counts once the service has explained it."""
        told = self.explained or self.reported != UNSCHEDULABLE
        return told and self.state in ("Pending", "Starting") and self.reason not in ("", UNTRIED)

    @property
    def settled(self) -> bool:
        """True when the pod is where it should be: it runs, or it says why it cannot."""
        if self.expected:
            return self.reported == self.expected and self.explained
        return self.state in ("Running", "Succeeded")


class Header(msgspec.Struct, frozen=True):
    """What is above and below the table."""

    api: str
    cluster: str
    service: str
    page: str
    environment: str
    """The command that lets a shell find the cluster and `kubectl dra`."""
    commands: tuple[str, ...]


def rows(
    pods: Iterable[FullPod], claims: Mapping[str, ResourceClaim], explanations: Mapping[str, str] | None = None
) -> list[PodRow]:
    """One row per pod, waiting pods first, then by namespace and name. `explanations`: UID -> why the pod waits."""
    made = (_row(pod, claims, explanations or {}) for pod in pods)
    return sorted(made, key=lambda row: (row.state != "Pending", row.pod))


def _row(pod: FullPod, claims: Mapping[str, ResourceClaim], explanations: Mapping[str, str]) -> PodRow:
    mine = [claims.get(f"{pod.metadata.namespace}/{name}") for name in known_names(pod)]
    condition = pod.condition
    explanation = explanations.get(pod.metadata.uid, "") if not pod.spec.node_name else ""
    return PodRow(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        node=pod.spec.node_name,
        devices=devices(claim for claim in mine if claim is not None),
        state=state(pod),
        reason=explanation or reason(pod, mine),
        expected=pod.metadata.annotations.get(EXPECTED, ""),
        reported=condition.reason if condition is not None and condition.status == "False" else "",
        explained=bool(explanation),
        frees=users(mine) <= 1 and not any(_only_looked_at(claim) for claim in mine),
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


def _only_looked_at(claim: ResourceClaim | None) -> bool:
    results = claim.allocation.devices.results if claim is not None and claim.allocation else ()
    return any(result.admin_access for result in results)


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


def changes(before: Mapping[str, PodRow], after: Mapping[str, PodRow]) -> list[str]:
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


def _freed(row: PodRow) -> str:
    return f", {row.devices} of {row.node} free again" if row.devices and row.frees else ""


# --- on a terminal


def summary(shown: Sequence[PodRow], *, width: int) -> RenderableType:
    """All pods: waiting pods with their whole reasons, and a table of the others."""
    waiting, others = _parted(shown)
    return Group(*(line for row in waiting for line in _told(row, width)), Text(), _table(others, width))


def screen(header: Header, shown: Sequence[PodRow], log: Sequence[str], *, width: int, height: int) -> RenderableType:
    """Everything, for a terminal of this size: what to try is always there, the pods come before the news."""
    top = [
        Text.assemble(("dra-extender demo", "bold"), "   ", header.cluster, "   API server ", header.api),
        Text(header.service, style="dim"),
        Text.assemble("the page, in a browser: ", (header.page, "cyan")),
        Text(),
    ]
    bottom = [
        Text(),
        Text("Try in another terminal", style="bold"),
        Text(f"  {header.environment}", style="cyan"),
        *(Text(f"  {_fitting(command, width - 2)}", style="cyan") for command in header.commands),
        Text("Ctrl-C ends the demo and removes everything.", style="dim"),
    ]
    for line in (*top, *bottom):
        line.no_wrap, line.overflow = True, "ellipsis"
    room = height - len(top) - len(bottom)
    waiting, others = _parted(shown)
    said = _waiting(waiting, width, room // 2 if others else room - 2)
    room -= len(said)
    most = max(room - 1, 1)
    pods = _table(others, width, len(others) if len(others) <= most else most - 1)
    lines = most - min(len(others), most) - 2
    news = [Text(), Text("What happened", style="bold"), *(_cut(line) for line in list(log)[-lines:])]
    return Group(*top, *said, pods, *(news if lines > 0 else ()), *bottom)


def _parted(shown: Sequence[PodRow]) -> tuple[list[PodRow], list[PodRow]]:
    """Those that say why they wait, and the others."""
    waiting = [row for row in shown if row.state == "Pending" and row.reason]
    return waiting, [row for row in shown if row not in waiting]


def _waiting(rows: Sequence[PodRow], width: int, room: int) -> list[Text]:
    """Waiting pods in at most `room` lines: with their whole reasons, or one line each."""
    if not rows or room < 2:
        return []
    whole = [line for row in rows for line in _told(row, width)]
    if len(whole) < room:
        return [*whole, Text()]
    shown = rows if len(rows) < room else rows[: room - 2]
    lines = [_cut(f"{row.name}: {row.reason}", indent=0) for row in shown]
    if len(shown) < len(rows):
        lines.append(Text(f"… and {len(rows) - len(shown)} more wait", style="dim"))
    return [*lines, Text()]


def _told(row: PodRow, width: int) -> Iterator[Text]:
    state = "waits, as expected" if row.expected and row.settled else "waits"
    yield Text.assemble((row.pod, "bold"), " ", (state, _STYLES["Pending"]), no_wrap=True, overflow="ellipsis")
    for line in wrap(row.reason, max(width - 2, 20)):
        yield _cut(line)


def _table(shown: Sequence[PodRow], width: int, most: int | None = None) -> Table:
    """The pods, one line each; narrow terminals get no namespaces."""
    narrow = width < _WIDE
    made = Table(expand=True, box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("POD", "NODE", "DEVICES", "STATE"):
        made.add_column(name, no_wrap=True)
    made.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
    visible = list(shown if most is None else shown[:most])
    for row in visible:
        name = row.name if narrow else row.pod
        made.add_row(
            name, row.node or "-", row.devices or "-", Text(row.state, _STYLES.get(row.state, "red")), row.reason
        )
    if len(visible) < len(shown):
        made.add_row(f"… and {len(shown) - len(visible)} more", "", "", "", "")
    return made


def _fitting(command: str, width: int) -> str:
    """The command, with the comment on it where there is room."""
    return command if len(command) <= width else command.partition("  #")[0].rstrip()


def _cut(line: str, indent: int = 2) -> Text:
    return Text(" " * indent + line, no_wrap=True, overflow="ellipsis")
