"""Advantages from TD errors: how much better an action was than expected."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from course_lib.kernels.arguments import (
    require_fraction,
    require_like,
    require_tensor,
)
from course_lib.kernels.engines import (
    ChosenEngine,
    Engine,
    choose_engine,
    load_loop,
    plain,
    result_dtype,
    triton_module,
    wide_dtype,
)
from course_lib.kernels.scan import scan_steps
from course_lib.kernels.steps import (
    Steps,
    checked_steps,
    one_step_errors,
    refuse_nan_steps,
)

_NO_MASK = np.empty((0, 0), dtype=np.bool_)


def shift_values(values: Tensor, last_value: Tensor) -> Tensor:
    """Take V(s_{t+1}) from the values of one unbroken stretch: the next slot's value.

    Right only where no step but the last ends an episode: after a reset, the next
    slot holds the value of a fresh start.

    Args:
        values: [..., T], V(s_t).
        last_value: values.shape[:-1], the value of the state after the last step.

    Returns:
        next_values: [..., T], a new tensor of the values' dtype and device; integers
            are promoted, so that a last value keeps its fraction.

    Raises:
        TypeError: an argument is no tensor.
        ValueError: `last_value` does not fit in shape or device.

    Source: the V(s_{t+1}) of eq-td-error, for one trajectory segment of Schulman et
    al. (2017), "Proximal policy optimization algorithms", equation 11.

    >>> shift_values(torch.tensor([1.0, 2.0, 3.0]), torch.tensor(9.0))
    tensor([2., 3., 9.])
    """
    require_tensor("values", values, min_dims=1)
    require_like("last_value", last_value, values.shape[:-1], values)
    shifted = plain(values, result_dtype(values.dtype)).roll(-1, -1)
    if values.numel() > 0:
        shifted[..., -1] = last_value.detach()
    return shifted


def td_errors(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    *,
    terminated: Tensor,
    gamma: float,
    validate: bool = False,
) -> Tensor:
    """One-step surprise: delta_t = r_t + gamma * V(s_{t+1}) - V(s_t).

    V(s_{t+1}) counts as 0 where t terminated, by selection: what stands in
    `next_values` there, be it inf or NaN, is not looked at. No gradient flows.

    Args:
        rewards: [..., T], r_t. Integers are promoted.
        values: [..., T], V(s_t).
        next_values: [..., T], the value of the state that step t really reached,
            before any reset.
        terminated: [..., T] bool, the episode ended at t by the task's own rule.
        gamma: the discount, in [0, 1].
        validate: look for NaN on an accelerator too; on the CPU that always happens.

    Returns:
        errors: [..., T], of the dtype to which torch promotes the three.

    Raises:
        TypeError: no tensor, flags that are not boolean, gamma not a number.
        ValueError: gamma outside [0, 1], or a shape or device unlike the rewards'.
        NaNInputError: a NaN in the rewards, the values or a next value that is used.

    Source: Sutton and Barto (2018), equation 6.5 (eq-td-error).

    >>> td_errors(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]),
    ...           torch.tensor([0.5, 9.0]), terminated=torch.tensor([False, True]),
    ...           gamma=1.0)
    tensor([0.0000, 0.5000])
    """
    steps = checked_steps(rewards, values, next_values, terminated)
    gamma = require_fraction("gamma", gamma)
    errors = one_step_errors(steps, gamma, wide_dtype(steps.dtype))
    if (validate or errors.is_cpu) and errors.isnan().any():
        refuse_nan_steps(steps, gamma)
    return errors.to(steps.dtype)


def gae(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor | None = None,
    gamma: float,
    lam: float,
    mask: Tensor | None = None,
    engine: Engine = "auto",
    validate: bool = False,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation: A_t = delta_t + gamma * lam * A_{t+1}.

    That is the sum over l of (gamma * lam)^l delta_{t+l} to the end of the episode or
    of the row, with delta as in `td_errors`: lam = 0 leaves the TD error alone, lam = 1
    gives the return less V(s_t). The second result, A_t + V(s_t), is the target for
    the value function.

    A terminated step has no value after it; it and a truncated step end the sum, and
    so does the end of the row. With a mask (the tokens of a response), a step is
    followed by the row's next real step, whose value then replaces `next_values` and
    whose advantage is carried over the hole; `next_values` is used at a truncated
    step and at the last real step of the row, unless terminated there. What stands in
    a slot that is not used reaches no result, be it inf or NaN. No gradient flows.

    Args:
        rewards: [..., T], r_t. Integers are promoted.
        values: [..., T], V(s_t).
        next_values: [..., T], the value of the state that step t really reached,
            before any reset.
        terminated: [..., T] bool, the episode ended at t by the task's own rule.
        truncated: [..., T] bool, it was cut off at t. None means nowhere. Where both
            are set, terminated rules.
        gamma: the discount, in [0, 1].
        lam: the weight of later errors, in [0, 1].
        mask: [..., T] bool, the real steps. None means all.
        engine: "auto", "numba" (CPU), "triton" (CUDA) or "torch"; see `scan_engine`.
        validate: look for NaN on the other engines too; numba always does.

    Returns:
        advantages: [..., T], 0 where masked.
        returns: [..., T], 0 where masked. Both of the dtype to which torch promotes
            rewards, values and next values; bf16 and fp16 are summed in float32.

    Raises:
        TypeError: no tensor, flags that are not boolean, gamma or lam not a number.
        ValueError: gamma or lam outside [0, 1], a shape or device unlike the
            rewards', or an engine that does not fit the device.
        NaNInputError: a NaN in a reward, value or next value that is used.
        RuntimeError: engine="numba" or "triton" where that cannot run.

    Source: Schulman et al. (2016), "High-dimensional continuous control using
    generalized advantage estimation", equation 16 (eq-gae); truncation after Pardo
    et al. (2018), "Time limits in reinforcement learning", section 3.

    >>> advantages, returns = gae(
    ...     torch.tensor([0, 4, 6, -8, 16]), torch.tensor([4.0, 2, 2, 2, 8]),
    ...     torch.tensor([2.0, 2, 2, 8, 0]), gamma=0.5, lam=0.5,
    ...     terminated=torch.tensor([False, False, False, False, True]))
    >>> advantages, returns
    (tensor([-2.,  4.,  4., -4.,  8.]), tensor([ 2.,  6.,  6., -2., 16.]))
    """
    steps = checked_steps(rewards, values, next_values, terminated, truncated, mask)
    gamma, lam = require_fraction("gamma", gamma), require_fraction("lam", lam)
    dtype = steps.dtype
    wide = wide_dtype(dtype)
    loop = "gae_by_fours" if mask is None else "gae_loop"
    chosen = choose_engine("rewards", rewards, wide, engine, loop)
    if validate and chosen != "numba":
        refuse_nan_steps(steps, gamma)
    if rewards.numel() == 0:
        advantages = returns = torch.empty_like(rewards, dtype=wide)
    elif chosen == "numba":
        advantages, returns = _gae_with_numba(steps, gamma, gamma * lam, wide, loop)
    else:
        advantages, returns = _gae_with_scan(steps, gamma, gamma * lam, wide, chosen)
    if dtype != wide:
        advantages, returns = advantages.to(dtype), returns.to(dtype)
    return advantages, returns


