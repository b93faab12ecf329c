"""Checks of what has no loop over time: softmax, masks, groups, weights and losses.

A kernel with gradients is asked for these too, times the number of entries, so that
they are of the size of the terms. Arguments hold NaN wherever the mask is False.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.device_inputs import VOCABULARIES, Inputs
from course_lib.kernels import (
    bradley_terry_loss,
    categorical_kl,
    clipped_policy_loss,
    clipped_value_loss,
    effective_sample_size,
    entropy,
    entropy_bonus,
    group_relative_advantages,
    importance_weights,
    kl_estimates,
    kl_penalty_policy_loss,
    kl_shaped_rewards,
    leave_one_out_advantages,
    masked_mean,
    masked_sum,
    masked_var,
    policy_gradient_loss,
    pretraining_loss,
    reduce_steps,
    token_log_probs,
    value_loss,
    whiten,
)

Check = Callable[[Inputs], tuple[Tensor, ...]]
Told = tuple[Tensor, dict[str, Tensor]]


def _with_gradients(
    function: Callable[..., Tensor | Told], *inputs: Tensor
) -> tuple[Tensor, ...]:
    """What a kernel of `inputs` returns, and the gradients of its sum."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    told = function(*leaves)
    result, seen = told if isinstance(told, tuple) else (told, {})
    gradients = torch.autograd.grad(result.sum(), leaves)
    # A scalar is a mean over the entries, or a sum that is of their number's size.
    scale = inputs[0].numel() if result.dim() == 0 else 1
    return result.detach(), *seen.values(), *(scale * x for x in gradients)


def _softmax(given: Inputs) -> tuple[Tensor, ...]:
    results: list[Tensor] = []
    for vocabulary in VOCABULARIES:
        logits, tokens = given.tokens(vocabulary)
        others, _ = given.tokens(vocabulary)
        results += _with_gradients(lambda z, t=tokens: token_log_probs(z, t), logits)
        results += _with_gradients(entropy, logits)
        results += _with_gradients(categorical_kl, logits, others)
    return tuple(results)


def _masked(given: Inputs) -> tuple[Tensor, ...]:
    x, mask = given.hidden(given.rewards), given.mask
    results: list[Tensor] = []
    for function in (masked_mean, masked_var):
        results += _with_gradients(lambda x, f=function: f(x, mask), x)
        results.append(function(x, mask, -1))
    # Sums grow with the number of terms, and so does their rounding.
    return *results, masked_sum(x, mask) / x.numel(), masked_sum(x, mask, -1)


def _whitened(given: Inputs) -> tuple[Tensor, ...]:
    x = given.hidden(given.advantages)
    return (
        whiten(x, given.mask, unbiased=True),
        whiten(x, given.mask, dim=-1, eps=1e-4),
        whiten(given.advantages),
    )


def _groups(given: Inputs) -> tuple[Tensor, ...]:
    scores = given.rewards
    # Groups of four or five that lie scattered over the rows.
    places = torch.arange(scores.numel(), device=scores.device)
    groups = (places * 7919 % max(scores.numel() // 4, 1)).view(scores.shape)
    return (
        leave_one_out_advantages(scores),
        leave_one_out_advantages(given.hidden(scores), groups, given.mask),
        group_relative_advantages(scores),
        group_relative_advantages(scores, groups, unbiased=False),
        group_relative_advantages(scores, groups, scale=False),
    )


def _divergences(given: Inputs) -> tuple[Tensor, ...]:
    results: list[Tensor] = []
    for kind in ("k1", "k2", "k3"):
        results += _with_gradients(
            lambda p, q, kind=kind: kl_estimates(p, q, kind),
            given.log_probs,
            given.old_log_probs,
        )
    shaped = kl_shaped_rewards(
        given.hidden(given.log_probs), given.hidden(given.old_log_probs),
        given.rewards[:, 0], beta=0.1, mask=given.mask,
    )  # fmt: skip
    return *results, shaped


def _weights(given: Inputs) -> tuple[Tensor, ...]:
    log_probs = given.hidden(given.log_probs)
    behaviour = given.hidden(given.old_log_probs)
    results: list[Tensor] = []
    for kind in ("per_step", "trajectory", "per_decision"):
        weights = importance_weights(log_probs, behaviour, mask=given.mask, kind=kind)
        share = effective_sample_size(weights) / weights.shape[-1]
        results += [weights, share]
    return tuple(results)


def _policy_losses(given: Inputs) -> tuple[Tensor, ...]:
    old, mask = given.hidden(given.old_log_probs), given.mask
    gain, log_probs = given.hidden(given.advantages), given.hidden(given.log_probs)
    kl = given.hidden((given.log_probs - given.old_log_probs).square())
    return (
        *_with_gradients(
            lambda p: policy_gradient_loss(p, gain, mask=mask, reduction="token_mean"),
            log_probs,
        ),
        *_with_gradients(
            lambda p: clipped_policy_loss(p, old, gain, clip_eps=0.1, mask=mask),
            log_probs,
        ),
        *_with_gradients(
            lambda p, kl: kl_penalty_policy_loss(p, old, gain, kl, beta=0.5, mask=mask),
            log_probs,
            kl,
        ),
    )


def _value_losses(given: Inputs) -> tuple[Tensor, ...]:
    old, returns = given.hidden(given.old_values), given.hidden(given.rewards)
    values, mask = given.hidden(given.values), given.mask

    def defined(told: Told) -> Told:
        """Of a single return no variance can be explained: that is NaN on purpose."""
        loss, seen = told
        return loss, {name: x.nan_to_num() for name, x in seen.items()}

    return (
        *_with_gradients(lambda v: defined(value_loss(v, returns, mask=mask)), values),
        *_with_gradients(
            lambda v: defined(clipped_value_loss(v, old, returns, clip=0.2, mask=mask)),
            values,
        ),
    )


def _reductions(given: Inputs) -> tuple[Tensor, ...]:
    x, length = given.hidden(given.values), given.values.shape[1]
    return (
        reduce_steps(x, given.mask, "token_mean"),
        reduce_steps(x, given.mask, "sequence_mean"),
        reduce_steps(x, given.mask, "sequence_sum") / length,
        reduce_steps(x, given.mask, "constant", length),
    )


def _other_losses(given: Inputs) -> tuple[Tensor, ...]:
    logits, tokens = given.tokens(VOCABULARIES[1])
    mask = given.mask
    return (
        *_with_gradients(
            lambda h: entropy_bonus(h, mask=mask), given.hidden(given.values.abs())
        ),
        *_with_gradients(bradley_terry_loss, given.rewards, given.values),
        *_with_gradients(lambda z: pretraining_loss(z, tokens, mask), logits),
    )


LOSSES: dict[str, Check] = {
    "token_log_probs, entropy, categorical_kl": _softmax,
    "masked_mean, masked_var, masked_sum": _masked,
    "whiten": _whitened,
    "leave_one_out_advantages, group_relative_advantages": _groups,
    "kl_estimates, kl_shaped_rewards": _divergences,
    "importance_weights, effective_sample_size": _weights,
    "policy_gradient_loss, clipped_policy_loss, kl_penalty_policy_loss": _policy_losses,
    "value_loss, clipped_value_loss": _value_losses,
    "reduce_steps": _reductions,
    "entropy_bonus, bradley_terry_loss, pretraining_loss": _other_losses,
}
