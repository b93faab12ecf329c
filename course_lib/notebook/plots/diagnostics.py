"""What a stored run has logged, at one moment of its training."""

from __future__ import annotations

import functools
import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib import data
from course_lib.notebook.plots.lines import (
    faint,
    ink,
    line_width,
    muted,
    series,
    short_ticks,
)
from course_lib.notebook.words import word

HEALTHY = "ppo"
SHOWN: dict[str, tuple[float, ...]] = {
    "episode_return": (0, 250, 500),
    "approx_kl": (1e-6, 1e-4, 1e-2, 1),
    "clip_frac": (0, 0.5, 1),
    "entropy": (0, 0.35, 0.7),
    "explained_variance": (-1, 0, 1),
    "value_loss": (1e-4, 1e-2, 1, 1e2, 1e4),
}
"""Each panel's ticks; its range goes a little further. Positive ones: a log axis."""


def run_diagnostics(figure: Figure, run: str, update: int) -> str:
    """Six numbers of a stored run up to an update, over a healthy run in grey.

    All are means over its 10 seeds. The second curve among the clipped shares, dotted,
    counts only samples whose gradient is 0.

    Args:
        figure: drawn on.
        run: a stored run of PPO.
        update: from 0; the curves before it are drawn in full.

    Returns:
        Alt text: the six numbers at that update.
    """
    records, healthy = _records(run), _records(HEALTHY)
    update = min(update, len(records["update"]) - 1)
    said = []
    for place, (metric, ticks) in enumerate(SHOWN.items()):
        axes = _axes(figure, place)
        _scale(axes, ticks)
        _curves(axes, records, healthy, metric, update)
        here = _number(records[metric][update])
        name = word(f"plot.metric.{metric}")
        axes.set_title(f"{name} {here}", fontsize="small")
        said.append(f"{name} {here}")
        short_ticks(axes.xaxis)
        short_ticks(axes.yaxis)
        if place < 3:
            axes.set_xticklabels([])
        else:
            axes.set_xlabel(word("plot.metric.env_steps"))
    return word(
        "alt.run_diagnostics",
        run=run,
        steps=f"{records['env_steps'][update]:,.0f}",
        numbers=", ".join(said),
    )


def _axes(figure: Figure, place: int) -> Axes:
    """One of six places that no tick label moves."""
    column, row = place % 3, place // 3
    return figure.add_axes((0.075 + 0.325 * column, 0.6 - 0.46 * row, 0.245, 0.32))


def _scale(axes: Axes, ticks: tuple[float, ...]) -> None:
    low, high = ticks[0], ticks[-1]
    if low > 0:
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_ylim(low / 3, high * 3)
    else:
        margin = (high - low) / 20
        axes.set_ylim(low - margin, high + margin)
    axes.set(yticks=ticks, xlim=(0, 100_000), xticks=[0, 50_000, 100_000])


@functools.lru_cache(maxsize=64)
def _records(run: str) -> dict[str, list[float]]:
    """The run's records, a value that is not known as NaN."""
    return {
        name: [math.nan if value is None else value for value in values]
        for name, values in data.load(run)["records"].items()
    }


def _curves(
    axes: Axes,
    records: dict[str, list[float]],
    healthy: dict[str, list[float]],
    metric: str,
    update: int,
) -> None:
    """The healthy run, this one as far as it is known, and what is still to come."""
    thin: dict[str, Any] = {"color": muted(), "linewidth": line_width(0.7)}
    steps, values = records["env_steps"], records[metric]
    axes.plot(healthy["env_steps"], healthy[metric], **thin)
    axes.plot(steps, values, color=faint(), linewidth=line_width(0.7), zorder=0)
    look: dict[str, Any] = series(0) | {"marker": None}
    axes.plot(steps[: update + 1], values[: update + 1], **look)
    if metric == "clip_frac":
        active = records["clip_frac_active"][: update + 1]
        axes.plot(steps[: update + 1], active, **(look | {"linestyle": ":"}))
    axes.plot([steps[update]], [values[update]], marker="o", color=ink(), clip_on=False)


def _number(value: float) -> str:
    if math.isnan(value):
        return word("plot.no_values")
    return f"{value:.3g}".replace("e-0", "e-").replace("-", "−")
