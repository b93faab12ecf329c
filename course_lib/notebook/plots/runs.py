"""Pictures of stored training runs: bands over seeds, details, diagnostics."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_lib import data
from course_lib.notebook.plots.lines import (
    ground,
    ink,
    line_width,
    muted,
    panels,
    series,
    series_color,
    short_ticks,
)
from course_lib.notebook.words import word

SOLVED = 475.0
STUDENT_95 = 2.262
"""Of 10 seeds: Student's t with 9 degrees of freedom, two-sided 95 %."""

END = 98_304
"""Environment steps of a stored run."""
LEAST = -150.0
"""A difference below this is told in figures, to leave room for the small ones."""

Curve = tuple[Sequence[float], Sequence[float]]
"""A reader's own run: environment steps, and the mean return of 10 episodes there."""


def run_name(name: str) -> str:
    """What a stored run is called in pictures and tables."""
    return word(f"run.{name}")


@functools.lru_cache(maxsize=64)
def _band(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Env steps, mean over the seeds, half its 95 % interval; where all have one."""
    run = data.load(name)
    rows = np.array(run["returns"], dtype=float)  # [seeds, N], None as NaN
    whole = np.isfinite(rows).all(0)
    steps, rows = np.array(run["env_steps"])[whole], rows[:, whole]
    return steps, rows.mean(0), half_width(rows)


def half_width(rows: np.ndarray) -> np.ndarray:
    """Half the 95 % interval of the mean of 10 independent numbers, over axis 0."""
    return np.asarray(STUDENT_95 * rows.std(0, ddof=1) / math.sqrt(len(rows)))


def seconds_a_step(name: str) -> float:
    """CPU seconds of an environment step when one seed is trained alone, all in all."""
    run = data.load(name)
    first = [value is not None for value in run["returns"][0]]
    last = max(place for place, known in enumerate(first) if known)
    return float(run["cpu_seconds_of_one_seed_alone"] / run["env_steps"][last])


def learning_bands(
    figure: Figure,
    names: Sequence[str],
    own: Curve | None = None,
    most_steps: int = END,
    most_seconds: float = 12.0,
) -> str:
    """Mean return over 10 seeds with its 95 % interval, by steps and by CPU time.

    Args:
        figure: drawn on.
        names: stored runs, at most 6.
        own: a reader's run, drawn over the bands of the left panel.
        most_steps, most_seconds: where the two axes end.

    Returns:
        Alt text: of each run, where it ends and when its mean first reaches 475; of the
        reader's own, if there is one, where it ends.
    """
    left, right = panels(figure, 2, sharey=True)
    for index, name in enumerate(names):
        _draw_band(left, name, index, most=most_steps)
        _draw_band(right, name, index, most_seconds, seconds_a_step(name))
    if own is not None:
        left.plot(*own, color=ink(), linewidth=line_width(1.6), label=word("run.own"))
    _returns_axes(left, most_steps, word("plot.metric.env_steps"))
    _returns_axes(right, most_seconds, word("plot.cpu_seconds"))
    left.set_title(word("plot.ten_episodes"))
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=3)
    said = [_band_said(name) for name in names]
    if own is not None and len(own[1]):
        ends = {"last": f"{own[1][-1]:.0f}", "steps": f"{own[0][-1]:,}"}
        said.append(word("alt.band_own", **ends))
    return word("alt.learning_bands", runs=", ".join(said))


def _draw_band(
    axes: Axes, name: str, index: int, most: float, scale: float = 1.0
) -> None:
    """One run's mean and interval up to `most`, its steps times `scale`."""
    look: dict[str, Any] = series(index)
    look |= {"markevery": (4 + 2 * index, 16), "markersize": 3 * line_width()}
    steps, mean, half = _band(name)
    x = steps * scale
    seen = x <= most
    low, high = (mean - half)[seen], (mean + half)[seen]
    fill = {"color": look["color"], "alpha": 0.2, "linewidth": 0}
    axes.fill_between(x[seen], low, high, **fill)
    axes.plot(x[seen], mean[seen], label=run_name(name), **look)


def _returns_axes(axes: Axes, most: float, x: str) -> None:
    axes.axhline(SOLVED, color=muted(), linestyle=":")
    axes.set(xlim=(0, most), ylim=(0, 520), xlabel=x)
    short_ticks(axes.xaxis)


def bands_and_record(
    figure: Figure, names: Sequence[str], metric: str = "approx_kl"
) -> str:
    """Mean returns with 95 % intervals; beside them a number that was logged.

    Args:
        figure: drawn on.
        names: stored runs, at most 6.
        metric: name of a record, positive; its axis is logarithmic.

    Returns:
        Alt text: where each run ends, and the number's mean over its training.
    """
    left, right = panels(figure, 2)
    said = []
    for index, name in enumerate(names):
        _draw_band(left, name, index, most=END)
        records = data.load(name)["records"]
        values = np.array(records[metric], dtype=float)
        look: dict[str, Any] = series(index)
        look |= {"markevery": (4 + 2 * index, 16), "markersize": 3 * line_width()}
        right.semilogy(records["env_steps"], values, **look)
        said.append(
            word(
                "alt.band_record",
                band=_band_said(name),
                value=f"{np.nanmean(values):.2g}",
            )
        )
    _returns_axes(left, END, word("plot.metric.env_steps"))
    left.set_title(word("plot.ten_episodes"))
    right.set(xlim=(0, END), xlabel=word("plot.metric.env_steps"))
    right.set_title(word("plot.logged", metric=word(f"plot.metric.{metric}")))
    right.minorticks_off()
    for axis in (right.xaxis, right.yaxis):
        short_ticks(axis)
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper left", ncols=2)
    name = word(f"plot.metric.{metric}")
    return word("alt.bands_and_record", metric=name, runs="; ".join(said))


def _band_said(name: str) -> str:
    steps, mean, half = _band(name)
    there = np.flatnonzero(mean >= SOLVED)
    reached = (
        word("alt.band_reached", steps=f"{steps[there[0]]:,}")
        if len(there)
        else word("alt.band_never")
    )
    return word(
        "alt.band",
        name=run_name(name),
        last=f"{mean[-1]:.0f} ± {half[-1]:.0f}",
        steps=f"{steps[-1]:,}",
        reached=reached,
    )


def detail_effects(figure: Figure, names: Sequence[str]) -> str:
    """What each change does to PPO: difference over training, steps to 475.

    Left, the mean return over the whole training, seed by seed minus PPO's own: its
    mean and 95 % interval. Right, the steps at which each of the 10 seeds reached 475;
    who did not stands beyond the end.

    Args:
        figure: drawn on.
        names: stored runs; drawn from the largest loss to the largest gain, as a table
            sorted by the difference has them.

    Returns:
        Alt text: each mean difference with its interval, and how many reached 475.
    """
    names = sorted(names, key=difference)
    left, right = panels(figure, 2, sharey=True)
    left.axvline(0.0, color=muted(), linewidth=line_width(0.8))
    said = []
    for place, name in enumerate(names):
        mean, half = difference(name)
        told = f"{_signed(mean)} ± {half:.0f}"
        if mean < LEAST:
            text = left.text(LEAST, place, f" ← {told}")
            text.set(fontsize="small", va="center")
        else:
            _interval(left, place, mean, half)
        count = _solving_times(right, place, data.load(name)["solved_at"])
        said.append(
            word(
                "alt.detail",
                name=run_name(name),
                difference=told,
                count=count,
            )
        )
    left.set_yticks(range(len(names)), [run_name(name) for name in names])
    left.set_ylim(len(names) - 0.5, -0.5)
    left.set(xlim=(LEAST, -LEAST / 3), xlabel=word("plot.difference"))
    right.set(xlim=(0, 1.25 * END), xlabel=word("plot.steps_to_solve"))
    right.set_xticks([0, 50_000, 100_000])
    short_ticks(right.xaxis)
    return word("alt.detail_effects", details="; ".join(said))


def _signed(value: float) -> str:
    """A whole number with its sign; 0 has none."""
    whole = round(value)
    return f"{whole:+d}".replace("-", "−") if whole else "0"


def _interval(axes: Axes, place: int, mean: float, half: float) -> None:
    """A mean and its interval; a hollow diamond where the interval holds 0."""
    clear = abs(mean) > half
    look: dict[str, Any] = {"color": series_color(0 if clear else 5)}
    look |= {"marker": "o", "markerfacecolor": look["color"]}
    if not clear:
        look |= {"marker": "D", "markerfacecolor": ground()}
    look["markersize"] = 3.5 * line_width()
    axes.errorbar([mean], [place], xerr=[half], capsize=3, **look)


def _solving_times(axes: Axes, place: int, solved: list[int | None]) -> int:
    """A tick for each seed that reached 475, and how many did not; returns the rest."""
    times = [step for step in solved if step is not None]
    look: dict[str, Any] = {"marker": "|", "markersize": 5 * line_width()}
    look |= {"linestyle": "none", "color": series_color(0)}
    axes.plot(times, [place] * len(times), **look)
    missing = len(solved) - len(times)
    if missing:
        text = axes.text(1.03 * END, place, word("plot.unsolved", count=missing))
        text.set(fontsize="small", va="center")
    return len(times)


def difference(name: str, other: str = "ppo") -> tuple[float, float]:
    """Mean return over training, minus another run's with the same seeds.

    Returns:
        The mean over the 10 seeds, and half its 95 % interval.
    """
    rows = _over_training(name) - _over_training(other)
    return float(rows.mean()), float(half_width(rows))


@functools.lru_cache(maxsize=64)
def _over_training(name: str) -> np.ndarray:
    """Each seed's mean over its curve: [seeds]."""
    return np.asarray(np.nanmean(np.array(data.load(name)["returns"], dtype=float), 1))
