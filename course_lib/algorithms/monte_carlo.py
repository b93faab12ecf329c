"""Monte Carlo: the value of a policy from whole episodes, with its standard error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from course_lib.envs.finite import Episodes, FiniteMDP, sample_episodes
from course_lib.kernels.arguments import (
    require_fraction,
    require_like,
    require_positive_int,
)
from course_lib.kernels.returns import discounted_returns

ReturnsFn = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True, eq=False)
class MonteCarloEstimate:
    """Mean returns of the visited states, with two standard errors, one of them right.

    What cannot be said is NaN: the value of a state never visited, and the standard
    error of one that fewer than two episodes (or visits) speak of.
    """

    values: Tensor
    """Mean return that followed a counted visit of s, [S] float64."""
    standard_errors: Tensor
    """[S] float64, with the episode as the unit: returns of one episode share
    rewards, episodes share nothing."""
    visits: Tensor
    """Counted visits of s over all episodes, [S] int64."""
    num_episodes: int
    """Episodes averaged over."""
    visit_wise_standard_errors: Tensor
    """[S] float64, the sample standard deviation of the visits over the root of their
    number: too narrow as soon as an episode visits a state twice."""


def monte_carlo(
    mdp: FiniteMDP,
    policy: Tensor,
    *,
    num_episodes: int,
    gamma: float,
    generator: torch.Generator,
    first_visit: bool = False,
    returns_fn: ReturnsFn = discounted_returns,
) -> MonteCarloEstimate:
    """Play episodes and average the returns that followed each state.

    Args:
        mdp: the process to play in.
        policy: [S, A], pi(a | s).
        num_episodes: episodes to play.
        gamma: the discount, in [0, 1].
        generator: the only source of randomness.
        first_visit: count a state's first visit in each episode only.
        returns_fn: as in `monte_carlo_from_episodes`.

    Returns:
        MonteCarloEstimate: terminal states have value and standard errors 0.

    Raises:
        TypeError, ValueError: an argument of another type, shape or range.

    Source: Sutton and Barto (2018), section 5.1.
    """
    episodes = sample_episodes(mdp, policy, num_episodes, generator=generator)
    estimate = monte_carlo_from_episodes(
        episodes,
        mdp.num_states,
        gamma,
        first_visit=first_visit,
        returns_fn=returns_fn,
    )

    def known(numbers: Tensor) -> Tensor:
        return torch.where(mdp.terminal, 0.0, numbers)

    return replace(
        estimate,
        values=known(estimate.values),
        standard_errors=known(estimate.standard_errors),
        visit_wise_standard_errors=known(estimate.visit_wise_standard_errors),
    )


def monte_carlo_from_episodes(
    episodes: Episodes,
    num_states: int,
    gamma: float,
    *,
    first_visit: bool = False,
    returns_fn: ReturnsFn = discounted_returns,
) -> MonteCarloEstimate:
    """Average the returns of given episodes, state by state.

        V(s) = sum_i Y_i / sum_i n_i
        se(s)^2 = N / (N - 1) * sum_i (Y_i - V(s) n_i)^2 / (sum_i n_i)^2

    over episodes i with n_i counted visits of s and the sum Y_i of their returns: a
    ratio of two means over N independent episodes, its error by the delta method. The
    ratio is biased at finite N, except with first_visit. Nothing is bootstrapped:
    a truncated episode counts with the rewards that it had.

    Args:
        episodes: [N, T]; only states, rewards and mask are read.
        num_states: S.
        gamma: the discount, in [0, 1].
        first_visit: count a state's first visit in each episode only.
        returns_fn: returns_fn(rewards, gamma) gets all rewards at once, [N, T] and 0
            where padded, and sums along the last axis. One that was written for a
            single row [T] is noticed and called row by row.

    Raises:
        TypeError, ValueError: an argument of another type or range, or a returns_fn
            whose result has another shape than the rewards.

    Source: Sutton and Barto (2018), sections 5.1 and 5.5; Cochran (1977), "Sampling
    techniques", equation 2.46, for the error of a ratio.
    """
    count = require_positive_int("num_states", num_states)
    gamma = require_fraction("gamma", gamma)
    returns = _returns(returns_fn, episodes, gamma)  # [N, T]
    n, y, y2 = _per_episode(episodes, returns, count, first_visit)  # [N, S] each
    num_visits = n.sum(0)  # [S]
    values = y.sum(0) / num_visits
    spread = (y - values * n).square().sum(0) * len(episodes) / (len(episodes) - 1)
    errors = spread.sqrt() / num_visits
    scatter = (y2.sum(0) - num_visits * values.square()).clamp(min=0.0)
    naive = (scatter / (num_visits - 1) / num_visits).sqrt()
    return MonteCarloEstimate(
        values=values,
        standard_errors=errors.where((n > 0).sum(0) > 1, torch.nan),
        visits=num_visits.long(),
        num_episodes=len(episodes),
        visit_wise_standard_errors=naive.where(num_visits > 1, torch.nan),
    )


def _per_episode(
    episodes: Episodes, returns: Tensor, num_states: int, first_visit: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Counted visits, summed returns and summed squared returns: [N, S] each."""
    shape = (len(episodes), num_states)
    row, column = episodes.mask.nonzero(as_tuple=True)  # real steps, in order of time
    cell = row * num_states + episodes.states[row, column]  # which of the N * S
    followed = returns[row, column]
    if first_visit:
        step = torch.arange(len(cell))
        first = torch.full((len(episodes) * num_states,), len(cell))
        first.scatter_reduce_(0, cell, step, "amin")
        counted = first[cell] == step
        cell, followed = cell[counted], followed[counted]

    def summed(weights: Tensor) -> Tensor:
        return torch.bincount(cell, weights, minlength=shape[0] * shape[1]).view(shape)

    return summed(torch.ones_like(followed)), summed(followed), summed(followed**2)


def _returns(returns_fn: ReturnsFn, episodes: Episodes, gamma: float) -> Tensor:
    rewards = torch.where(episodes.mask, episodes.rewards, 0.0)
    if returns_fn is discounted_returns or _sums_along_last_axis(returns_fn, gamma):
        returns = returns_fn(rewards, gamma)
        require_like("returns_fn's result", returns, rewards.shape, rewards)
        return returns.detach().double()
    rows = torch.zeros_like(rewards)
    for index, length in enumerate(episodes.mask.sum(-1).tolist()):
        row = returns_fn(rewards[index, :length].clone(), gamma)
        require_like("returns_fn's result", row, (length,), rewards)
        rows[index, :length] = row.detach()
    return rows


def _sums_along_last_axis(returns_fn: ReturnsFn, gamma: float) -> bool:
    """Whether two rows together give what each gives alone.

    A loop over range(len(rewards)) means time for a row [T], but episodes for
    [N, T], and would be wrong without an error.
    """
    probe = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], dtype=torch.float64)
    apart = [returns_fn(row.clone(), gamma) for row in probe]
    try:
        together = returns_fn(probe.clone(), gamma)
        return torch.allclose(together, torch.stack(apart).to(together))
    except Exception:  # whatever it says to two rows, it was not written for them
        return False
