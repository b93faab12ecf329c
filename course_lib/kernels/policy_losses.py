"""What the policy is trained on: each a loss to minimise, and what to watch beside it.

`old` is the policy that sampled the data, never the frozen reference: its
log-probabilities are constants from the rollout, and so are the advantages.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_floating,
    require_like,
    require_not_negative,
    require_price,
    require_twin,
)
from course_lib.kernels.compiled_losses import compiled_loss
from course_lib.kernels.loss_terms import (
    Diagnostics,
    constant,
    require_steps,
    share,
    trained,
)
from course_lib.kernels.masked import mean_of_real
from course_lib.kernels.reduction import Reduction, reduced
from course_lib.kernels.selection import refuse_nan_behind, select


def policy_gradient_loss(
    log_probs: Tensor,
    weights: Tensor,
    *,
    mask: Tensor | None = None,
    reduction: Reduction = "sequence_sum",
    constant_length: int | None = None,
) -> tuple[Tensor, Diagnostics]:
    """The loss whose gradient is the policy gradient, with a minus (eq-pg-loss):

        L = -mean over rows of sum_t log pi(a_t | s_t) * Psi_t

    Its value says nothing about the policy, its gradient is everything. Summing over
    a row is part of it: a mean over steps weighs long episodes down.

        >>> log_probs = torch.tensor([0.5, 0.25]).log()
        >>> policy_gradient_loss(log_probs, torch.tensor([2.0, 1.0]))[0]
        tensor(2.7726)

    Args:
        log_probs: [..., T] float, log pi(a_t | s_t), with gradient.
        weights: [..., T], Psi_t: a return, a return minus a baseline, an advantage.
            Its gradient is cut, so that this loss does not train the critic.
        mask: [..., T] bool, True where real. None: every step is.
        reduction: see `reduce_steps`; "sequence_sum" is the estimate itself.
        constant_length: for reduction="constant".

    Returns:
        loss: [], float32 or float64.
        diagnostics: detached [], over real steps: "log_prob_mean", "weight_mean".

    Raises:
        TypeError: wrong types.
        ValueError: a shape or device that does not fit, a reduction that is none.
        NaNInputError: a NaN at a real step (on the CPU).

    Source: Williams (1992), theorem 1; Schulman et al. (2016), equation 1, for Psi.
    """
    log_p = trained("log_probs", log_probs, mask)
    psi = constant("weights", weights, log_probs, mask)
    # A weight of 0 silences its step, even where the action had log-probability -inf.
    terms = -select(log_p, _counts(psi, log_p)) * psi
    loss = reduced(terms, mask, reduction, constant_length)
    refuse_nan_behind(loss, mask, log_probs=log_probs, weights=weights)
    return loss, {
        "log_prob_mean": mean_of_real(log_p.detach(), mask),
        "weight_mean": mean_of_real(psi, mask),
    }


def clipped_policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    *,
    clip_eps: float,
    mask: Tensor | None = None,
    reduction: Reduction = "token_mean",
    constant_length: int | None = None,
) -> tuple[Tensor, Diagnostics]:
    """PPO's clipped surrogate, with a minus (eq-clip):

        L = -mean of min(rho A, clip(rho, 1 - eps, 1 + eps) A),    rho = pi / pi_old

    A sample has no gradient where rho has left the band on the side that A pushes to
    (A > 0 and rho > 1 + eps, A < 0 and rho < 1 - eps); on the edge it still has. On
    the other side it has its full gradient, however far out: rho = 10, A = -1 costs
    10. So the clip bounds neither rho nor the loss.

        >>> ratio = torch.tensor([1.5, 1.5, 0.5])
        >>> A = torch.tensor([1.0, -1.0, -1.0])
        >>> loss, seen = clipped_policy_loss(
        ...     ratio.log(), torch.zeros(3), A, clip_eps=0.2, reduction="sequence_sum"
        ... )
        >>> loss  # -1.2 + 1.5 + 0.8
        tensor(1.1000)
        >>> seen["clip_frac"], seen["clip_frac_active"]
        (tensor(1.), tensor(0.6667))

    Args:
        log_probs: [..., T] float, log pi(a_t | s_t), with gradient.
        old_log_probs: [..., T], under the policy that sampled, same dtype; a constant.
        advantages: [..., T], whitened or not; a constant.
        clip_eps: half the width of the band, at least 0; 1 or more leaves it open
            below.
        mask: [..., T] bool, True where real. None: every step is.
        reduction: see `reduce_steps`.
        constant_length: for reduction="constant".

    Returns:
        loss: [], float32 or float64.
        diagnostics: detached [], over real steps: "approx_kl" (k3 of KL(old, pi)),
            "clip_frac" (share of rho outside the band), "clip_frac_active" (share
            whose gradient the clip has made 0), "ratio_max".

    Raises:
        TypeError: wrong types, or two dtypes of log-probabilities.
        ValueError: a shape or device that does not fit, clip_eps below 0, a reduction
            that is none.
        NaNInputError: a NaN at a real step, or both log-probabilities of one -inf
            (on the CPU).

    Source: Schulman et al. (2017), "Proximal policy optimization", equation 7.
    """
    clip_eps = require_not_negative("clip_eps", clip_eps)
    require_steps("log_probs", log_probs, mask)
    require_twin("old_log_probs", old_log_probs, log_probs)
    require_like("advantages", advantages, log_probs.shape, log_probs)

    def in_operations(log_probs: Tensor) -> tuple[Tensor, Diagnostics]:
        return _clipped_in_operations(
            log_probs, old_log_probs, advantages, clip_eps, mask, reduction,
            constant_length,
        )  # fmt: skip

    if reduction == "token_mean" and constant_length is None:
        constants = (old_log_probs, advantages)
        compiled = compiled_loss(
            "clipped_policy_pass", log_probs, constants, mask, in_operations, clip_eps
        )
        if compiled is not None:
            names = ("approx_kl", "clip_frac", "clip_frac_active", "ratio_max")
            return compiled[0], dict(zip(names, compiled[1], strict=True))
    return in_operations(log_probs)


def _clipped_in_operations(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    clip_eps: float,
    mask: Tensor | None,
    reduction: Reduction,
    constant_length: int | None,
) -> tuple[Tensor, Diagnostics]:
    log_ratio = _log_ratio(log_probs, old_log_probs, mask)
    gain = constant("advantages", advantages, log_probs, mask)
    ratio = log_ratio.detach().exp()
    above, below = ratio > 1 + clip_eps, ratio < 1 - clip_eps
    flat = ((gain > 0) & above) | ((gain < 0) & below)
    surrogate = _ratio_gain(log_ratio, gain, _counts(gain, log_ratio) & ~flat)
    # Where flat that is A, and the edge of the band is eps |A| further.
    surrogate = surrogate + select(clip_eps * gain.abs(), flat)
    loss = reduced(-surrogate, mask, reduction, constant_length)
    _name_the_nan(loss, mask, log_probs, old_log_probs, advantages, log_ratio)
    return loss, _drift(log_ratio.detach(), ratio, mask) | {
        "clip_frac": share(above | below, mask, loss.dtype),
        "clip_frac_active": share(flat, mask, loss.dtype),
    }


def kl_penalty_policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    kl: Tensor,
    *,
    beta: float,
    mask: Tensor | None = None,
    reduction: Reduction = "token_mean",
    constant_length: int | None = None,
) -> tuple[Tensor, Diagnostics]:
    """PPO's other surrogate: pay for the distance, clip nothing (eq-kl-penalty):

        L = -mean of (rho A - beta KL(pi_old, pi)),    rho = pi / pi_old

        >>> log_probs = torch.tensor([0.6, 0.4]).log()
        >>> old = torch.tensor([0.5, 0.5]).log()
        >>> kl = torch.tensor([0.02, 0.02])
        >>> A = torch.tensor([1.0, -1.0])
        >>> kl_penalty_policy_loss(log_probs, old, A, kl, beta=0.5)[0]
        tensor(-0.1900)

    Args:
        log_probs, old_log_probs, advantages, mask, reduction, constant_length: as for
            `clipped_policy_loss`.
        kl: [..., T] float, the divergence in each state, with gradient: all of it
            (`categorical_kl` of old and new logits) or an estimate.
        beta: the price of a nat, at least 0 and finite.

    Returns:
        loss: [], float32 or float64.
        diagnostics: detached [], over real steps: "approx_kl" (k3 of KL(old, pi)),
            "kl" (the mean of what was penalised), "ratio_max".

    Raises:
        TypeError: wrong types, or two dtypes of log-probabilities.
        ValueError: a shape or device that does not fit, beta below 0 or infinite, a
            reduction that is none.
        NaNInputError: as for `clipped_policy_loss`, or a NaN in a real `kl`.

    Source: Schulman et al. (2017), equation 8.
    """
    beta = require_price("beta", beta)
    log_ratio = _log_ratio(log_probs, old_log_probs, mask)
    gain = constant("advantages", advantages, log_probs, mask)
    require_floating("kl", kl)
    require_like("kl", kl, log_probs.shape, log_probs)
    charged = select(kl, mask).to(log_ratio.dtype)  # [..., T]
    cost = -_ratio_gain(log_ratio, gain, _counts(gain, log_ratio))
    if beta > 0:  # beta = 0 charges nothing, not even for an infinite distance
        cost = cost + beta * charged
    loss = reduced(cost, mask, reduction, constant_length)
    mean_kl = mean_of_real(charged.detach(), mask)
    refuse_nan_behind(mean_kl, mask, kl=kl)
    _name_the_nan(loss, mask, log_probs, old_log_probs, advantages, log_ratio)
    seen = _drift(log_ratio.detach(), log_ratio.detach().exp(), mask)
    return loss, seen | {"kl": mean_kl}


def _log_ratio(log_probs: Tensor, old: Tensor, mask: Tensor | None) -> Tensor:
    """log(pi / pi_old) of real steps, 0 where masked, with gradient to pi alone."""
    log_p = trained("log_probs", log_probs, mask)
    require_twin("old_log_probs", old, log_probs)
    return log_p - select(old.detach().to(log_p.dtype), mask)


def _counts(gain: Tensor, factor: Tensor) -> Tensor:
    """Where gain * factor is more than 0 times something; a NaN is, to be seen."""
    return (gain != 0) | factor.detach().isnan()


def _ratio_gain(log_ratio: Tensor, gain: Tensor, alive: Tensor) -> Tensor:
    """rho * A where alive; elsewhere A, with no gradient, even for rho = inf."""
    return select(log_ratio, alive).exp() * gain


def _drift(log_ratio: Tensor, ratio: Tensor, mask: Tensor | None) -> Diagnostics:
    """How far the policy has moved from the one that sampled; no gradient."""
    # An infinite log-ratio is far away, not inf - inf.
    finite = log_ratio.clamp(max=torch.finfo(log_ratio.dtype).max)
    k3 = torch.expm1(log_ratio) - finite
    # Masked ratios count as 0, which no real one is below.
    return {
        "approx_kl": mean_of_real(k3, mask),
        "ratio_max": select(ratio, mask).max(),
    }


def _name_the_nan(
    loss: Tensor,
    mask: Tensor | None,
    log_probs: Tensor,
    old: Tensor,
    gain: Tensor,
    log_ratio: Tensor,
) -> None:
    refuse_nan_behind(
        loss, mask, log_probs=log_probs, old_log_probs=old, advantages=gain
    )
    refuse_nan_behind(loss, mask, **{"log_probs - old_log_probs": log_ratio})
