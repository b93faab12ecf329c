"""Values and visits of a finite MDP under a fixed policy, by linear solve, float64."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.envs.finite import FiniteMDP, require_policy
from course_lib.kernels.arguments import require_fraction


def state_values(mdp: FiniteMDP, policy: Tensor, gamma: float) -> Tensor:
    """Solve V = r_pi + gamma * P_pi V over the states that are not terminal.

    Args:
        mdp: the process.
        policy: [S, A], pi(a | s).
        gamma: the discount, in [0, 1].

    Returns:
        V^pi: [S] float64, 0 in terminal states.

    Raises:
        TypeError: policy is no tensor, gamma no number.
        ValueError: policy is no distribution over [S, A], gamma is outside [0, 1],
            or gamma is 1 and from some state the policy never ends.

    Source: Sutton and Barto (2018), equation 4.4 as a linear system.
    """
    gamma = require_fraction("gamma", gamma)
    policy = require_policy(mdp, policy)
    moves = torch.einsum("sa,sat->st", policy, mdp.transition)  # [S, S]
    gained = torch.einsum("sa,sat,sat->s", policy, mdp.transition, mdp.rewards)  # [S]
    inner = ~mdp.terminal
    if gamma == 1.0:
        _require_an_end(mdp, moves, inner)
    system = torch.eye(int(inner.sum()), dtype=torch.float64)
    system -= gamma * moves[inner][:, inner]
    values = torch.zeros(mdp.num_states, dtype=torch.float64)
    values[inner] = torch.linalg.solve(system, gained[inner])
    return values


def action_values(mdp: FiniteMDP, policy: Tensor, gamma: float) -> Tensor:
    """Q(s, a) = sum_s' P(s' | s, a) (r(s, a, s') + gamma * V(s')).

    Args and raises: as `state_values`.

    Returns:
        Q^pi: [S, A] float64, 0 in terminal states.

    Source: Sutton and Barto (2018), equation 4.6.
    """
    values = state_values(mdp, policy, gamma)
    return torch.einsum(
        "sat,sat->sa", mdp.transition, mdp.rewards + float(gamma) * values
    )


def advantages(mdp: FiniteMDP, policy: Tensor, gamma: float) -> Tensor:
    """A(s, a) = Q(s, a) - V(s); under the policy its mean is 0 in every state.

    Args and raises: as `state_values`.

    Returns:
        A^pi: [S, A] float64, 0 in terminal states.

    Source: Schulman et al. (2016), "High-dimensional continuous control using
    generalized advantage estimation", section 2.
    """
    values = state_values(mdp, policy, gamma)
    return action_values(mdp, policy, gamma) - values[:, None]


def visitation(mdp: FiniteMDP, policy: Tensor, *, gamma: float = 1.0) -> Tensor:
    """Expected visits of an episode, sum_t gamma^t P(s_t = s), from mdp's start.

    Args:
        mdp: the process.
        policy: [S, A], pi(a | s).
        gamma: in [0, 1]; below 1 a visit at time t counts gamma^t.

    Returns:
        visits: [S] float64, 0 in terminal states (the episode is over there).

    Raises:
        TypeError: policy is no tensor, gamma no number.
        ValueError: policy is no distribution over [S, A], gamma is outside [0, 1],
            or gamma is 1 and from a state that the start leads to the policy never
            ends.

    Source: Sutton and Barto (2018), equation 9.2.
    """
    gamma = require_fraction("gamma", gamma)
    policy = require_policy(mdp, policy)
    moves = torch.einsum("sa,sat->st", policy, mdp.transition)  # [S, S]
    # Only what the start leads to: a loop elsewhere would make the system singular.
    seen = (mdp.start > 0).double() @ _reachable(moves).double() > 0
    seen &= ~mdp.terminal
    if gamma == 1.0:
        _require_an_end(mdp, moves, seen)
    system = torch.eye(int(seen.sum()), dtype=torch.float64)
    system -= gamma * moves[seen][:, seen].T
    visits = torch.zeros(mdp.num_states, dtype=torch.float64)
    visits[seen] = torch.linalg.solve(system, mdp.start[seen])
    return visits


def _reachable(moves: Tensor) -> Tensor:
    """[S, S] bool: whether the column's state follows the row's in 0 or more moves."""
    reach = (moves > 0) | torch.eye(len(moves), dtype=torch.bool)
    for _ in range(len(moves).bit_length()):  # each squaring doubles the moves
        reach = reach.double() @ reach.double() > 0
    return reach


def _require_an_end(mdp: FiniteMDP, moves: Tensor, wanted: Tensor) -> None:
    ends = _reachable(moves)[:, mdp.terminal].any(-1)
    stuck = [mdp.state_names[s] for s in (wanted & ~ends).nonzero().flatten()]
    if stuck:
        raise ValueError(
            "gamma must be below 1 for a policy that never ends an episode; no "
            f"terminal state follows from {', '.join(stuck)}"
        )
