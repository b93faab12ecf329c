"""Losses of small batches on a CPU: one compiled pass instead of thirty operations.

On a minibatch of 64 steps an operation of torch takes far longer to start than to do,
and a loss with its diagnostics is some thirty of them. The pass makes the loss, its
slope and the diagnostics at once. It serves what is ordinary (a mean over tokens,
everything finite) and leaves the rest to the operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from course_lib.kernels.engines import compiled_loop

_FEW = 2**13
"""Above it, operations on vectors are as fast."""


def compiled_loss(
    name: str,
    x: Tensor,
    constants: tuple[Tensor, ...],
    mask: Tensor | None,
    in_operations: Callable[[Tensor], tuple[Tensor, Any]],
    *numbers: float,
) -> tuple[Tensor, list[Tensor]] | None:
    """Run one of `loss_loops`, or return None where operations have to do it.

    Args:
        name: of the loop, called as `loop(x, *constants, mask, *numbers, slope, seen)`.
            `slope` has x's shape, `seen` takes the loss and four diagnostics.
        x: [..., T], what the loss is differentiated by.
        constants: x's shape each.
        mask: x's shape, bool, or None.
        in_operations: the same loss of x and its diagnostics, for second derivatives.
        numbers: the width of a clip, or whatever else the loop wants.

    Returns:
        The loss, and what else was seen, all [] in x's dtype. None for tensors that
        are large, on another device, of unlike dtypes or not plain, where numba does
        not run, and where something in the result is not finite.
    """
    if not x.is_cpu or not 0 < x.numel() <= _FEW or torch.compiler.is_compiling():
        return None
    if x.dtype not in (torch.float32, torch.float64):
        return None
    if any(one.dtype != x.dtype for one in constants):
        return None
    loop, _ = compiled_loop(name, x.dtype)
    if loop is None:
        return None
    slope, seen = torch.empty(x.shape, dtype=x.dtype), torch.empty(5, dtype=x.dtype)
    flags = _NO_MASK if mask is None else mask
    try:
        arrays = [_rows(one) for one in (x, *constants, flags)]
    except RuntimeError:  # a tensor of torch.func's, which has no memory of its own
        return None
    if not loop(*arrays, *numbers, _rows(slope), seen.numpy()):
        return None
    loss, *others = seen.unbind()
    if x.requires_grad:
        apply: Any = _WithSlope.apply
        loss = apply(x, loss, slope, in_operations)
    return loss, others


_NO_MASK = torch.empty(0, 0, dtype=torch.bool)


def _rows(x: Tensor) -> Any:
    """A NumPy view, [B, T]; a copy where no view has that shape."""
    x = x.detach()
    return (x if x.dim() == 2 else x.reshape(-1, x.shape[-1])).numpy()


class _WithSlope(torch.autograd.Function):
    """A loss that is known, as a function of x whose slope is known."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        loss: Tensor,
        slope: Tensor,
        in_operations: Callable[[Tensor], tuple[Tensor, Any]],
    ) -> Tensor:
        ctx.save_for_backward(x, slope)
        ctx.in_operations = in_operations
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is to follow
            loss, _ = ctx.in_operations(x)
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        return grads[0] * slope, None, None, None
