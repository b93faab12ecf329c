"""A reader's own run over the stored ones: is it one like them?"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from course_lib import data
from course_lib.algorithms import History
from course_lib.notebook.plots.lines import (
    baseline,
    describe,
    estimate,
    faint,
    limit,
    short_ticks,
)
from course_lib.notebook.words import word

SOLVED = 475.0
"""The mean return of ten episodes at which CartPole counts as solved."""


CHANCE = 6
"""By how many points a right run may fall short of the stored seed that is inside least
often: one run more of the same kind is the worst of eleven now and then."""


@dataclass(frozen=True)
class BandVerdict:
    """A run beside the stored ones; `text` says it in words."""

    solved_at: int | None
    """Env steps at which ten episodes first averaged 475."""
    first_solved: int
    last_solved: int
    """When the first and the last of the stored seeds got there."""
    inside: int
    below: int
    above: int
    """At how many points the run lies inside the band, below it and above it."""
    fewest: int
    most: int
    """At how many points a stored seed lies inside the band of the others."""

    @property
    def points(self) -> int:
        return self.inside + self.below + self.above

    @property
    def reached(self) -> bool:
        """Did it get to 475?"""
        return self.solved_at is not None

    @property
    def within(self) -> bool:
        """Is it inside as often as the stored seed that is so least often?"""
        return self.points > 0 and self.inside >= self.fewest

    @property
    def plausible(self) -> bool:
        """Is it within the band, or so little outside that it may be chance?"""
        return self.points > 0 and self.inside >= self.fewest - CHANCE

    @property
    def text(self) -> str:
        names = {
            "at": f"{self.solved_at:,}" if self.solved_at is not None else "",
            "first": f"{self.first_solved:,}",
            "last": f"{self.last_solved:,}",
            "inside": self.inside,
            "below": self.below,
            "above": self.above,
            "points": self.points,
            "fewest": self.fewest,
            "most": self.most,
        }
        reached = "reached" if self.reached else "not_reached"
        lines = [f"own_run.{reached}", f"own_run.{self._where}"]
        if self._where != "unknown" and not self.within:
            lines.append(f"own_run.{self._why}")
        return "\n".join(word(line, **names) for line in lines)

    @property
    def _where(self) -> str:
        if not self.points:
            return "unknown"
        return "within" if self.within else "outside"

    @property
    def _why(self) -> str:
        if self.plausible:
            return "chance"
        return "below_the_band" if self.below >= self.above else "above_the_band"

    def __repr__(self) -> str:
        return self.text


def band_verdict(history: History, stored: str = "ppo", seed: int = 0) -> BandVerdict:
    """Compare a run with the seeds of a stored one, by the mean return of ten episodes.

    The band reaches from the lowest to the highest of the stored seeds. Even a right
    run leaves it here and there; how often is told by the stored seeds themselves, each
    held against the band of the others.

    Args:
        history: of a run with the stored run's config, whole or its beginning.
        stored: see `course_lib.data.names`.
        seed: which agent of the run, as an index.

    Raises:
        ValueError: no such stored run.
    """
    steps, rows = _stored(stored)
    own = _own(history, steps, seed)
    there = np.isfinite(own) & np.isfinite(rows).all(0)
    own, rows = own[there], rows[:, there]
    low, high = rows.min(0), rows.max(0)
    each = [_inside(row, np.delete(rows, i, 0)) for i, row in enumerate(rows)]
    solved = [at for at in data.load(stored)["solved_at"] if at is not None]
    return BandVerdict(
        solved_at=history.solved_at(SOLVED, seed=seed),
        first_solved=min(solved),
        last_solved=max(solved),
        inside=_inside(own, rows),
        below=int((own < low).sum()),
        above=int((own > high).sum()),
        fewest=min(each),
        most=max(each),
    )


def run_over_band(
    figure: Figure, history: History, stored: str = "ppo", seed: int = 0
) -> str:
    """Draw a reader's run over the band of a stored one; arguments as `band_verdict`.

    Returns:
        Alt text: when it reached 475, where it ends, and how often it is in the band.
    """
    steps, rows = _stored(stored)
    axes = figure.subplots()
    whole = np.isfinite(rows).all(0)
    label = word("plot.stored_seeds", count=len(rows))
    axes.fill_between(
        steps[whole],
        rows.min(0)[whole],
        rows.max(0)[whole],
        color=faint(),
        label=label,
    )
    middle = np.median(rows, 0)
    axes.plot(steps, middle, label=word("plot.median"), **baseline())
    axes.axhline(SOLVED, label=word("plot.solved"), **limit())
    own = _own(history, steps, seed)
    look = estimate() | {"markevery": 8}
    axes.plot(steps, own, label=word("plot.own_run"), **look)
    axes.legend(loc="lower right")
    axes.set_ylim(0, 520)
    short_ticks(axes.xaxis)
    x, y = word("plot.metric.env_steps"), word("plot.mean_of_ten")
    describe(axes, "", x, y)
    return _said(band_verdict(history, stored, seed), own)


def _said(verdict: BandVerdict, own: np.ndarray) -> str:
    known = own[np.isfinite(own)]
    reached = word("alt.own_run_not_reached")
    if verdict.solved_at is not None:
        reached = word("alt.own_run_reached", at=f"{verdict.solved_at:,}")
    return word(
        "alt.own_run",
        reached=reached,
        last=f"{known[-1]:.0f}" if len(known) else word("plot.no_values"),
        inside=verdict.inside,
        below=verdict.below,
        above=verdict.above,
        points=verdict.points,
    )


@functools.lru_cache(maxsize=8)
def _stored(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Env steps [N], and the curve of each seed [S, N], NaN where there is none."""
    run = data.load(name)
    return np.array(run["env_steps"]), np.array(run["returns"], dtype=float)


def _own(history: History, steps: Sequence[int] | np.ndarray, seed: int) -> np.ndarray:
    """The run's curve at the stored steps, to a tenth as theirs; NaN beyond its end."""
    end = history.env_steps[seed] if history.env_steps else 0
    means = history.recent_returns([int(step) for step in steps], seed=seed)
    pairs = zip(steps, means, strict=True)
    known = [mean if step <= end else math.nan for step, mean in pairs]
    return np.round(np.array(known), 1)


def _inside(row: np.ndarray, others: np.ndarray) -> int:
    """At how many points a curve lies between the lowest and the highest of others."""
    return int(((row >= others.min(0)) & (row <= others.max(0))).sum())
