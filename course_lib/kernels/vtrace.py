"""V-trace: advantages and value targets from steps that an older policy took."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_fraction,
    require_like,
    require_not_negative,
)
from course_lib.kernels.engines import (
    Engine,
    choose_engine,
    refuse_nan,
    wide_dtype,
)
from course_lib.kernels.scan import scan_steps
from course_lib.kernels.steps import checked_steps, one_step_errors, refuse_nan_steps


def vtrace(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    log_probs: Tensor,
    behaviour_log_probs: Tensor,
    *,
    terminated: Tensor,
    truncated: Tensor | None = None,
    gamma: float,
    lam: float = 1.0,
    rho_max: float = 1.0,
    c_max: float = 1.0,
    engine: Engine = "auto",
    validate: bool = False,
) -> tuple[Tensor, Tensor]:
    """Correct for an old policy with weights that are cut off above.

    With ratio_t = exp(log_probs - behaviour_log_probs), rho_t = min(rho_max, ratio_t),
    c_t = lam * min(c_max, ratio_t) and delta_t as in `td_errors`:
        y_t = rho_t * delta_t + gamma * c_t * y_{t+1},
        returns_t = V(s_t) + y_t,
        advantages_t = rho_t * (delta_t + gamma * y_{t+1}).
    A terminated or truncated step and the end of the row are followed by y = 0, and a
    terminated one by a value of 0. On the behaviour policy's own steps, with both
    cut-offs at 1 or more, the returns are those of `gae`, and with lam = 1 so are the
    advantages; with lam < 1 these look one step further than the returns do, as the
    paper's do. What is not used reaches no result. A ratio that overflows counts as
    the largest float, so that 0 times it is 0. No gradient flows.

    Args:
        rewards: [..., T], r_t. Integers are promoted.
        values: [..., T], V(s_t).
        next_values: [..., T], the value of the state that step t really reached,
            before any reset.
        log_probs: [..., T], of the taken actions under the policy to improve, in nats.
        behaviour_log_probs: [..., T], under the policy that took them, in nats.
        terminated: [..., T] bool, the episode ended at t by the task's own rule.
        truncated: [..., T] bool, it was cut off at t. None means nowhere.
        gamma: the discount, in [0, 1].
        lam: the weight of later errors, in [0, 1].
        rho_max: the largest weight of an error; it decides whose value is learned.
        c_max: the largest weight in the sum; it decides how fast. inf cuts nothing.
        engine: as in `reverse_scan`.
        validate: look for NaN on the torch and triton engines too.

    Returns:
        advantages: [..., T].
        returns: [..., T], the targets for the value function. Both of the dtype to
            which torch promotes rewards, values and next values.

    Raises:
        TypeError: no tensor, flags that are not boolean, a weight not a number.
        ValueError: gamma or lam outside [0, 1], rho_max or c_max below 0, a shape or
            device unlike the rewards', or an engine that does not fit the device.
        NaNInputError: a NaN in an argument where it is used, or both log-probabilities
            of a step -inf.
        RuntimeError: engine="numba" or "triton" where that cannot run.

    Source: Espeholt et al. (2018), "IMPALA", equation 1, remarks 1 and 2, and section
    4.2 (eq-vtrace).

    >>> vtrace(torch.tensor([1.0, 1.0]), torch.zeros(2), torch.zeros(2),
    ...        torch.tensor([0.5, 0.25]).log(), torch.tensor([0.5, 0.5]).log(),
    ...        terminated=torch.tensor([False, True]), gamma=1.0)
    (tensor([1.5000, 0.5000]), tensor([1.5000, 0.5000]))
    """
    steps = checked_steps(rewards, values, next_values, terminated, truncated)
    require_like("log_probs", log_probs, rewards.shape, rewards)
    require_like("behaviour_log_probs", behaviour_log_probs, rewards.shape, rewards)
    gamma, lam = require_fraction("gamma", gamma), require_fraction("lam", lam)
    rho_max = require_not_negative("rho_max", rho_max)
    c_max = require_not_negative("c_max", c_max)

    wide = wide_dtype(steps.dtype)
    log_ratio = log_probs.detach().to(wide) - behaviour_log_probs.detach().to(wide)
    ratio = log_ratio.exp().clamp(max=torch.finfo(wide).max)
    rho = ratio.clamp(max=rho_max)
    errors = rho * one_step_errors(steps, gamma, wide)
    decays = (gamma * lam * ratio.clamp(max=c_max)).masked_fill(steps.cut, 0.0)
    chosen = choose_engine("rewards", rewards, wide, engine, "scan_loop")
    y, saw_nan = scan_steps(errors, decays, None, chosen)
    if saw_nan or (validate and chosen != "numba"):
        refuse_nan_steps(steps, gamma)
        refuse_nan(log_probs=log_probs, behaviour_log_probs=behaviour_log_probs)
        refuse_nan(**{"log_probs - behaviour_log_probs": log_ratio})
    later = torch.zeros_like(y)
    later[..., :-1] = y[..., 1:].masked_fill(steps.cut[..., :-1], 0.0)
    advantages = errors + gamma * rho * later
    returns = y + values.detach().to(wide)
    return advantages.to(steps.dtype), returns.to(steps.dtype)
