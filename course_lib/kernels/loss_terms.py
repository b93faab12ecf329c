"""What comes into a loss: checked, selected, and in the dtype to sum it in."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_flags,
    require_floating,
    require_like,
    require_tensor,
)
from course_lib.kernels.engines import accumulation_dtype
from course_lib.kernels.selection import count_true, select

Diagnostics = dict[str, Tensor]


def trained(name: str, x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x [..., T] with its gradient, 0 where masked, float32 or float64.

    Raises:
        As `require_steps`.
    """
    require_steps(name, x, mask)
    return select(x.to(accumulation_dtype(x)), mask)


def require_steps(name: str, x: Tensor, mask: Tensor | None) -> None:
    """Refuse what has no steps, or a mask that does not fit them.

    Raises:
        TypeError: x is no tensor of floats, mask is not boolean.
        ValueError: x has no axis or no entry, or mask another shape or device.
    """
    require_floating(name, x, min_dims=1)
    if x.numel() == 0:
        raise ValueError(f"{name} must hold at least one entry, got {[*x.shape]}")
    if mask is not None:
        require_flags("mask", mask, x)


def constant(name: str, x: Tensor, model: Tensor, mask: Tensor | None) -> Tensor:
    """Return x like `trained(model)`, cut off from its gradient.

    Raises:
        TypeError: x is no tensor of real numbers.
        ValueError: another shape or device than `model`; nothing broadcasts.
    """
    require_tensor(name, x)
    require_like(name, x, model.shape, model)
    return select(x.detach().to(accumulation_dtype(model)), mask)


def share(flags: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return [], the share of real steps at which a flag is set; 0 without any.

    A masked step has no flag set: what it holds was selected away before.
    """
    if mask is None:
        return flags.mean(dtype=dtype)
    return count_true(flags).to(dtype) / count_true(mask).clamp(min=1)
