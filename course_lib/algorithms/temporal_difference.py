"""TD(0): the value of a policy learnt step by step, before an episode ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.envs.finite import FiniteMDP, sample_episodes
from course_lib.kernels.arguments import require_fraction, require_like

UpdateFn = Callable[[float, float, float, float, float], float]


@dataclass(frozen=True, eq=False)
class TDResult:
    """What TD(0) came to, and its way there."""

    values: Tensor
    """V after the last episode, [S] float64."""
    history: Tensor
    """V before the first and after each episode, [num_episodes + 1, S] float64."""


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
