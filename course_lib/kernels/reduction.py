"""Four averages, all of which are called "the mean loss"."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_flags,
    require_floating,
    require_positive_int,
)
from course_lib.kernels.engines import accumulation_dtype
from course_lib.kernels.selection import count_real, refuse_nan_behind, select

Reduction = Literal["token_mean", "sequence_mean", "sequence_sum", "constant"]
_REDUCTIONS = get_args(Reduction)


def reduce_steps(
    x: Tensor,
    mask: Tensor | None,
    reduction: Reduction,
    constant_length: int | None = None,
) -> Tensor:
    """Make one number of the steps of all rows (eq-reduction).

        token_mean      sum_bt m x / sum_bt m            long rows count for more
        sequence_mean   mean_b (sum_t m x / sum_t m)     tokens of long rows for less
        sequence_sum    mean_b (sum_t m x)               the gradient of the objective
        constant        mean_b (sum_t m x) / L           the same over a fixed length L

    A row without a real step is no row: it counts in no denominator.

        >>> losses = torch.tensor([[1.0, 1.0, 1.0, 1.0], [4.0, 0.0, 0.0, 0.0]])
        >>> mask = torch.tensor([[True] * 4, [True, False, False, False]])
        >>> [reduce_steps(losses, mask, r).item()
        ...     for r in ("token_mean", "sequence_mean", "sequence_sum")]
        [1.600000023841858, 2.5, 4.0]
        >>> reduce_steps(losses, mask, "constant", 4)
        tensor(1.)

    Args:
        x: [..., T] float, one term a step; bf16 and fp16 are summed in float32.
        mask: [..., T] bool, True where real. None: every step is.
        reduction: which of the four.
        constant_length: L, for "constant" and only for it.

    Returns:
        [], x's dtype and device; 0 where nothing is real.

    Raises:
        TypeError: x is no tensor of floats, mask is not boolean, a length that is no
            integer.
        ValueError: x has no axis, mask another shape or device, an unknown reduction,
            "constant" without a length or a length without "constant".
        NaNInputError: a NaN at a real step (on the CPU).

    Source: Liu et al. (2025), "Understanding R1-Zero-like training", section 3; Yu
    et al. (2025), "DAPO", equation 12, for token_mean.
    """
    require_floating("x", x, min_dims=1)
    if mask is not None:
        require_flags("mask", mask, x)
    wide = x.to(accumulation_dtype(x))
    result = reduced(wide, mask, reduction, constant_length)
    refuse_nan_behind(result, mask, x=x)
    return result.to(x.dtype)


def reduced(
    x: Tensor,
    mask: Tensor | None,
    reduction: Reduction,
    constant_length: int | None = None,
) -> Tensor:
    """`reduce_steps` of what is checked and wide; refuses no NaN.

    Raises:
        ValueError, TypeError: a reduction or length that is none.
    """
    length = _checked_length(reduction, constant_length)
    if reduction == "token_mean" and mask is None and x.numel():
        return x.mean()
    kept = select(x, mask)
    if reduction == "token_mean":
        return kept.sum() / count_real(x, mask).clamp(min=1)
    lengths = torch.ones_like(x) if mask is None else mask
    real = lengths.sum(-1).to(x.dtype)  # [...]
    sums = kept.sum(-1)  # [...]
    if reduction == "sequence_mean":
        sums = sums / real.clamp(min=1)
    return sums.sum() / ((real > 0).sum().clamp(min=1) * length)


def _checked_length(reduction: Reduction, constant_length: int | None) -> int:
    if reduction not in _REDUCTIONS:
        raise ValueError(f"reduction must be one of {_REDUCTIONS}, got {reduction!r}")
    if reduction == "constant":
        if constant_length is None:
            raise ValueError("reduction='constant' needs constant_length, got None")
        return require_positive_int("constant_length", constant_length)
    if constant_length is not None:
        raise ValueError(
            f"constant_length={constant_length} fits reduction='constant' only, "
            f"got reduction={reduction!r}"
        )
    return 1
