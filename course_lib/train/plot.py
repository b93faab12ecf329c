"""`plot`: runs to mean and interval over their seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.train.files import replace_file
from course_lib.train.log import read_log
from course_lib.train.picture import Curve, svg

# Student's t for 95 %, by degrees of freedom; 1.96 beyond.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_POINTS = 100
# What a run of any program has to show, the first that its log has.
_METRICS = ("episode_return", "score", "accuracy", "held_out_accuracy", "loss")
_XS = ("env_steps", "update", "epoch")


@dataclass(frozen=True)
class PlotConfig:
    """What is drawn."""

    runs: tuple[str, ...] = ()
    """Groups of runs: name=folder+folder+... each a curve; a folder alone is one."""
    metric: str | None = None
    """What stands upwards; None: the first that the log has of episode_return, score,
    accuracy, held_out_accuracy and loss."""
    x: str | None = None
    """What stands to the right: env_steps, update, epoch, responses, cpu_seconds; None:
    the first of these that the log has."""
    out: str = "curves.svg"
    """The picture, an SVG."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError("runs must name folders, got none")
        if not self.out.lower().endswith(".svg"):
            raise ValueError(f"out must end with .svg, got {self.out!r}")


def plot_program(settings: dict[str, Any], *, plot: PlotConfig) -> None:
    """Draw runs as mean and 95 % interval over their seeds, as an SVG."""
    groups: dict[str, list[str]] = {}
    for group in plot.runs:
        name, equals, folders = group.rpartition("=")
        places = folders.split("+") if equals else [group]
        name = name or Path(group).name
        if name in groups:
            raise ValueError(f"runs must have a name each, got {name!r} twice")
        groups[name] = places
    first = read_log(next(iter(groups.values()))[0])
    metric = plot.metric or _first_of(_METRICS, first)
    x = plot.x or _first_of(_XS, first)
    curves = [mean_curve(name, some, metric, x) for name, some in groups.items()]
    out = Path(plot.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, svg(curves, metric, x).encode())
    print(f"{out}:")
    for curve in curves:
        spread = f" ± {curve.halves[-1]:.2g}" if curve.count > 1 else ""
        print(
            f"{curve.label}: {metric} {curve.means[-1]:.4g}{spread} "
            f"at {x} {curve.xs[-1]:,.10g}"
        )


def mean_curve(name: str, folders: Sequence[str], metric: str, x: str) -> Curve:
    """Runs averaged where all have a point; where such places are few, on a grid up to
    where the shortest ends.

    Raises:
        ValueError: a run without the metric, or the same run twice.
    """
    places = [Path(folder).resolve() for folder in folders]
    if len({*places}) < len(places):
        raise ValueError(f"{name} must be of different runs, got {[*folders]}")
    runs = []
    for folder in folders:
        log = read_log(folder)
        points = [
            (record[x], record[metric])
            for record in log
            if not math.isnan(record.get(x, math.nan) + record.get(metric, math.nan))
        ]
        if not points:
            there = ", ".join(sorted({one for record in log for one in record}))
            raise ValueError(
                f"{folder}: no record has {metric} and {x}; there are {there or 'none'}"
            )
        runs.append(points)
    low, high = max(run[0][0] for run in runs), min(run[-1][0] for run in runs)
    if low > high:
        raise ValueError(f"{name} must be of runs that share some {x}, got none")
    xs = sorted(set.intersection(*({place for place, _ in run} for run in runs)))
    if 2 * len(xs) < min(map(len, runs)):
        xs = [low + (high - low) * i / (_POINTS - 1) for i in range(_POINTS)]
    at = [[_between(run, one) for run in runs] for one in xs]
    means = [sum(values) / len(values) for values in at]
    halves = [half_interval(values) for values in at]
    return Curve(name, xs, means, halves, len(runs))


def _first_of(names: Sequence[str], log: list[dict[str, float]]) -> str:
    """The first of the names that a log has; the first of all where it has none."""
    there = {one for record in log for one in record}
    return next((one for one in names if one in there), names[0])


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
