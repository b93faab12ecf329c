"""What the critic is trained on, plain and clipped."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.kernels.arguments import require_like, require_not_negative
from course_lib.kernels.compiled_losses import compiled_loss
from course_lib.kernels.loss_terms import (
    Diagnostics,
    constant,
    require_steps,
    share,
    trained,
)
from course_lib.kernels.masked import variance_of_real
from course_lib.kernels.reduction import Reduction, reduced
from course_lib.kernels.selection import refuse_nan_behind


def value_loss(
    values: Tensor,
    returns: Tensor,
    *,
    mask: Tensor | None = None,
    reduction: Reduction = "token_mean",
    constant_length: int | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Half the squared error of the critic (eq-value-loss):

        L = mean of (V(s_t) - R_t)^2 / 2

    The half makes the gradient V - R; vf_coef multiplies it outside.

        >>> value_loss(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]))[0]
        tensor(0.5000)

    Args:
        values: [..., T] float, with gradient.
        returns: [..., T], the targets A + V of the rollout; a constant. A [B, 1]
            against a [B] is refused: broadcast, each value would be trained on every
            return.
        mask: [..., T] bool, True where real. None: every step is.
        reduction: see `reduce_steps`.
        constant_length: for reduction="constant".

    Returns:
        loss: [], float32 or float64.
        diagnostics: detached [], over real steps: "explained_variance", which is
            1 - Var(R - V) / Var(R), and NaN where all returns are equal.

    Raises:
        TypeError: wrong types.
        ValueError: a shape or device that does not fit, a reduction that is none.
        NaNInputError: a NaN at a real step (on the CPU).

    Source: Schulman et al. (2017), equation 9 (L^VF, there without the half).
    """
    require_steps("values", values, mask)
    require_like("returns", returns, values.shape, values)

    def in_operations(values: Tensor) -> tuple[Tensor, Diagnostics]:
        v = trained("values", values, mask)
        target = constant("returns", returns, values, mask)
        loss = reduced((v - target).square() / 2, mask, reduction, constant_length)
        refuse_nan_behind(loss, mask, values=values, returns=returns)
        return loss, _fit(v.detach(), target, mask)

    if reduction == "token_mean" and constant_length is None:
        compiled = compiled_loss("value_pass", values, (returns,), mask, in_operations)
        if compiled is not None:
            return compiled[0], {"explained_variance": compiled[1][0]}
    return in_operations(values)


def clipped_value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    *,
    clip: float,
    mask: Tensor | None = None,
    reduction: Reduction = "token_mean",
    constant_length: int | None = None,
) -> tuple[Tensor, Diagnostics]:
    """The larger of two squared errors, of V and of V held back (eq-value-clip):

        L = mean of max((V - R)^2, (V_clip - R)^2) / 2
        V_clip = V_old + clip(V - V_old, -clip, clip)

    Where the clipped error is the larger there is no gradient. That is also so when V
    has overshot: old 0, new .5, target .4, clip .2 would be pulled back by the plain
    loss and stands still here. It is not the policy's clip in another place.

        >>> v = torch.tensor([0.5])
        >>> clipped_value_loss(v, torch.tensor([0.0]), torch.tensor([0.4]), clip=0.2)[0]
        tensor(0.0200)

    Args:
        values: [..., T] float, with gradient.
        old_values: [..., T], of the critic at the time of the rollout; a constant.
        returns: [..., T], the targets; a constant.
        clip: how far V may move from V_old, at least 0, in the reward's unit.
        mask, reduction, constant_length: as for `value_loss`.

    Returns:
        loss: [], float32 or float64.
        diagnostics: detached [], over real steps: "explained_variance" (as in
            `value_loss`), "value_clip_frac" (share further than clip from V_old),
            "value_clip_frac_active" (share whose gradient the clip has made 0).

    Raises:
        TypeError: wrong types.
        ValueError: a shape or device that does not fit, clip below 0, a reduction
            that is none.
        NaNInputError: a NaN at a real step (on the CPU).

    Source: Schulman et al.'s own code (baselines, ppo2); Engstrom et al. (2020),
    section 3, item 1.
    """
    clip = require_not_negative("clip", clip)
    v = trained("values", values, mask)
    old = constant("old_values", old_values, values, mask)
    target = constant("returns", returns, values, mask)
    plain = (v - target).square()
    moved = v.detach() - old
    held = (old + moved.clamp(-clip, clip) - target).square()
    outside = ~(moved.abs() <= clip)  # so that a NaN is outside, and shows
    flat = outside & ~(held <= plain.detach())
    terms = torch.where(flat, held, plain) / 2
    loss = reduced(terms, mask, reduction, constant_length)
    refuse_nan_behind(loss, mask, values=values, old_values=old_values, returns=returns)
    return loss, _fit(v.detach(), target, mask) | {
        "value_clip_frac": share(outside, mask, loss.dtype),
        "value_clip_frac_active": share(flat, mask, loss.dtype),
    }


def _fit(v: Tensor, target: Tensor, mask: Tensor | None) -> Diagnostics:
    spread = variance_of_real(target, mask)
    explained = 1 - variance_of_real(target - v, mask) / spread
    return {"explained_variance": torch.where(spread > 0, explained, torch.nan)}
