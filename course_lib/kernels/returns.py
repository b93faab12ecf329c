"""Discounted returns, and the three ways in which a row of rewards can end."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_flags,
    require_fraction,
    require_like,
    require_tensor,
)
from course_lib.kernels.engines import (
    Engine,
    accumulation_dtype,
    choose_engine,
    refuse_nan,
    result_dtype,
)
from course_lib.kernels.scan import scan_steps


def discounted_returns(
    rewards: Tensor,
    gamma: float,
    *,
    terminated: Tensor | None = None,
    truncated: Tensor | None = None,
    next_values: Tensor | None = None,
    engine: Engine = "auto",
    validate: bool = False,
) -> Tensor:
    """Sum rewards backwards: G_t = r_t + gamma * G_{t+1}, within an episode.

    A row may hold several episodes one after another. What follows step t is
        0                  where t terminated (also if truncated is set as well),
        V(s_{t+1})         where t was truncated, and after the row's last step,
        G_{t+1}            elsewhere,
    with V(s_{t+1}) = next_values[..., t], or 0 without next_values. Values that are
    not used, be they inf or NaN, reach no result. The result carries no gradient.

    Args:
        rewards: [..., T], r_t. Integers are promoted to the default float.
        gamma: the discount, in [0, 1].
        terminated: [..., T] bool, the episode ended at t by the task's own rule.
        truncated: [..., T] bool, the episode was cut off at t.
        next_values: [..., T], the value of the state that step t really reached,
            before any reset.
        engine: "auto", "numba", "triton" or "torch", as in `reverse_scan`.
        validate: look for NaN on the other engines too.

    Returns:
        returns: [..., T], the rewards' dtype and device.

    Raises:
        TypeError: no tensor, flags that are not boolean, gamma not a number.
        ValueError: gamma outside [0, 1], or a shape or device unlike the rewards'.
        NaNInputError: a NaN in the rewards or in a next value that is used.
        RuntimeError: engine="numba" or "triton" where that cannot run.

    Source: Sutton and Barto (2018), equations 3.8 and 3.9 (eq-return); for
    truncation, Pardo et al. (2018), "Time limits in reinforcement learning",
    section 3.

    >>> discounted_returns(torch.tensor([1.0, 0.0, 2.0]), 0.5)
    tensor([1.5000, 1.0000, 2.0000])
    """
    require_tensor("rewards", rewards, min_dims=1)
    gamma = require_fraction("gamma", gamma)
    ended = torch.zeros_like(rewards, dtype=torch.bool)
    if terminated is not None:
        require_flags("terminated", terminated, rewards)
        ended = terminated
    cut = ended
    if truncated is not None:
        require_flags("truncated", truncated, rewards)
        cut = ended | truncated

    dtype = accumulation_dtype(rewards)
    chosen = choose_engine("rewards", rewards, dtype, engine, "scan_loop")
    gained, used = rewards.detach().to(dtype), None
    if next_values is not None:
        require_like("next_values", next_values, rewards.shape, rewards)
        if gamma > 0:  # a discount of 0 looks at no value, not even an infinite one
            used = torch.where(_bootstraps(ended, cut), next_values.detach(), 0)
            gained = gained + gamma * used.to(dtype)
    decay: float | Tensor = gamma
    if terminated is not None or truncated is not None:
        decay = torch.full_like(gained, gamma).masked_fill_(cut, 0.0)
    if validate and chosen != "numba":
        refuse_nan(rewards=rewards, next_values=used)
    returns, saw_nan = scan_steps(gained, decay, None, chosen)
    if saw_nan:  # it may also be inf - inf, which is the caller's own
        refuse_nan(rewards=rewards, next_values=used)
    return returns.to(result_dtype(rewards.dtype))


def _bootstraps(ended: Tensor, cut: Tensor) -> Tensor:
    """[..., T] bool: steps after which a value stands in for the rest."""
    stands_in = cut & ~ended
    stands_in[..., -1:] = ~ended[..., -1:]
    return stands_in