def _gae_with_numba(
    steps: Steps, gamma: float, gamma_lam: float, dtype: torch.dtype, loop: str
) -> tuple[Tensor, Tensor]:
    numbers = [_array(x, dtype) for x in steps[:3]]
    terminated = truncated = _array(steps.terminated, torch.bool)
    if steps.truncated is not None:
        truncated = _array(steps.truncated, torch.bool)
    advantages, returns = np.empty_like(numbers[0]), np.empty_like(numbers[0])
    rest = (gamma, gamma_lam, advantages, returns)
    void = True
    if loop == "gae_by_fours":
        void = load_loop(loop, dtype)(*numbers, terminated, truncated, *rest)
    if void:  # what is not finite comes here, to be kept where it belongs
        mask = _NO_MASK if steps.mask is None else _array(steps.mask, torch.bool)
        by_rows = load_loop("gae_loop", dtype)
        if by_rows(*numbers, terminated, truncated, mask, *rest):
            refuse_nan_steps(steps, gamma)  # silent for inf - inf, the caller's own
    results = torch.from_numpy(advantages), torch.from_numpy(returns)
    if steps.rewards.dim() == 2:
        return results
    shape = steps.rewards.shape
    return results[0].reshape(shape), results[1].reshape(shape)


def _array(x: Tensor, dtype: torch.dtype) -> NDArray[np.generic]:
    """[B, T], sharing the memory of x where that fits: this is paid for each call."""
    array: NDArray[np.generic] = plain(x, dtype).contiguous().numpy()
    return array if array.ndim == 2 else array.reshape(-1, array.shape[-1])


def _gae_with_scan(
    steps: Steps,
    gamma: float,
    gamma_lam: float,
    dtype: torch.dtype,
    engine: ChosenEngine,
) -> tuple[Tensor, Tensor]:
    shape, steps = steps.rewards.shape, steps.as_rows()
    if engine == "triton" and steps.mask is None and dtype == torch.float32:
        module, _ = triton_module()
        truncated = steps.terminated if steps.truncated is None else steps.truncated
        fused = module.gae(*steps[:4], truncated, gamma, gamma_lam)
        return fused[0].reshape(shape), fused[1].reshape(shape)
    values = plain(steps.values, dtype)  # [B, T]
    errors = one_step_errors(steps, gamma, dtype)
    decays = gamma_lam * (~steps.cut).to(dtype)  # [B, T]
    if steps.mask is None:
        advantages, _ = scan_steps(errors, decays, None, engine)
        returns = advantages + values
    else:
        hidden = ~steps.mask
        decays.masked_fill_(hidden, 1.0)  # a hole hands the later sum through
        sums, _ = scan_steps(errors, decays, None, engine)
        advantages = sums.masked_fill(hidden, 0.0)
        returns = (sums + values).masked_fill_(hidden, 0.0)
    if len(shape) == 2:
        return advantages, returns
    return advantages.reshape(shape), returns.reshape(shape)
