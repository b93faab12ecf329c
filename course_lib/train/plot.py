"""`plot`: runs to mean and interval, as an SVG that needs no other program."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from course_lib.train.session import read_log

# Okabe and Ito's, told apart by who sees no red or no green; with a dash each.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 4", "1 2")
# Student's t for 95 %, by degrees of freedom; 1.96 beyond.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_WIDTH, _HEIGHT, _MARGIN, _POINTS = 720, 420, 60, 100


@dataclass(frozen=True)
class PlotConfig:
    """What is drawn."""

    runs: tuple[str, ...] = ()
    """Groups of runs: name=folder+folder+... each a curve; a folder alone is one."""
    metric: str = "episode_return"
    """What stands upwards."""
    x: str = "env_steps"
    """What stands to the right: env_steps, responses, update, cpu_seconds."""
    out: str = "curves.svg"
    """The picture."""


@dataclass(frozen=True)
class Curve:
    """The mean of some runs, on a common grid."""

    name: str
    xs: list[float]
    means: list[float]
    halves: list[float]
    """Half the width of the mean's 95 % interval; 0 for a run alone."""


def plot_program(settings: dict[str, Any], *, plot: PlotConfig) -> None:
    """Draw runs as mean and 95 % interval over their seeds, by environment steps."""
    if not plot.runs:
        raise ValueError("runs must name folders, got none")
    curves = []
    for group in plot.runs:
        name, equals, folders = group.rpartition("=")
        places = folders.split("+") if equals else [group]
        curves.append(mean_curve(name or Path(group).name, places, plot.metric, plot.x))
    Path(plot.out).write_text(svg(curves, plot.metric, plot.x), encoding="utf-8")
    for curve in curves:
        print(
            f"{curve.name}: {plot.metric} {curve.means[-1]:.4g} ± "
            f"{curve.halves[-1]:.2g} at {plot.x} {curve.xs[-1]:.6g}"
        )


def mean_curve(name: str, folders: Sequence[str], metric: str, x: str) -> Curve:
    """Runs brought to one grid, up to where the shortest ends, and averaged.

    Raises:
        ValueError: a run without the metric.
    """
    runs = []
    for folder in folders:
        points = [
            (record[x], record[metric])
            for record in read_log(folder)
            if not math.isnan(record.get(x, math.nan) + record.get(metric, math.nan))
        ]
        if not points:
            raise ValueError(f"{folder}: no record has {metric} and {x}")
        runs.append(points)
    low, high = max(run[0][0] for run in runs), min(run[-1][0] for run in runs)
    xs = [low + (high - low) * i / (_POINTS - 1) for i in range(_POINTS)]
    at = [[_between(run, one) for run in runs] for one in xs]
    means = [sum(values) / len(values) for values in at]
    halves = [half_interval(values) for values in at]
    return Curve(name, xs, means, halves)


def svg(curves: Sequence[Curve], metric: str, x: str) -> str:
    """The picture, with its words for who does not see it."""
    xs = [one for curve in curves for one in curve.xs]
    ys = [
        mean + sign * half
        for curve in curves
        for mean, half in zip(curve.means, curve.halves, strict=True)
        for sign in (-1, 1)
    ]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)
    right, high = max(right, left + 1e-9), max(high, low + 1e-9)

    def place(a: float, b: float) -> str:
        across = _MARGIN + (a - left) / (right - left) * (_WIDTH - 2 * _MARGIN)
        up = _HEIGHT - _MARGIN - (b - low) / (high - low) * (_HEIGHT - 2 * _MARGIN)
        return f"{across:.1f},{up:.1f}"

    said = ", ".join(f"{c.name} ends at {c.means[-1]:.4g}" for c in curves)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'role="img" font-family="sans-serif" font-size="14">',
        f"<title>{escape(f'{metric} by {x}: {said}')}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        *_axes(left, right, low, high, metric, x),
    ]
    for number, curve in enumerate(curves):
        colour, dash = _COLOURS[number % 6], _DASHES[number % 6]
        triples = list(zip(curve.xs, curve.means, curve.halves, strict=True))
        above = [place(a, m + h) for a, m, h in triples]
        below = [place(a, m - h) for a, m, h in reversed(triples)]
        line = [place(a, m) for a, m, _ in triples]
        parts += [
            f'<polygon points="{" ".join(above + below)}" fill="{colour}" '
            'fill-opacity="0.2"/>',
            f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" '
            f'stroke-width="2.5" stroke-dasharray="{dash}"/>',
            f'<text x="{_MARGIN + 10}" y="{_MARGIN + 18 * number}" fill="{colour}">'
            f"{escape(curve.name)}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def _axes(
    left: float, right: float, low: float, high: float, metric: str, x: str
) -> list[str]:
    bottom, end, side = _HEIGHT - _MARGIN, _WIDTH - _MARGIN, _MARGIN - 6
    return [
        f'<path d="M{_MARGIN} {_MARGIN}V{bottom}H{end}" fill="none" stroke="#444"/>',
        f'<text x="{_MARGIN}" y="{bottom + 20}">{left:.4g}</text>',
        f'<text x="{end}" y="{bottom + 20}" text-anchor="end">{right:.6g}</text>',
        f'<text x="{side}" y="{bottom}" text-anchor="end">{low:.3g}</text>',
        f'<text x="{side}" y="{_MARGIN + 5}" text-anchor="end">{high:.3g}</text>',
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 18}" text-anchor="middle">'
        f"{escape(x)}</text>",
        f'<text x="{_MARGIN}" y="{_MARGIN - 20}">{escape(metric)}</text>',
    ]


def _between(run: list[tuple[float, float]], x: float) -> float:
    """Straight from one point of a run to the next."""
    for (a, before), (b, after) in itertools.pairwise(run):
        if a <= x <= b:
            share = (x - a) / (b - a) if b > a else 1.0
            return before + share * (after - before)
    return run[0][1] if x <= run[0][0] else run[-1][1]


def half_interval(values: list[float]) -> float:
    """Half of the 95 % interval of a mean over seeds, by Student's t; 0 for one."""
    count = len(values)
    if count < 2:
        return 0.0
    mean = sum(values) / count
    spread = math.sqrt(sum((one - mean) ** 2 for one in values) / (count - 1))
    quantile = _T[count - 2] if count - 2 < len(_T) else 1.96
    return quantile * spread / math.sqrt(count)
