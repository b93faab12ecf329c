"""PPO's loss with its gradient written out: the same numbers in less time.

    ppo(env, config, steps=CLOSED_FORM)

On a small network more time goes into the loss than into the network. The loss is short
enough to be differentiated by hand as far as the network's outputs, and autograd does
the rest. `ppo` itself does not need it: it is for runs of many hours, and for whoever
wants to see the gradient.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from course_lib.algorithms.batch import Batch
from course_lib.algorithms.ppo import STEPS, PPOConfig
from course_lib.kernels import clipped_policy_loss, value_loss
from course_lib.kernels.selection import refuse_nan_behind
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
    with torch.no_grad():
        size = values.shape[1]
        log_p = policy.logits.log_softmax(-1)  # [S, M, A]
        p, chosen = log_p.exp(), batch.actions.unsqueeze(-1)
        entropies = -(p * log_p).sum(-1, keepdim=True)  # [S, M, 1]
        log_probs = log_p.gather(-1, chosen).squeeze(-1)
        policy_loss, weights, numbers = _surrogate(log_probs, batch, config)
        logit_slopes = p * (weights + config.ent_coef * (log_p + entropies))
        logit_slopes.scatter_add_(-1, chosen, -weights).div_(size)
        errors = values - batch.returns
        critic_loss, entropy = errors.square().mean() / 2, entropies.mean()
        loss = policy_loss + config.vf_coef * critic_loss - config.ent_coef * entropy
        named = {"logits": policy.logits, "values": values, **vars(batch)}
        refuse_nan_behind(loss, None, **named)
    value_slopes = errors * (config.vf_coef / size)
    total: Tensor = _WithSlopes.apply(  # type: ignore[no-untyped-call]
        loss * len(values), policy.logits, logit_slopes, values, value_slopes
    )
    return total, numbers | {
        "policy_loss": policy_loss,
        "value_loss": critic_loss,
        "entropy": entropy,
    }


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


def _surrogate(
    log_probs: Tensor, batch: Batch, config: PPOConfig
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """The clipped loss, w [S, M, 1], and what to log."""
    advantages, dtype = batch.advantages, log_probs.dtype
    log_ratio = log_probs - batch.old_log_probs
    ratio = log_ratio.exp()
    low, high = 1 - config.clip_eps, 1 + config.clip_eps
    above, below = ratio > high, ratio < low
    flat = torch.where(advantages > 0, above, below) & (advantages != 0)
    gains = ratio * advantages
    held = torch.minimum(gains, ratio.clamp(low, high) * advantages)
    weights = torch.where(flat, 0.0, gains).unsqueeze(-1)
    return (
        -held.mean(),
        weights,
        {
            "approx_kl": (log_ratio.expm1() - log_ratio).mean(),
            "ratio_max": ratio.max(),
            "clip_frac": (above | below).mean(dtype=dtype),
            "clip_frac_active": flat.mean(dtype=dtype),
        },
    )


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
