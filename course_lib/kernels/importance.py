"""Weights that let one policy's samples speak about another."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_flags,
    require_floating,
    require_twin,
)
from course_lib.kernels.engines import accumulation_dtype
from course_lib.kernels.selection import chained, refuse_nan_behind, select

WeightKind = Literal["per_step", "trajectory", "per_decision"]


def importance_weights(
    log_probs: Tensor,
    behaviour_log_probs: Tensor,
    *,
    mask: Tensor | None = None,
    kind: WeightKind = "per_step",
) -> Tensor:
    """Weigh what the behaviour policy b sampled as if pi had (eq-importance):

        per_step        rho_t = pi(a_t | s_t) / b(a_t | s_t)
        per_decision    rho_0 * ... * rho_t          for the reward at t
        trajectory      rho_0 * ... * rho_{T-1}      for the whole row

    Products are sums of logarithms. A masked step counts as 1 within a product.
    Nothing is clamped: a log-ratio above 88 overflows to inf in float32.

        >>> pi = torch.tensor([0.5, 0.2]).log()
        >>> b = torch.tensor([0.25, 0.4]).log()
        >>> importance_weights(pi, b)
        tensor([2.0000, 0.5000])
        >>> importance_weights(pi, b, kind="per_decision")
        tensor([2.0000, 1.0000])

    Args:
        log_probs: [..., T] float, log pi(a_t | s_t).
        behaviour_log_probs: [..., T], log b(a_t | s_t) as it was when b sampled, with
            its temperature and filters; same dtype. Its gradient is cut.
        mask: [..., T] bool, True where real. None: every step is.
        kind: which of the three.

    Returns:
        [..., T], 0 where masked; for "trajectory" [...]. log_probs' dtype and device,
        with gradient to log_probs.

    Raises:
        TypeError: no floats, two dtypes, mask not boolean.
        ValueError: a shape or device that does not fit, an unknown kind, or, looked
            for on the CPU, a real action that b could not have sampled.
        NaNInputError: a NaN at a real step (on the CPU).

    Source: Precup, Sutton and Singh (2000), equations 3 and 8.
    """
    require_floating("log_probs", log_probs, min_dims=1)
    require_twin("behaviour_log_probs", behaviour_log_probs, log_probs)
    if mask is not None:
        require_flags("mask", mask, log_probs)
    if kind not in get_args(WeightKind):
        raise ValueError(f"kind must be one of {get_args(WeightKind)}, got {kind!r}")
    behaviour = select(behaviour_log_probs.detach(), mask)
    _refuse_impossible(behaviour)
    dtype = accumulation_dtype(log_probs)
    log_ratio = select(log_probs, mask).to(dtype) - behaviour.to(dtype)
    whole = kind == "trajectory"
    if whole:
        log_ratio = log_ratio.sum(-1)  # [...]
    elif kind == "per_decision":
        log_ratio = log_ratio.cumsum(-1)  # [..., T]
    ratio = log_ratio.exp()
    weights = select(chained(log_ratio, ratio, ratio), None if whole else mask)
    refuse_nan_behind(
        weights, mask, log_probs=log_probs, behaviour_log_probs=behaviour_log_probs
    )
    return weights.to(log_probs.dtype)


def effective_sample_size(weights: Tensor) -> Tensor:
    """Number of equally weighted samples worth as much (eq-ess):

        ESS = (sum_i w_i)^2 / sum_i w_i^2

    For n samples of b it is near n / (1 + chi^2(pi, b)).

        >>> effective_sample_size(torch.tensor([1.0, 1.0, 1.0, 0.0]))
        tensor(3.)

    Args:
        weights: [..., N] float, at least 0, over the last axis. Their scale is of no
            account.

    Returns:
        [...], in samples, between 1 and N; 0 where all weights are 0. weights' dtype
        and device, without gradient.

    Raises:
        TypeError: no floats.
        ValueError: no axis; on the CPU also a weight that is negative or infinite.
        NaNInputError: a NaN among the weights (on the CPU).

    Source: Kong (1992); Owen (2013), "Monte Carlo theory", equation 9.13.
    """
    w = require_floating("weights", weights, min_dims=1).detach()
    if w.numel() == 0:
        return w.new_zeros(w.shape[:-1])
    refuse_nan_behind(w, None, weights=w)
    if w.device.type == "cpu" and not (w.min() >= 0 and w.max() < math.inf):
        raise ValueError(
            f"weights must be finite and at least 0, got {w.min()} to {w.max()}"
        )
    largest = w.amax(-1, keepdim=True)  # squares of what is left cannot overflow
    share = w.to(accumulation_dtype(w)) / torch.where(largest > 0, largest, 1.0)
    squares = share.square().sum(-1)
    size = share.sum(-1).square() / torch.where(squares > 0, squares, 1.0)
    return size.to(weights.dtype)


def _refuse_impossible(behaviour: Tensor) -> None:
    if behaviour.device.type == "cpu" and (behaviour == -math.inf).any():
        where = (behaviour == -math.inf).nonzero()[0].tolist()
        raise ValueError(
            "behaviour_log_probs must be above -inf at each real step, since the "
            f"action was sampled; got -inf at index {where}"
        )
