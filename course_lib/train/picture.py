"""Curves with their intervals as an SVG, which needs no other program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

# Okabe and Ito's, told apart by who sees no red or no green; with a dash each.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 2")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM, _LINE = 720, 440, 72, 24, 48, 64, 20
_SHARES = ("accuracy", "accuracy_before", "held_out_accuracy", "finished", "clip_frac")


@dataclass(frozen=True)
class Curve:
    """The mean of some runs, on a common grid."""

    name: str
    xs: list[float]
    means: list[float]
    halves: list[float]
    """Half the width of the mean's 95 % interval; 0 for a run alone."""
    count: int = 1
    """How many runs."""

    @property
    def label(self) -> str:
        """Its name, and how many runs its interval is of."""
        return f"{self.name} (n = {self.count})" if self.count > 1 else self.name


class _Axes:
    """Where numbers lie on the picture; the legend stands above."""

    def __init__(self, curves: Sequence[Curve], metric: str) -> None:
        self.top, self.bottom = _TOP + _LINE * len(curves), _HEIGHT - _BOTTOM
        xs = [one for curve in curves for one in curve.xs]
        self.left, self.right = _apart(min(xs), max(xs))
        means = [one for curve in curves for one in curve.means]
        ends = [
            mean + sign * half
            for curve in curves
            for mean, half in zip(curve.means, curve.halves, strict=True)
            for sign in (-1, 1)
        ]
        low, high = min(ends), max(ends)
        # A band of few seeds is far wider than what a share can be.
        if metric in _SHARES or (metric == "score" and _are_shares(means)):
            low, high = max(low, 0.0), min(high, 1.0)
        low, high = _apart(low, high)
        step = _step(low, high)
        self.low = math.floor(low / step + 1e-9) * step
        self.high = math.ceil(high / step - 1e-9) * step

    def place(self, x: float, y: float) -> str:
        """A point, with what lies above or below brought to the edge."""
        y = min(max(y, self.low), self.high)
        return f"{self.across(x):.1f},{self.up(y):.1f}"

    def across(self, x: float) -> float:
        """From the left, in pixels."""
        share = (x - self.left) / (self.right - self.left)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def up(self, y: float) -> float:
        """From the top, in pixels."""
        share = (y - self.low) / (self.high - self.low)
        return self.bottom - share * (self.bottom - self.top)

    def drawn(self, metric: str, x: str) -> list[str]:
        """Lines, numbers and names."""
        end, bottom = _WIDTH - _RIGHT, self.bottom
        parts = []
        for one in ticks(self.low, self.high):
            y = self.up(one)
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{end}" stroke="#ddd"/>')
            parts.append(
                f'<text x="{_LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">'
                f"{one:,.10g}</text>"
            )
        for one in ticks(self.left, self.right):
            at = self.across(one)
            parts.append(f'<path d="M{at:.1f} {bottom}v5" stroke="#444"/>')
            parts.append(
                f'<text x="{at:.1f}" y="{bottom + 21}" text-anchor="middle">'
                f"{one:,.10g}</text>"
            )
        return [
            *parts,
            f'<path d="M{_LEFT} {self.top}V{bottom}H{end}" fill="none" stroke="#444"/>',
            f'<text x="{(_LEFT + end) / 2}" y="{_HEIGHT - 16}" text-anchor="middle">'
            f"{escape(x)}</text>",
            f'<text x="{_LEFT}" y="28" font-weight="bold">{escape(metric)}</text>',
        ]


def svg(curves: Sequence[Curve], metric: str, x: str) -> str:
    """The picture, with its words for who does not see it."""
    said = ", ".join(f"{c.label} ends at {c.means[-1]:.4g}" for c in curves)
    axes = _Axes(curves, metric)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'role="img" font-family="sans-serif" font-size="14">',
        f"<title>{escape(f'{metric} by {x}: {said}')}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        *axes.drawn(metric, x),
    ]
    lines: list[str] = []  # above all bands
    for number, curve in enumerate(curves):
        colour, dash = _COLOURS[number % 6], _DASHES[number % 6]
        triples = list(zip(curve.xs, curve.means, curve.halves, strict=True))
        above = [axes.place(a, m + h) for a, m, h in triples]
        below = [axes.place(a, m - h) for a, m, h in reversed(triples)]
        line = [axes.place(a, m) for a, m, _ in triples]
        stroke = f'stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dash}"'
        y = _TOP + _LINE * number
        parts.append(
            f'<polygon points="{" ".join(above + below)}" fill="{colour}" '
            'fill-opacity="0.2"/>'
        )
        lines += [
            f'<polyline points="{" ".join(line)}" fill="none" {stroke}/>',
            f'<path d="M{_LEFT} {y - 5}h32" {stroke}/>',
            f'<text x="{_LEFT + 40}" y="{y}">{escape(curve.label)}</text>',
        ]
    return "\n".join([*parts, *lines, "</svg>", ""])


def ticks(low: float, high: float) -> list[float]:
    """Some five round numbers between two, both ends among what may be one."""
    step = _step(low, high)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _step(low: float, high: float) -> float:
    """1, 2, 2.5 or 5 times a power of ten, so that it lies nearest to a quarter."""
    quarter = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(quarter))
    return min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - quarter))


def _apart(low: float, high: float) -> tuple[float, float]:
    """Two ends with something between them."""
    if high - low > 1e-9 * max(abs(low), abs(high), 1e-3):
        return low, high
    half = 0.05 * abs(low) or 0.5
    return low - half, high + half


def _are_shares(means: list[float]) -> bool:
    return min(means) >= 0 and max(means) <= 1
