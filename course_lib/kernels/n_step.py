"""Advantages from n rewards and then a value: between one TD error and the return."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.kernels.arguments import require_fraction, require_positive_int
from course_lib.kernels.engines import wide_dtype
from course_lib.kernels.steps import checked_steps, refuse_nan_steps


def n_step_advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor | None = None,
    gamma: float,
    n: int,
    validate: bool = False,
) -> Tensor:
    """Look n steps ahead: A_t = r_t + ... + gamma^(n-1) r_{t+n-1} + gamma^n V - V(s_t).

    V is the value of the state that step t+n-1 really reached. Where the episode or
    the row ends before that, the sum ends there too: with 0 after a terminated step,
    with next_values after a truncated one and after the row's last step. So n = 1 is
    the TD error, and n of at least T the return less V(s_t). Where every next value
    is the value of the step that follows, `gae` is the mean of these over n with the
    weights (1 - lam) lam^(n-1), the return taking the weight of the tail. What is not
    used reaches no result. No gradient flows.

    Args:
        rewards: [..., T], r_t. Integers are promoted.
        values: [..., T], V(s_t).
        next_values: [..., T], the value of the state that step t really reached,
            before any reset.
        terminated: [..., T] bool, the episode ended at t by the task's own rule.
        truncated: [..., T] bool, it was cut off at t. None means nowhere.
        gamma: the discount, in [0, 1].
        n: how many rewards to add up, at least 1; costs one pass over the rows each.
        validate: look for NaN on an accelerator too; on the CPU that always happens.

    Returns:
        advantages: [..., T], of the dtype to which torch promotes the three.

    Raises:
        TypeError: no tensor, flags that are not boolean, gamma or n of another type.
        ValueError: gamma outside [0, 1], n below 1, or a shape or device unlike the
            rewards'.
        NaNInputError: a NaN in a reward, value or next value that is used.

    Source: Sutton and Barto (2018), equation 7.1 (eq-n-step).

    >>> n_step_advantages(torch.tensor([1.0, 1.0, 1.0]), torch.zeros(3),
    ...                   torch.tensor([0.0, 0.0, 8.0]), gamma=0.5, n=2,
    ...                   terminated=torch.zeros(3, dtype=torch.bool))
    tensor([1.5000, 3.5000, 5.0000])
    """
    steps = checked_steps(rewards, values, next_values, terminated, truncated)
    gamma = require_fraction("gamma", gamma)
    n = require_positive_int("n", n)
    wide = wide_dtype(steps.dtype)
    gained = rewards.detach().to(wide)
    total = gained
    if gamma > 0:  # a discount of 0 looks at no value, not even an infinite one
        last = (gamma * next_values.detach().to(wide)).masked_fill(terminated, 0.0)
        total = gained + last
        cut = steps.cut[..., :-1]
        for _ in range(min(n, rewards.shape[-1]) - 1):
            later = last.clone()
            later[..., :-1] = torch.where(cut, last[..., :-1], gamma * total[..., 1:])
            total = gained + later
    advantages = total - values.detach().to(wide)
    if (validate or advantages.is_cpu) and advantages.isnan().any():
        refuse_nan_steps(steps, gamma)
    return advantages.to(steps.dtype)
