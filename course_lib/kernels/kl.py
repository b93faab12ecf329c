"""The divergence from a reference, estimated from the policy's own samples."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_flags,
    require_floating,
    require_like,
    require_price,
    require_tensor,
    require_twin,
)
from course_lib.kernels.engines import accumulation_dtype
from course_lib.kernels.selection import chained, refuse_nan_behind, select

KLKind = Literal["k1", "k2", "k3"]


def kl_estimates(
    log_probs: Tensor, ref_log_probs: Tensor, kind: KLKind = "k1"
) -> Tensor:
    """Estimate KL(pi, ref) from samples of pi, one number a sample (eq-k1 to eq-k3):

        k1 = log pi - log ref        unbiased, may be negative
        k2 = k1^2 / 2                never negative, biased
        k3 = exp(-k1) - 1 + k1       never negative, unbiased

    That is so as values. As a loss, without a ratio in front, the mean gradient of k1
    is 0, that of k2 the gradient of KL(pi, ref), that of k3 of KL(ref, pi).

    k3 goes by expm1: at k1 = 1e-4 the plain form is off threefold in float32. Nothing
    is clamped, since a clamp is a bias: k3 overflows to inf in float32 below k1 = -88.
    A slot whose upstream gradient is 0 passes 0 on, so that a masked mean afterwards
    is safe whatever stands in the padding.

        >>> policy, ref = torch.tensor([-1.0]), torch.tensor([-2.0])
        >>> [kl_estimates(policy, ref, kind).item() for kind in ("k1", "k2")]
        [1.0, 0.5]
        >>> kl_estimates(policy, ref, "k3")
        tensor([0.3679])

    Args:
        log_probs: [...] float, log pi(a_t | s_t) of the policy that sampled a_t.
        ref_log_probs: [...], the same under the reference, same dtype.
        kind: "k1", "k2" or "k3".

    Returns:
        [...], nats, the inputs' dtype and device; with gradient to both.

    Raises:
        TypeError: no floats, or two dtypes.
        ValueError: shapes or devices that differ, an unknown kind.

    Source: Schulman (2020), "Approximating KL divergence".
    """
    require_floating("log_probs", log_probs)
    require_twin("ref_log_probs", ref_log_probs, log_probs)
    if kind not in get_args(KLKind):
        raise ValueError(f"kind must be one of {get_args(KLKind)}, got {kind!r}")
    dtype = accumulation_dtype(log_probs)
    k1 = log_probs.to(dtype) - ref_log_probs.to(dtype)
    if kind == "k2":
        k1 = chained(k1, k1.square() / 2, k1)
    elif kind == "k3":
        growth = torch.expm1(-k1)
        # An infinite k1 is far away, not inf - inf.
        finite = k1.clamp(min=torch.finfo(dtype).min)
        k1 = chained(k1, growth + finite, -growth)
    return k1.to(log_probs.dtype)


def kl_shaped_rewards(
    log_probs: Tensor,
    ref_log_probs: Tensor,
    scores: Tensor,
    *,
    beta: float,
    mask: Tensor,
) -> Tensor:
    """Charge each token for its distance, pay the score at the last one (eq-shaped):

        r_t = -beta * (log pi_t - log ref_t) + score * 1[t is the last real token]

    The last real token is the row's last True, whatever holes come before it; one
    slot later is padding (huggingface/trl #3750). A row without a real token gets 0
    everywhere. The result carries no gradient.

        >>> log_probs = torch.tensor([-1.0, -1.0, -1.0, 0.0])
        >>> ref = torch.tensor([-1.1, -1.2, -1.3, 0.0])
        >>> mask = torch.tensor([True, True, True, False])
        >>> kl_shaped_rewards(log_probs, ref, torch.tensor(2.0), beta=0.1, mask=mask)
        tensor([-0.0100, -0.0200,  1.9700,  0.0000])

    Args:
        log_probs: [..., T] float, of the policy that sampled, as it was then.
        ref_log_probs: [..., T], of the frozen reference, same dtype.
        scores: [...], one a row, in the reward's unit.
        beta: the price of a nat, at least 0 and finite.
        mask: [..., T] bool, True at the response's real tokens.

    Returns:
        rewards: [..., T], log_probs' dtype and device, 0 where masked.

    Raises:
        TypeError: wrong types, or two dtypes.
        ValueError: a shape or device that does not fit, beta below 0 or infinite.
        NaNInputError: a NaN at a real token or in a score (on the CPU).

    Source: Ziegler et al. (2019), equation 2; Stiennon et al. (2020), section 3.4.
    """
    require_floating("log_probs", log_probs, min_dims=1)
    require_twin("ref_log_probs", ref_log_probs, log_probs)
    require_tensor("scores", scores)
    require_like("scores", scores, log_probs.shape[:-1], log_probs)
    require_flags("mask", mask, log_probs)
    beta = require_price("beta", beta)
    dtype = accumulation_dtype(log_probs)
    k1 = log_probs.detach().to(dtype) - ref_log_probs.detach().to(dtype)
    to_come = mask.flip(-1).cumsum(-1).flip(-1)  # [..., T], real tokens from t on
    last = mask & (to_come == 1)
    # beta = 0 charges nothing, not even for a token that the reference forbids.
    charged = select(k1, mask) * beta if beta > 0 else torch.zeros_like(k1)
    paid = torch.where(last, scores.detach().to(dtype)[..., None], 0.0)
    rewards = paid - charged
    refuse_nan_behind(
        rewards, mask, log_probs=log_probs, ref_log_probs=ref_log_probs, scores=scores
    )
    return rewards.to(log_probs.dtype)
