"""A plot as SVG, one line per policy: how much of all GPUs is allocated, or another share in per cent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

WIDTH: Final = 720
HEIGHT: Final = 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 170, 40, 48
_COLOURS: Final = ("#6b7280", "#d97706", "#0891b2", "#7c3aed", "#16a34a", "#dc2626")

Curve = Mapping[int, float]
"""Per cent, by what is on the other axis."""


class Axis(NamedTuple):
    """What is shown, and where a line stands."""

    title: str
    first: int
    last: int
    step: int

    @property
    def lines(self) -> range:
        return range(self.first, self.last + 1, self.step)


def plot(
    title: str, curves: Mapping[str, Curve], across: Axis, least: int = 60, up: str = "GPUs allocated, % of all"
) -> str:
    """From `least` per cent, and from where the other axis begins. `up`: what the per cent are of."""

    def x(value: float) -> float:
        part = (value - across.first) / (across.last - across.first)
        return round(_LEFT + part * (WIDTH - _LEFT - _RIGHT), 1)

    def y(percent: float) -> float:
        return round(HEIGHT - _BOTTOM - (percent - least) / (100 - least) * (HEIGHT - _TOP - _BOTTOM), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">{title}</text>',
        f'<text x="{_LEFT}" y="{HEIGHT - 10}">{across.title}</text>',
        f'<text transform="translate(14 {HEIGHT - _BOTTOM}) rotate(-90)">{up}</text>',
    ]
    for percent in range(least, 101, 10):
        parts.append(_line(x(across.first), y(percent), x(across.last), y(percent)))
        parts.append(f'<text x="{_LEFT - 8}" y="{y(percent) + 4}" text-anchor="end">{percent}</text>')
    for value in across.lines:
        parts.append(_line(x(value), y(least), x(value), y(100)))
        parts.append(f'<text x="{x(value)}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{x(at)},{y(curve[at])}" for at in sorted(curve) if at >= across.first and curve[at] >= least
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        height = _TOP + 10 + 20 * number
        parts.append(f'<rect x="{WIDTH - _RIGHT + 14}" y="{height - 4}" width="18" height="3" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - _RIGHT + 38}" y="{height + 2}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#e5e7eb"/>'
