"""Pictures of chapter 02: sweeps, Monte Carlo and its interval, TD(0)."""

import functools
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.algorithms import (
    MonteCarloEstimate,
    monte_carlo_from_episodes,
    td_zero,
)
from course_lib.algorithms import sweeps as sweep_values
from course_lib.envs.finite import (
    random_walk,
    sample_episodes,
    uniform_policy,
)
from course_lib.exact.mdp import state_values
from course_lib.notebook.plots.lines import (
    baseline,
    describe,
    estimate,
    exact,
    limit,
    line_width,
    panels,
    short_ticks,
)
from course_lib.notebook.words import word

INSIDE = slice(1, 6)  # A … E, without the two ends
NAMES = list("ABCDE")
MAX_SWEEPS, MAX_EPISODES = 60, 10_000
SMALLEST_ERROR = 1e-6
NORMAL_95 = 1.96
TD_EPISODES, TD_RUNS = 400, 10
EPISODE_COUNTS = [10, 30, 100, 300, 1_000, 3_000, MAX_EPISODES]


def value_sweeps(figure: Figure, sweeps: int, gamma: float) -> str:
    """Values of the walk after so many sweeps beside the exact ones, and the error."""
    history, exact_values = _sweep_history(gamma)
    errors = (history - exact_values).abs().amax(-1)  # [MAX_SWEEPS + 1]
    values = history[sweeps]
    left, right = panels(figure, 2)
    left.plot(NAMES, exact_values.numpy(), label=word("plot.exact"), **exact())
    left.plot(
        NAMES, values.numpy(), label=word("plot.sweeps", count=sweeps), **estimate()
    )
    left.set_ylim(-0.05, 1.05)
    left.legend(loc="upper left")
    describe(left, word("plot.values"), word("plot.state"), "V")
    shown = errors.clamp_min(1e-12)
    right.semilogy(shown.numpy(), **baseline())
    # An error below the axis keeps its dot, on the axis.
    dot = max(float(errors[sweeps]), SMALLEST_ERROR)
    right.semilogy([sweeps], [dot], clip_on=False, **estimate())
    right.set_ylim(SMALLEST_ERROR, 2.0)
    right.minorticks_off()
    short_ticks(right.yaxis)
    describe(right, word("plot.largest_error"), word("plot.sweeps_axis"), "")
    return word(
        "alt.value_sweeps",
        sweeps=sweeps,
        gamma=f"{gamma:g}",
        values=_listing(values),
        exact=_listing(exact_values),
        error=f"{float(errors[sweeps]):.2g}",
    )


@functools.lru_cache(maxsize=64)
def _sweep_history(gamma: float) -> tuple[Tensor, Tensor]:
    mdp = random_walk()
    policy = uniform_policy(mdp)
    history = sweep_values(mdp, policy, gamma, MAX_SWEEPS)  # [MAX_SWEEPS + 1, S]
    return history[:, INSIDE], state_values(mdp, policy, gamma)[INSIDE]


def monte_carlo_interval(figure: Figure, episodes: int, seed: int) -> str:
    """Monte Carlo estimates with 95 % intervals, and how their width shrinks."""
    exact_values, estimates = _monte_carlo_runs(seed)
    chosen = estimates[episodes]
    values = chosen.values[INSIDE]
    bars = NORMAL_95 * chosen.standard_errors[INSIDE]
    left, right = panels(figure, 2)
    left.plot(NAMES, exact_values.numpy(), label=word("plot.exact"), **exact())
    left.errorbar(
        NAMES,
        values.numpy(),
        yerr=bars.nan_to_num(0.0).numpy(),
        capsize=4,
        label=word("plot.interval"),
        **(estimate() | {"linestyle": "none"}),
    )
    left.set_ylim(-0.25, 1.25)
    left.legend(loc="upper left")
    describe(
        left, word("plot.episodes", count=f"{episodes:,}"), word("plot.state"), "V"
    )
    counts = list(estimates)
    errors = [_largest_error(estimates[n], exact_values) for n in counts]
    at_c = float(estimates[MAX_EPISODES].standard_errors[3]) * MAX_EPISODES**0.5
    line = [at_c / n**0.5 for n in counts]
    right.loglog(counts, line, label=word("plot.standard_error"), **limit())
    right.loglog(counts, errors, **baseline())
    here = _largest_error(chosen, exact_values)
    right.loglog([episodes], [here], **estimate())
    right.set_ylim(5e-4, 1.0)
    right.minorticks_off()
    short_ticks(right.xaxis)
    short_ticks(right.yaxis)
    right.legend(loc="upper right")
    describe(right, word("plot.largest_error"), word("plot.episodes_axis"), "")
    inside = (values - exact_values).abs() <= bars
    return word(
        "alt.monte_carlo_interval",
        episodes=f"{episodes:,}",
        seed=seed,
        values=_listing(values),
        widths=_listing(bars),
        inside=int(inside.sum()),
        error=f"{here:.2g}",
    )


