"""What is a policy worth? Three ways to find out.

`policy_evaluation` sweeps over a known P and r; `monte_carlo` averages whole episodes
and `td_zero` learns from each step, and these two need only episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from course_lib.envs.finite import (
    Episodes,
    FiniteMDP,
    require_policy,
    sample_episodes,
)
from course_lib.kernels.arguments import (
    require_fraction,
    require_like,
    require_positive_int,
)
from course_lib.kernels.returns import discounted_returns

BackupFn = Callable[[FiniteMDP, Tensor, Tensor, float], Tensor]
ReturnsFn = Callable[[Tensor, float], Tensor]
UpdateFn = Callable[[float, float, float, float, float], float]


@dataclass(frozen=True, eq=False)
class SweepResult:
    """What policy evaluation by sweeps came to."""

    values: Tensor
    """V after the last sweep, [S] float64."""
    num_sweeps: int
    """Sweeps done."""
    max_changes: Tensor
    """max_s |V_new(s) - V_old(s)| of each sweep, [num_sweeps] float64."""
    converged: bool
    """Whether the last change was within `tol`."""


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


@dataclass(frozen=True, eq=False)
class TDResult:
    """What TD(0) came to, and its way there."""

    values: Tensor
    """V after the last episode, [S] float64."""
    history: Tensor
    """V before the first and after each episode, [num_episodes + 1, S] float64."""


def expected_backup(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    """One synchronous sweep of the Bellman expectation equation.

        V'(s) = sum_a pi(a|s) sum_s' P(s'|s,a) (r(s,a,s') + gamma V(s'))

    Args:
        mdp: the process.
        policy: [S, A], pi(a | s).
        values: [S], V; what it holds for terminal states is taken as 0.
        gamma: the discount, in [0, 1].

    Returns:
        V': [S] float64, 0 in terminal states; `values` is not changed.

    Raises:
        TypeError, ValueError: an argument of another type, shape or range.

    Source: Sutton and Barto (2018), equation 4.5.
    """
    gamma = require_fraction("gamma", gamma)
    require_like("values", values, (mdp.num_states,), mdp.transition)
    after = torch.where(mdp.terminal, 0.0, values.double())  # [S]
    outcomes = mdp.rewards + gamma * after  # [S, A, S]
    action_values = (mdp.transition * outcomes).sum(-1)  # [S, A]
    return (require_policy(mdp, policy) * action_values).sum(-1)


def policy_evaluation(
    mdp: FiniteMDP,
    policy: Tensor,
    *,
    gamma: float,
    tol: float = 1e-10,
    max_sweeps: int = 100_000,
    backup_fn: BackupFn = expected_backup,
) -> SweepResult:
    """Sweep from V = 0 until no value changes by more than `tol`.

    Args:
        mdp: the process.
        policy: [S, A], pi(a | s).
        gamma: the discount, in [0, 1].
        tol: the largest change of a last sweep, in units of reward.
        max_sweeps: stop here in any case; `converged` then says False.
        backup_fn: backup_fn(mdp, policy, values, gamma) -> [S], one sweep.

    Raises:
        TypeError, ValueError: an argument of another type or range, or a backup_fn
            that returns something other than [S].

    Source: Sutton and Barto (2018), section 4.1.
    """
    gamma = require_fraction("gamma", gamma)
    values = torch.zeros(mdp.num_states, dtype=torch.float64)
    changes: list[float] = []
    for _ in range(require_positive_int("max_sweeps", max_sweeps)):
        after = _swept(backup_fn, mdp, policy, values, gamma)
        changes.append((after - values).abs().max().item())
        values = after
        if changes[-1] <= tol:
            break
    return SweepResult(
        values,
        len(changes),
        torch.tensor(changes, dtype=torch.float64),
        changes[-1] <= tol,
    )


def sweeps(
    mdp: FiniteMDP,
    policy: Tensor,
    gamma: float,
    num_sweeps: int,
    *,
    backup_fn: BackupFn = expected_backup,
) -> Tensor:
    """V before the first and after each of `num_sweeps` sweeps: [num_sweeps + 1, S].

    Args and raises: as `policy_evaluation`.
    """
    gamma = require_fraction("gamma", gamma)
    history = [torch.zeros(mdp.num_states, dtype=torch.float64)]
    for _ in range(require_positive_int("num_sweeps", num_sweeps)):
        history.append(_swept(backup_fn, mdp, policy, history[-1], gamma))
    return torch.stack(history)


def _swept(
    backup_fn: BackupFn, mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    # A copy, so that a backup that works in place still leaves the old values.
    after = backup_fn(mdp, policy, values.clone(), gamma)
    require_like("backup_fn's result", after, (mdp.num_states,), values)
    return after.detach().double()


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


def td_update(
    value: float, reward: float, next_value: float, gamma: float, step_size: float
) -> float:
    """V(s) + step_size * (r + gamma * V(s') - V(s)).

    V(s') is 0 where s' is terminal. Source: Sutton and Barto (2018), equation 6.2.
    """
    return value + step_size * (reward + gamma * next_value - value)


def td_zero(
    mdp: FiniteMDP,
    policy: Tensor,
    *,
    num_episodes: int,
    gamma: float,
    step_size: float,
    generator: torch.Generator,
    initial_values: Tensor | None = None,
    update_fn: UpdateFn = td_update,
) -> TDResult:
    """Tabular TD(0): after every step, move V(s) towards r + gamma * V(s').

    Args:
        mdp: the process to play in.
        policy: [S, A], pi(a | s).
        num_episodes: episodes to play.
        gamma: the discount, in [0, 1].
        step_size: in [0, 1], the share of the TD error that V(s) moves by.
        generator: the only source of randomness.
        initial_values: [S], V at the start; None means 0. Terminal states are set
            to 0 in any case.
        update_fn: update_fn(V(s), r, V(s'), gamma, step_size) -> new V(s), of floats.

    Raises:
        TypeError, ValueError: an argument of another type, shape or range.

    Source: Sutton (1988), "Learning to predict by the methods of temporal
    differences"; Sutton and Barto (2018), section 6.1.
    """
    gamma = require_fraction("gamma", gamma)
    step_size = require_fraction("step_size", step_size)
    # The policy does not look at V, so the episodes may be played before.
    episodes = sample_episodes(mdp, policy, num_episodes, generator=generator)
    start = torch.zeros(mdp.num_states, dtype=torch.float64)
    if initial_values is not None:
        require_like("initial_values", initial_values, start.shape, start)
        start = torch.where(mdp.terminal, 0.0, initial_values.double())
    values = start.tolist()
    history = [list(values)]
    for index, length in enumerate(episodes.mask.sum(-1).tolist()):
        for s, r, after in zip(
            episodes.states[index, :length].tolist(),
            episodes.rewards[index, :length].tolist(),
            episodes.next_states[index, :length].tolist(),
            strict=True,
        ):
            values[s] = update_fn(values[s], r, values[after], gamma, step_size)
        history.append(list(values))
    table = torch.tensor(history, dtype=torch.float64)  # [num_episodes + 1, S]
    return TDResult(table[-1], table)
