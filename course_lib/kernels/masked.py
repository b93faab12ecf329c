"""Sums, means and variances over the real steps, and advantages made comparable."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_axis,
    require_flags,
    require_not_negative,
    require_tensor,
)
from course_lib.kernels.engines import accumulation_dtype, result_dtype
from course_lib.kernels.selection import (
    count_real,
    keep,
    refuse_nan_behind,
    select,
    selection_bits,
)


def masked_sum(x: Tensor, mask: Tensor | None, dim: int | None = None) -> Tensor:
    """Sum what is real: sum_t m_t x_t (eq-masked-mean, its numerator).

    Masked entries are not read, be they NaN or inf, and get the gradient 0.

        >>> x = torch.tensor([2.0, 4.0, torch.nan])
        >>> masked_sum(x, torch.tensor([True, True, False]))
        tensor(6.)

    Args:
        x: [...], floats, or integers, which are promoted to the default float.
        mask: x's shape, bool, True where real. None: everything is.
        dim: the axis to sum over. None: all of them.

    Returns:
        [] or x's shape without `dim`, x's dtype and device; bf16 and fp16 are summed
        in float32. Where nothing is real, 0.

    Raises:
        TypeError: x is no real tensor, mask is not boolean, dim is no integer.
        ValueError: mask's shape is not x's, x has no axis `dim`.
        NaNInputError: a NaN in a real entry (on the CPU).
    """
    x, dtype = _checked(x, mask, dim)
    total = _sum(select(x, mask), dim)
    refuse_nan_behind(total, mask, x=x)
    return total.to(dtype)


def masked_mean(x: Tensor, mask: Tensor | None, dim: int | None = None) -> Tensor:
    """Average what is real: sum_t m_t x_t / sum_t m_t (eq-masked-mean).

    The denominator counts real entries, not all: the mean of x * mask shrinks with
    the padding (natolambert/rlhf-book PR 216).

        >>> x = torch.tensor([2.0, 4.0, 100.0])
        >>> masked_mean(x, torch.tensor([True, True, False]))
        tensor(3.)

    Arguments and errors are those of `masked_sum`.

    Returns:
        [] or x's shape without `dim`, x's dtype and device. Where nothing is real,
        0, with the gradient 0.
    """
    x, dtype = _checked(x, mask, dim)
    mean = mean_of_real(x, mask, dim)
    refuse_nan_behind(mean, mask, x=x)
    return mean.to(dtype)


def masked_var(
    x: Tensor, mask: Tensor | None, dim: int | None = None, *, unbiased: bool = False
) -> Tensor:
    """Average the squared distance of what is real from its mean (eq-masked-var).

        var = sum_t m_t (x_t - mean)^2 / n,    n - 1 in place of n if unbiased

    The mean is taken first and the distances after it: E[x^2] - E[x]^2 in one pass
    gives 0 for 1.25 where the mean is 1e4.

        >>> masked_var(torch.tensor([1.0, 2.0, 3.0, 4.0]) + 1e4, None)
        tensor(1.2500)

    Args:
        unbiased: divide by n - 1 (Bessel) instead of n.
        x, mask, dim: as for `masked_sum`, as are the errors.

    Returns:
        [] or x's shape without `dim`, x's dtype and device. With one real entry 0,
        where the unbiased form would be 0 / 0; with none, 0.
    """
    x, dtype = _checked(x, mask, dim)
    count = _count(x, mask, dim)
    far = _distances(x, mask, dim, count)
    var = _sum(far * far, dim) / (count - 1 if unbiased else count).clamp(min=1)
    refuse_nan_behind(var, mask, x=x)
    return var.to(dtype)


def whiten(
    x: Tensor,
    mask: Tensor | None = None,
    *,
    dim: int | None = None,
    unbiased: bool = False,
    eps: float = 1e-8,
) -> Tensor:
    """Shift to mean 0 and scale to variance 1: (x - mean) / sqrt(var + eps)
    (eq-whiten), mean and variance over all real entries together, or along `dim`.

    Mask first, then whiten: over the padding as well, [1, 2, 3, 0, 0, 0] loses every
    negative advantage. Returns (targets of the critic) are made before this, from
    advantages as they were. The result carries no gradient.

        >>> mask = torch.tensor([True, True, True, False])
        >>> whiten(torch.tensor([1.0, 2.0, 3.0, 9.0]), mask)
        tensor([-1.2247,  0.0000,  1.2247,  0.0000])

    Args:
        x: [...], floats, or integers, which are promoted to the default float.
        mask: x's shape, bool, True where real. None: everything is.
        dim: whiten each row along this axis by itself. None: all entries are one row.
        unbiased: divide by n - 1 in the variance (TRL, verl) instead of n.
        eps: added to the variance, so that equal entries give 0.

    Returns:
        x's shape, dtype and device; 0 where masked. One real entry gives 0 either way.

    Raises:
        TypeError: x is no real tensor, mask is not boolean, dim is no integer, eps
            is no number.
        ValueError: mask's shape is not x's, x has no axis `dim`, eps is negative.
        NaNInputError: a NaN in a real entry (on the CPU).

    Source: Huang et al. (2022), "The 37 implementation details of PPO", detail 7,
    which whitens each minibatch; over which entries is the caller's choice.
    """
    x, dtype = _checked(x.detach() if isinstance(x, Tensor) else x, mask, dim)
    eps = require_not_negative("eps", eps)
    count = _count(x, mask, dim)
    if dim is None:
        far = _own_distances(x, mask, count)
        squares = torch.dot(far.view(-1), far.view(-1))
    else:
        far = _distances(x, mask, dim, count)
        squares, count = far.square().sum(dim, keepdim=True), count.unsqueeze(dim)
    var = squares / (count - 1 if unbiased else count).clamp(min=1)
    refuse_nan_behind(var, mask, x=x)
    # With eps = 0 equal entries would be 0 / 0; they are 0 apart, whatever the scale.
    scale = torch.where(var + eps > 0, (var + eps).rsqrt(), 1.0)
    return far.mul_(scale).to(dtype)


def mean_of_real(x: Tensor, mask: Tensor | None, dim: int | None = None) -> Tensor:
    """`masked_mean` of what is checked and wide; refuses nothing."""
    if mask is None and dim is None and x.numel():
        return x.mean()
    return _sum(select(x, mask), dim) / _count(x, mask, dim).clamp(min=1)


def variance_of_real(x: Tensor, mask: Tensor | None) -> Tensor:
    """`masked_var` of all that is checked, wide and a constant; refuses nothing."""
    count = _count(x, mask, None)
    far = _own_distances(x, mask, count)
    return torch.dot(far.view(-1), far.view(-1)) / count.clamp(min=1)


def _checked(x: object, mask: object, dim: object) -> tuple[Tensor, torch.dtype]:
    """x in the dtype to sum it in, and the dtype of the result."""
    tensor = require_tensor("x", x)
    if mask is not None:
        require_flags("mask", mask, tensor)
    if dim is not None:
        require_axis("dim", dim, tensor)
    return tensor.to(accumulation_dtype(tensor)), result_dtype(tensor.dtype)


def _sum(x: Tensor, dim: int | None, keepdim: bool = False) -> Tensor:
    return x.sum() if dim is None else x.sum(dim, keepdim=keepdim)


def _count(x: Tensor, mask: Tensor | None, dim: int | None) -> Tensor:
    """How many are real: [] or x's shape without `dim`, x's dtype."""
    if dim is None:
        return count_real(x, mask)
    if mask is None:
        return torch.ones_like(x).sum(dim)
    return mask.sum(dim).to(x.dtype)


def _distances(
    x: Tensor, mask: Tensor | None, dim: int | None, count: Tensor
) -> Tensor:
    """x - mean over the real entries, 0 elsewhere, in x's shape.

    Centred twice: the first mean is off by the rounding of x itself, so that equal
    entries of 1e4 would come out as 1e-3 and be whitened to 1.
    """
    bits = None if mask is None else selection_bits(mask, x)
    if dim is not None:
        count = count.unsqueeze(dim)
    count = count.clamp(min=1)
    far = x
    for _ in range(2):
        far = far if bits is None else keep(far, bits)
        far = far - _sum(far, dim, keepdim=True) / count
    return far if bits is None else keep(far, bits)


def _own_distances(x: Tensor, mask: Tensor | None, count: Tensor) -> Tensor:
    """As `_distances` over everything, in one tensor of our own: half the time."""
    if mask is None:
        far = x.clone(memory_format=torch.contiguous_format)
    else:
        bits = selection_bits(mask, x).contiguous()
        words = x.contiguous().view(bits.dtype) & bits
        far = words.view(x.dtype)
    for _ in range(2):
        far.sub_(far.sum() / count.clamp(min=1))
        if mask is not None:
            words.bitwise_and_(bits)
    return far
