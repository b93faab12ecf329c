"""PPO's loss with its gradient written out: the same numbers in less time.

    ppo(env, config, steps=CLOSED_FORM)

On a small network more time goes into the loss than into the network. The loss is short
enough to be differentiated by hand as far as the network's outputs, in one compiled
pass, and autograd does the rest. `ppo` itself does not need it: it is for runs of many
hours, and for whoever wants to see the gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from course_lib.algorithms.batch import Batch
from course_lib.algorithms.ppo import STEPS, PPOConfig, ppo_loss
from course_lib.kernels import clipped_policy_loss, value_loss
from course_lib.kernels.engines import compiled_loop
from course_lib.models import ActorCritic, Categorical


def closed_form_loss(
    agent: ActorCritic,
    batch: Batch,
    *,
    config: PPOConfig,
    policy_loss_fn: Any,
    value_loss_fn: Any = value_loss,
) -> tuple[Tensor, dict[str, Tensor]]:
    """eq-ppo on a minibatch of M steps of each agent, as `ppo_loss` has it.

    Of a softmax policy's logits z, and with w = rho A where the clip leaves a gradient
    and 0 where it does not,

        dL/dz_k = (w (p_k - 1[k = a]) + c2 p_k (log p_k + H)) / M,
        dL/dV   = c1 (V - R) / M.                                  (eq-ppo-gradient)

    Args:
        agent, batch, config: as for `ppo_loss`, with a choice among actions.
        policy_loss_fn, value_loss_fn: only the clipped loss and half the squared
            error, whose derivatives these are.

    Returns:
        As `ppo_loss`: the loss, summed over the agents, and the same numbers.

    Raises:
        ValueError: another loss, or a detail of the config that has one.
        TypeError: continuous actions.
        NaNInputError: a NaN in the batch or in what the agent says of it (on the CPU).

    Source: our derivation, from Schulman et al. (2017), equations 7 and 9.
    """
    _require_plain(config, policy_loss_fn, value_loss_fn)
    policy, values = agent.policy_and_values(batch.observations)  # values [S, M]
    if not isinstance(policy, Categorical):
        raise TypeError("agent must choose among actions; its actions are continuous")
    logits = policy.logits  # [S, M, A]
    sampled = (batch.actions, batch.old_log_probs, batch.advantages, batch.returns)
    loop = _pass_for(values, sampled)
    slopes = torch.empty(logits.shape, dtype=logits.dtype), torch.empty_like(values)
    seen = torch.empty(8, dtype=values.dtype)
    if loop is None or not loop(
        *(one.detach().numpy() for one in (logits, values, *sampled)),
        config.clip_eps, config.vf_coef, config.ent_coef,
        *(one.numpy() for one in (*slopes, seen)),
    ):  # fmt: skip
        # No numba, another device, or something that is to be refused by its name.
        return ppo_loss(agent, batch, config=config, policy_loss_fn=policy_loss_fn)
    loss, *numbers = seen.unbind()
    apply: Any = _WithSlopes.apply
    total: Tensor = apply(loss, logits, slopes[0], values, slopes[1])
    return total, dict(zip(_NUMBERS, numbers, strict=True))


_NUMBERS = (
    "policy_loss", "value_loss", "entropy", "approx_kl",
    "clip_frac", "clip_frac_active", "ratio_max",
)  # fmt: skip


def _pass_for(
    values: Tensor, sampled: tuple[Tensor, ...]
) -> Callable[..., bool] | None:
    """The compiled pass, which looks at no border: only for what fits each other."""
    dtype = values.dtype
    if not values.is_cpu or dtype not in (torch.float32, torch.float64):
        return None
    if any(one.shape != values.shape for one in sampled):
        return None
    if [one.dtype for one in sampled] != [torch.int64, dtype, dtype, dtype]:
        return None
    return compiled_loop("ppo_pass", dtype)[0]


class _WithSlopes(torch.autograd.Function):
    """A loss that is known, as a function of two tensors whose slopes are known."""

    @staticmethod
    def forward(
        ctx: Any, loss: Tensor, x: Tensor, x_slope: Tensor, y: Tensor, y_slope: Tensor
    ) -> Tensor:
        ctx.save_for_backward(x_slope, y_slope)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_slope, y_slope = ctx.saved_tensors
        return None, grads[0] * x_slope, None, grads[0] * y_slope, None


CLOSED_FORM = replace(STEPS, loss=closed_form_loss)
"""PPO's steps with this loss."""


def _require_plain(config: PPOConfig, policy_loss_fn: Any, value_loss_fn: Any) -> None:
    own = policy_loss_fn
    if isinstance(own, functools.partial):
        own = own.func
    if own is not clipped_policy_loss or value_loss_fn is not value_loss:
        raise ValueError(
            "policy_loss_fn and value_loss_fn must be clipped_policy_loss and "
            "value_loss, whose gradient is written out; use `ppo_loss` for others"
        )
    if config.value_clip is not None:
        raise ValueError(f"value_clip must be None here, got {config.value_clip}")
