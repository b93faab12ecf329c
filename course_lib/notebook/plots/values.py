"""Pictures of chapter 02: sweeps, Monte Carlo and its interval."""

import functools

import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.algorithms.evaluation import (
    MonteCarloEstimate,
    monte_carlo_from_episodes,
)
from course_lib.algorithms.evaluation import (
    sweeps as sweep_values,
)
from course_lib.envs.finite import (
    random_walk,
    sample_episodes,
    uniform_policy,
)
from course_lib.exact import mdp as exact
from course_lib.notebook.plots.style import (
    ESTIMATE,
    EXACT,
    GREY,
    LIMIT,
    describe,
    panels,
)
from course_lib.notebook.words import word

INSIDE = slice(1, 6)  # A … E, without the two ends
NAMES = list("ABCDE")
MAX_SWEEPS, MAX_EPISODES = 60, 10_000
NORMAL_95 = 1.96
EPISODE_COUNTS = [10, 30, 100, 300, 1_000, 3_000, MAX_EPISODES]


def value_sweeps(figure: Figure, sweeps: int, gamma: float) -> str:
    """Values of the walk after so many sweeps beside the exact ones, and the error."""
    history, exact_values = _sweep_history(gamma)
    errors = (history - exact_values).abs().amax(-1)  # [MAX_SWEEPS + 1]
    values = history[sweeps]
    left, right = panels(figure, 2)
    left.plot(NAMES, exact_values.numpy(), label=word("plot.exact"), **EXACT)
    left.plot(
        NAMES, values.numpy(), label=word("plot.sweeps", count=sweeps), **ESTIMATE
    )
    left.set_ylim(-0.05, 1.05)
    left.legend(fontsize=8, loc="upper left", frameon=False)
    describe(left, word("plot.values"), word("plot.state"), "V")
    shown = errors.clamp_min(1e-12)
    right.semilogy(shown.numpy(), color=GREY, linewidth=1.2)
    right.semilogy([sweeps], [float(shown[sweeps])], **ESTIMATE)
    right.set_ylim(1e-6, 2.0)
    right.minorticks_off()
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
    return history[:, INSIDE], exact.state_values(mdp, policy, gamma)[INSIDE]


def monte_carlo_interval(figure: Figure, episodes: int, seed: int) -> str:
    """Monte Carlo estimates with 95 % intervals, and how their width shrinks."""
    exact_values, estimates = _monte_carlo_runs(seed)
    estimate = estimates[episodes]
    values = estimate.values[INSIDE]
    bars = NORMAL_95 * estimate.standard_errors[INSIDE]
    left, right = panels(figure, 2)
    left.plot(NAMES, exact_values.numpy(), label=word("plot.exact"), **EXACT)
    left.errorbar(
        NAMES,
        values.numpy(),
        yerr=bars.nan_to_num(0.0).numpy(),
        capsize=4,
        label=word("plot.interval"),
        **(ESTIMATE | {"linestyle": "none"}),
    )
    left.set_ylim(-0.25, 1.25)
    left.legend(fontsize=8, loc="upper left", frameon=False)
    describe(
        left, word("plot.episodes", count=f"{episodes:,}"), word("plot.state"), "V"
    )
    counts = list(estimates)
    errors = [_largest_error(estimates[n], exact_values) for n in counts]
    # At C the walk ends right or left like a coin, so the standard error is 1 / (2 √n).
    right.loglog(counts, [0.5 / n**0.5 for n in counts], label="1 / (2√n)", **LIMIT)
    right.loglog(counts, errors, color=GREY, linewidth=1.2)
    here = _largest_error(estimate, exact_values)
    right.loglog([episodes], [here], **ESTIMATE)
    right.set_ylim(5e-4, 1.0)
    right.minorticks_off()
    right.legend(fontsize=8, loc="upper right", frameon=False)
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


def _largest_error(estimate: MonteCarloEstimate, exact_values: Tensor) -> float:
    """Largest error over the states that were visited at all."""
    return float((estimate.values[INSIDE] - exact_values).abs().nan_to_num(0.0).max())


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
    return exact.state_values(mdp, policy, 1.0)[INSIDE], estimates


def _listing(values: Tensor) -> str:
    pairs = zip(NAMES, values.tolist(), strict=True)
    return ", ".join(f"{name} {value:.3f}" for name, value in pairs)
