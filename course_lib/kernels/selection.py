"""Masks that choose: what a mask leaves out is read by nobody.

x * mask is no mask, since 0 * inf and 0 * NaN are NaN. `torch.where` is one, but on a
CPU it takes twenty times as long as a multiplication if the mask is irregular. For
large tensors there a mask becomes a word of ones or zeros for each number, and AND
with it gives the number's own bits or those of +0.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from course_lib.kernels.engines import refuse_nan

# From here on the bits win on a CPU; below it they are more calls than work.
_MANY = 2**13
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def selection_bits(mask: Tensor, x: Tensor) -> Tensor:
    """Return mask's shape, integers as wide as x's: all ones where True, else 0."""
    # A bool is a byte 0 or 1, and -1 has all bits set at every width.
    return mask.view(torch.int8).neg().to(_WORDS[x.element_size()])


def keep(x: Tensor, bits: Tensor) -> Tensor:
    """Return x where `bits` are ones and 0 elsewhere, whatever x holds there.

    The gradient is selected in the same way, so that an inf on its way back through
    a masked slot ends there. Differentiable any number of times.

    Args:
        x: [...] float.
        bits: what `selection_bits` made, of a shape that broadcasts to x's.
    """
    kept: Tensor = _Keep.apply(x, bits)  # type: ignore[no-untyped-call]
    return kept


def select(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return x [...] where `mask` [...] is True and 0 elsewhere; all of x for None."""
    if mask is None:
        return x
    if x.device.type == "cpu" and x.numel() >= _MANY:
        return keep(x, selection_bits(mask, x))
    return torch.where(mask, x, 0.0)


def chained(x: Tensor, y: Tensor, slope: Tensor) -> Tensor:
    """Return y as a function of x with dy/dx = slope, without 0 * inf on the way back.

    Where nobody asks (the gradient that arrives is 0) x gets 0, even for a slope that
    is not finite. A finite one is multiplied: what arrives may be 0 today and still
    have a derivative. `slope` may keep its graph, for second derivatives.
    """
    result: Tensor = _Chained.apply(  # type: ignore[no-untyped-call]
        x, y.detach(), slope
    )
    return result


def count_real(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return [], how many entries of x are real, in x's dtype."""
    if mask is None:
        return x.new_tensor(float(x.numel()))
    return count_true(mask).to(x.dtype)


def count_true(flags: Tensor) -> Tensor:
    """Return [] int, summed as bytes into the narrowest word that holds the count."""
    word = torch.int32 if flags.numel() < 2**31 else torch.int64
    return flags.view(torch.int8).sum(dtype=word)


def refuse_nan_behind(
    result: Tensor, mask: Tensor | None, **arguments: Tensor | None
) -> None:
    """Name the NaN that made `result` NaN, if one stood in a real position.

    Only on the CPU, where a look at the result costs nothing: on a GPU it would wait
    for all work that is under way. A NaN made of infinities is the caller's own.

    Raises:
        NaNInputError: names the argument and the index of its first NaN.
    """
    if result.device.type != "cpu" or torch.compiler.is_compiling():
        return
    # Infinities may add up to NaN as well; then no argument has one, and none is named.
    total = result if result.dim() == 0 else result.detach().sum()
    if not math.isnan(total.item()):
        return
    for name, value in arguments.items():
        if value is not None and mask is not None and value.shape == mask.shape:
            value = value.masked_fill(~mask, 0.0)
        refuse_nan(**{name: value})


class _Keep(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, bits: Tensor) -> Tensor:
        return (x.view(bits.dtype) & bits).view(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return keep(grads[0], ctx.saved_tensors[0]), None


class _Chained(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, y: Tensor, slope: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        asked = grads[0] * slope
        eager = asked.device.type == "cpu" and not torch.compiler.is_compiling()
        if eager and math.isfinite(asked.sum().item()):
            return asked, None, None  # nothing to select, and so in half the time
        unasked = (grads[0] == 0) & ~slope.isfinite()
        return grads[0] * slope.masked_fill(unasked, 0.0), None, None
