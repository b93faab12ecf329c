"""The picture of "Find the bug": what a run has logged, beside a healthy one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib import data
from course_lib.notebook.plots.diagnostics import (
    HEALTHY,
    SCALES,
    plain_number,
    remark_on_nothing,
    run_records,
    set_scale,
)
from course_lib.notebook.plots.lines import baseline, estimate, faint, line_width
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


MOMENTS = (0, 5, 11, 23, 47)
"""The updates whose values the alt text tells."""


def sick_run(figure: Figure, case: str) -> str:
    """Draw seven numbers of a run with a bug over training, before a healthy run's.

    Both are means over 10 seeds. The grey band behind the return reaches from the
    lowest to the highest of the healthy run's seeds; of the other numbers only the mean
    is stored. Where a curve would leave its panel it is drawn on the edge.

    Args:
        figure: drawn on.
        case: the run's letter, one of `CASES`.

    Returns:
        Alt text: each curve's values at five moments, beside the healthy run's. Neither
        it nor the picture tells the run's name.

    Raises:
        ValueError: no such case.
    """
    sick, healthy = run_records(stored_name(case)), run_records(HEALTHY)
    said = []
    for place, (metric, scale) in enumerate(SCALES.items()):
        axes = _panel(figure, place)
        name = word(f"plot.metric.{metric}")
        axes.set_title(name, fontsize="small")
        set_scale(axes, scale)
        axes.set_xticks((0, 8e4))
        if metric == "episode_return":
            _band(axes)
        for records, label, look in (
            (healthy, "healthy", baseline()),
            (sick, "sick", estimate() | {"markevery": 6, **_thin()}),
        ):
            shown = np.clip(records[metric], scale.low, scale.high)
            axes.plot(records["env_steps"], shown, label=word(f"plot.{label}"), **look)
        remark_on_nothing(axes, sick[metric], scale)
        told = {"sick": _said(sick[metric]), "healthy": _said(healthy[metric])}
        said.append(word("alt.sick_panel", metric=name, **told))
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="center", bbox_to_anchor=_cell(len(SCALES)))
    moments = ", ".join(f"{sick['env_steps'][place]:,.0f}" for place in MOMENTS)
    return word("alt.sick_run", moments=moments, panels=" ".join(said))


def _cell(place: int) -> tuple[float, float, float, float]:
    """One of eight equal parts of the figure, seven for panels, one for the legend."""
    return (place % 4 / 4, 0.5 - place // 4 / 2, 0.25, 0.5)


def _panel(figure: Figure, place: int) -> Axes:
    """Axes at a place that no tick label moves."""
    left, bottom, width, height = _cell(place)
    inner = (left + 0.065, bottom + 0.15, width - 0.08, height - 0.23)
    return figure.add_axes(inner)


def _said(values: list[float]) -> str:
    """A curve's values at `MOMENTS`, in two digits."""
    told = [values[place] for place in MOMENTS]
    if all(math.isnan(value) for value in told):
        return word("alt.undefined")
    return ", ".join(plain_number(value, digits=2) for value in told)


def _thin() -> dict[str, Any]:
    return {"linewidth": line_width(0.8), "markersize": 3 * line_width()}


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
