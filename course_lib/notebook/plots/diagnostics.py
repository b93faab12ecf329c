"""What a stored run has logged, at one moment of its training."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib import data
from course_lib.notebook.plots.curves import panel_grid
from course_lib.notebook.plots.lines import (
    baseline,
    ink,
    line_width,
    series,
    short_ticks,
)
from course_lib.notebook.words import word

HEALTHY = "ppo"


class Scale(NamedTuple):
    """A panel's axis; logarithmic where its lower end is above 0."""

    low: float
    high: float
    ticks: tuple[float, ...]


SCALES: Mapping[str, Scale] = {
    "episode_return": Scale(-25, 525, (0, 250, 500)),
    "approx_kl": Scale(1e-7, 1e2, (1e-6, 1e-2, 1e2)),
    "clip_frac": Scale(-0.05, 1.05, (0, 0.5, 1)),
    "ratio_max": Scale(0.5, 1e4, (1, 100, 1e4)),
    "entropy": Scale(-0.035, 0.735, (0, 0.3, 0.6)),
    "explained_variance": Scale(-1.1, 1.5, (-1, 0, 1)),
    "value_loss": Scale(1e-7, 1e4, (1e-6, 1e-2, 1e2)),
}
"""Alike in all pictures of a run's records, so that two of them can be compared."""
SHOWN = tuple(metric for metric in SCALES if metric != "ratio_max")


def run_diagnostics(figure: Figure, run: str, update: int) -> str:
    """Six numbers of a stored run up to an update, over a healthy run in grey.

    All are means over its 10 seeds. The second curve among the clipped shares, dotted,
    counts only samples whose gradient is 0. Where a curve would leave its panel it is
    drawn on the edge.

    Args:
        figure: drawn on.
        run: a stored run of PPO.
        update: from 0; the curves before it are drawn in full.

    Returns:
        Alt text: the six numbers at that update.
    """
    records, healthy = run_records(run), run_records(HEALTHY)
    update = min(update, len(records["update"]) - 1)
    said = []
    grid = panel_grid(figure, len(SHOWN), legend_rows=1)
    for axes, metric in zip(grid, SHOWN, strict=True):
        set_scale(axes, SCALES[metric])
        _curves(axes, records, healthy, metric, update)
        remark_on_nothing(axes, records[metric], SCALES[metric])
        here = plain_number(records[metric][update])
        name = word(f"plot.metric.{metric}")
        axes.set_title(f"{name} {here}", fontsize="small")
        said.append(f"{name} {here}")
    # The clipped shares' panel has all four curves.
    handles = grid[SHOWN.index("clip_frac")].get_legend_handles_labels()
    figure.legend(*handles, loc="upper left", ncols=4, columnspacing=1.2)
    return word(
        "alt.run_diagnostics",
        run=run,
        steps=f"{records['env_steps'][update]:,.0f}",
        numbers=", ".join(said),
    )


def _curves(
    axes: Axes,
    records: dict[str, list[float]],
    healthy: dict[str, list[float]],
    metric: str,
    update: int,
) -> None:
    """This run as far as it is known, what is still to come, and the healthy run."""
    low, high, _ = SCALES[metric]

    def draw(x: Sequence[float], y: Sequence[float], name: str, **look: Any) -> None:
        label = word(f"plot.{name}")
        axes.plot(x, np.clip(_drawable(y, low), low, high), label=label, **look)

    steps, values = records["env_steps"], records[metric]
    known = slice(update + 1)
    look: dict[str, Any] = series(0) | {"marker": None}
    draw(steps[known], values[known], "chosen", **look)
    if metric == "clip_frac":
        active = records["clip_frac_active"][known]
        draw(steps[known], active, "clipped_silent", **(look | {"linestyle": ":"}))
    later: dict[str, Any] = {"color": series(0)["color"], "alpha": 0.3, "zorder": 1}
    draw(steps, values, "to_come", linewidth=line_width(0.8), **later)
    draw(healthy["env_steps"], healthy[metric], "healthy", **baseline(), zorder=1)
    here = np.clip(_drawable([values[update]], low), low, high)
    axes.plot([steps[update]], here, marker="o", color=ink(), clip_on=False)


def _drawable(values: Sequence[float], low: float) -> np.ndarray:
    """The values, without those that a logarithmic axis has no place for."""
    known = np.array(values, dtype=float)
    return np.where((low > 0) & (known <= 0), math.nan, known)


def set_scale(axes: Axes, scale: Scale) -> None:
    """Give a panel its axes: the scale, and environment steps of a whole run."""
    if scale.low > 0:
        axes.set_yscale("log")
        axes.minorticks_off()
    axes.set(ylim=(scale.low, scale.high), yticks=scale.ticks)
    axes.set(xlim=(0, 100_000), xticks=(0, 4e4, 8e4))
    axes.set_xlabel(word("plot.metric.env_steps"))
    for axis in (axes.xaxis, axes.yaxis):
        short_ticks(axis)


def remark_on_nothing(axes: Axes, values: Sequence[float], scale: Scale) -> None:
    """Say in the panel why there is no curve: no number, or 0 on a logarithmic axis."""
    known = [value for value in values if not math.isnan(value)]
    # In the upper right: there the healthy run leaves room.
    if not known:
        remark = word("plot.undefined")
    elif scale.low > 0 and max(known) <= 0:
        remark = word("plot.all_zero")
    else:
        return
    text = axes.text(0.97, 0.97, remark, color=ink(), transform=axes.transAxes)
    text.set(ha="right", va="top", fontsize="small")


def plain_number(value: float, digits: int = 3) -> str:
    """A number as a reader would write it: no exponents, one digit of a tiny one."""
    if math.isnan(value):
        return word("plot.no_values")
    if 0 < abs(value) < 1e-3:
        places = -math.floor(math.log10(abs(value)))
        # Rounding may carry into the next place: 0.00096 is 0.001.
        short = f"{value:.{places}f}".rstrip("0")
    else:
        short = f"{float(f'{value:.{digits}g}'):.10f}".rstrip("0").rstrip(".")
    return short.replace("-", "−")


@functools.lru_cache(maxsize=64)
def run_records(run: str) -> dict[str, list[float]]:
    """A stored run's records, a value that is not known as NaN."""
    return {
        name: [math.nan if value is None else value for value in values]
        for name, values in data.load(run)["records"].items()
    }
