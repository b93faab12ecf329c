"""Policy evaluation by sweeps: the value of a policy where P and r are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.envs.finite import FiniteMDP, require_policy
from course_lib.kernels.arguments import (
    require_fraction,
    require_like,
    require_positive_int,
)

BackupFn = Callable[[FiniteMDP, Tensor, Tensor, float], Tensor]


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