def _largest_error(found: MonteCarloEstimate, exact_values: Tensor) -> float:
    """Largest error over the states that were visited at all."""
    return float((found.values[INSIDE] - exact_values).abs().nan_to_num(0.0).max())


@functools.lru_cache(maxsize=8)
def _monte_carlo_runs(
    seed: int,
) -> tuple[Tensor, dict[int, MonteCarloEstimate]]:
    mdp = random_walk()
    policy = uniform_policy(mdp)
    generator = torch.Generator().manual_seed(seed)
    episodes = sample_episodes(mdp, policy, MAX_EPISODES, generator=generator)
    estimates = {
        count: monte_carlo_from_episodes(episodes.first(count), mdp.num_states, 1.0)
        for count in EPISODE_COUNTS
    }
    return state_values(mdp, policy, 1.0)[INSIDE], estimates


def td_learning(figure: Figure, step_size: float, runs: int) -> str:
    """Error of TD(0) over the episodes: every run, and their mean."""
    errors = _td_errors(step_size)[:runs]  # [runs, TD_EPISODES + 1]
    (axes,) = panels(figure, 1)
    for error in errors:
        axes.plot(error.numpy(), **(baseline() | {"linewidth": line_width(0.4)}))
    mean = errors.mean(0)
    label = word("plot.mean_of", count=runs)
    axes.plot(mean.numpy(), label=label, **_plain(estimate()))
    axes.set_ylim(0.0, 0.3)
    axes.legend(loc="upper right")
    describe(axes, word("plot.td_error"), word("plot.episodes_axis"), "")
    late = errors[:, TD_EPISODES // 2 :]
    return word(
        "alt.td_learning",
        step_size=f"{step_size:g}",
        runs=runs,
        start=f"{float(mean[0]):.3f}",
        end=f"{float(late.mean()):.3f}",
        lowest=f"{float(late.min()):.3f}",
        highest=f"{float(late.max()):.3f}",
    )


def _plain(line: dict[str, Any]) -> dict[str, Any]:
    return line | {"marker": None}  # a marker at each of 400 episodes would be a band


@functools.lru_cache(maxsize=16)
def _td_errors(step_size: float) -> Tensor:
    """Root mean squared errors over A … E: [TD_RUNS, TD_EPISODES + 1]."""
    mdp = random_walk()
    policy = uniform_policy(mdp)
    exact_values = state_values(mdp, policy, 1.0)
    generator = torch.Generator().manual_seed(0)
    runs = [
        td_zero(
            mdp,
            policy,
            num_episodes=TD_EPISODES,
            gamma=1.0,
            step_size=step_size,
            generator=generator,
            initial_values=torch.full((mdp.num_states,), 0.5),
        ).history
        for _ in range(TD_RUNS)
    ]
    errors = (torch.stack(runs) - exact_values)[..., INSIDE]
    return errors.square().mean(-1).sqrt()


def _listing(values: Tensor) -> str:
    pairs = zip(NAMES, values.tolist(), strict=True)
    return ", ".join(f"{name} {value:.3f}" for name, value in pairs)
