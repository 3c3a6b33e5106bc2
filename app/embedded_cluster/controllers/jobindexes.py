"""The indexes of a Job whose completions are numbered, and how its status writes them: `0-2,5`. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice
from typing import Final

from embedded_cluster.objects import FullPod

INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of a pod."""


def index_of(pod: FullPod) -> int | None:
    """The index that the pod works on."""
    told = pod.metadata.annotations.get(INDEX, "")
    return int(told) if told.isdecimal() else None


def parse(text: str) -> set[int]:
    """The indexes of `0-2,5`; parts that are none are left out."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), int(last or first) + 1))
    return found


def text(indexes: Iterable[int]) -> str:
    """`0-2,5`; two neighbours are written one by one."""
    return ",".join(_range(*run) for run in _runs(sorted(indexes)))


def _runs(ordered: list[int]) -> Iterator[tuple[int, int]]:
    first: int | None = None
    for position, index in enumerate(ordered):
        first = index if first is None else first
        if position + 1 == len(ordered) or ordered[position + 1] != index + 1:
            yield first, index
            first = None


def _range(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first}{',' if last == first + 1 else '-'}{last}"


def pending(taken: set[int], completions: int, wanted: int) -> list[int]:
    """The first indexes below `completions` that nobody works on and nobody has done."""
    free = (index for index in count() if index not in taken)
    return [index for index in islice(free, wanted) if index < completions]
