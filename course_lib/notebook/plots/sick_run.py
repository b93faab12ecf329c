"""The picture of "Find the bug": what a run has logged, beside a healthy one."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib import data
from course_lib.notebook.plots.curves import panel_grid
from course_lib.notebook.plots.lines import (
    baseline,
    estimate,
    faint,
    line_width,
    muted,
    short_ticks,
)
from course_lib.notebook.words import word

CASES: Mapping[str, str] = {
    "A": "two-permutations",
    "B": "values-against-a-table",
    "C": "maximum-for-minimum",
    "D": "rewards-for-returns",
    "E": "ratio-upside-down",
    "F": "target-of-whitened",
    "G": "softmax-twice",
}
"""The faults of `course_lib.algorithms.faults` that are shown, under letters that give
no name away."""


def stored_name(case: str) -> str:
    """Return the name of the stored run behind a letter (see `course_lib.data.load`).

    Raises:
        ValueError: no such case, naming those there are.
    """
    if case not in CASES:
        raise ValueError(f"case: {case!r}; expected one of {', '.join(CASES)}")
    return f"fault-{CASES[case]}"


HEALTHY = "ppo"
SHOWN: dict[str, tuple[float, ...]] = {
    "episode_return": (0, 250, 500),
    "approx_kl": (1e-6, 1e-4, 1e-2, 1),
    "clip_frac": (0, 0.5, 1),
    "entropy": (0, 0.35, 0.7),
    "explained_variance": (-1, 0, 1),
    "value_loss": (1e-6, 1e-3, 1, 1e3),
}
"""Each panel's ticks, alike in all cases; where the first is above 0, logarithmic."""
MOMENTS = (0, 5, 11, 23, 47)
"""The updates whose values the alt text tells."""


def sick_run(figure: Figure, case: str) -> str:
    """Draw six numbers of a run with a bug over training, before a healthy run's.

    Both are means over 10 seeds. The grey band behind the return reaches from the
    lowest to the highest of the healthy run's seeds. Where a curve would leave its
    panel it is drawn on the edge.

    Args:
        figure: drawn on.
        case: the run's letter, one of `CASES`.

    Returns:
        Alt text: each curve's values at five moments, beside the healthy run's. Neither
        it nor the picture tells the run's name.

    Raises:
        ValueError: no such case.
    """
    sick, healthy = _records(stored_name(case)), _records(HEALTHY)
    said = []
    grid = panel_grid(figure, len(SHOWN), 1)
    for axes, (metric, ticks) in zip(grid, SHOWN.items(), strict=True):
        name = word(f"plot.metric.{metric}")
        axes.set_title(name, fontsize="small")
        low, high = _scale(axes, ticks)
        if metric == "episode_return":
            _band(axes)
        for records, label, look in (
            (healthy, "healthy", baseline()),
            (sick, "sick", estimate() | {"markevery": 6, **_thin()}),
        ):
            shown = np.clip(records[metric], low, high)
            axes.plot(records["env_steps"], shown, label=word(f"plot.{label}"), **look)
        if np.isnan(sick[metric]).all():
            none = axes.text(0.5, 0.06, word("plot.undefined"), color=muted())
            none.set(ha="center", transform=axes.transAxes, fontsize="small")
        told = {"sick": _said(sick[metric]), "healthy": _said(healthy[metric])}
        said.append(word("alt.sick_panel", metric=name, **told))
    handles = grid[0].get_legend_handles_labels()
    figure.legend(*handles, loc="upper left", ncols=3, columnspacing=1.4)
    moments = ", ".join(f"{sick['env_steps'][place]:,.0f}" for place in MOMENTS)
    return word("alt.sick_run", moments=moments, panels=" ".join(said))


def _said(values: list[float]) -> str:
    """A curve's values at `MOMENTS`, in two digits."""
    told = [values[place] for place in MOMENTS]
    if all(math.isnan(value) for value in told):
        return word("plot.undefined")
    return ", ".join(map(_two_digits, told))


def _two_digits(value: float) -> str:
    short = f"{value:.2g}"
    return (f"{float(short):.0f}" if abs(value) >= 10 else short).replace("-", "−")


def _thin() -> dict[str, Any]:
    return {"linewidth": line_width(0.8), "markersize": 3 * line_width()}


def _scale(axes: Axes, ticks: tuple[float, ...]) -> tuple[float, float]:
    """Set the panel's axes; returns the values at its lower and its upper edge."""
    low, high = ticks[0], ticks[-1]
    if low > 0:
        axes.set_yscale("log")
        axes.minorticks_off()
        low, high = low / 10, high * 10
    else:
        margin = (high - low) / 20
        low, high = low - margin, high + margin
    axes.set(ylim=(low, high), yticks=ticks, xlim=(0, 100_000), xticks=(0, 4e4, 8e4))
    axes.set_xlabel(word("plot.metric.env_steps"))
    for axis in (axes.xaxis, axes.yaxis):
        short_ticks(axis)
    return low, high


def _band(axes: Axes) -> None:
    run = data.load(HEALTHY)
    rows = np.array(run["returns"], dtype=float)  # [10, N]
    axes.fill_between(
        run["env_steps"],
        rows.min(0),
        rows.max(0),
        color=faint(),
        label=word("plot.healthy_seeds"),
    )


@functools.lru_cache(maxsize=16)
def _records(run: str) -> dict[str, list[float]]:
    """The run's records, a value that is not known as NaN."""
    return {
        name: [math.nan if value is None else value for value in values]
        for name, values in data.load(run)["records"].items()
    }
