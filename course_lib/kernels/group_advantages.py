"""Advantages without a critic: each answer against its siblings of the same prompt."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_flags,
    require_like,
    require_not_negative,
    require_tensor,
)
from course_lib.kernels.engines import accumulation_dtype, result_dtype
from course_lib.kernels.selection import refuse_nan_behind, select


def leave_one_out_advantages(
    scores: Tensor, groups: Tensor | None = None, valid: Tensor | None = None
) -> Tensor:
    """Compare each score with the mean of the others in its group (eq-rloo):

        A_i = s_i - (sum of s_j, j != i) / (n - 1) = n / (n - 1) * (s_i - mean)

    The own sample stays out of the baseline, so the policy gradient stays unbiased;
    with the mean over all n it shrinks by (n - 1) / n.

        >>> leave_one_out_advantages(torch.tensor([3.0, 1.0, 0.0, 0.0]))
        tensor([ 2.6667,  0.0000, -1.3333, -1.3333])

    Args:
        scores: [..., n], a group a row; or any shape, with `groups`. Integers are
            promoted to the default float.
        groups: scores' shape, integers: scores with the same number are a group,
            wherever they stand. None: the last axis is the group.
        valid: scores' shape, bool. A score that is not valid is in nobody's baseline
            and gets 0.

    Returns:
        scores' shape, dtype and device, without gradient. A group of one gets 0, as
        does one whose scores are all equal (exactly).

    Raises:
        TypeError: no tensor, groups not integer, valid not boolean.
        ValueError: a shape or device unlike the scores', or no axis without groups.
        NaNInputError: a NaN in a valid score (on the CPU).

    Source: Kool, van Hoof and Welling (2019), equation 8; Ahmadian et al. (2024),
    equation 7.
    """
    kept, siblings = _grouped(scores, groups, valid)
    number = siblings.total(select(torch.ones_like(kept), valid))
    far = _from_mean(kept, valid, number, siblings)
    advantages = far * number / (number - 1).clamp(min=1)
    refuse_nan_behind(advantages, valid, scores=scores)
    return advantages.to(result_dtype(scores.dtype))


def group_relative_advantages(
    scores: Tensor,
    groups: Tensor | None = None,
    *,
    scale: bool = True,
    unbiased: bool = True,
    eps: float = 1e-4,
) -> Tensor:
    """Standardise each score within its group, as GRPO does (eq-grpo):

        A_i = (s_i - mean) / (std + eps)

    With scale=False only the mean is taken off (Dr. GRPO): dividing by std makes
    questions that are nearly always or nearly never solved count for more.

        >>> group_relative_advantages(torch.tensor([3.0, 1.0]))
        tensor([ 0.7071, -0.7071])

    Args:
        scores: [..., n], a group a row; or any shape, with `groups`. Integers are
            promoted to the default float.
        groups: scores' shape, integers: scores with the same number are a group. None:
            the last axis is the group.
        scale: divide by std + eps.
        unbiased: n - 1 in the variance, else n.
        eps: added to std, at least 0.

    Returns:
        scores' shape, dtype and device, without gradient. A group of one gets 0, as
        does one whose scores are all equal (exactly).

    Raises:
        TypeError: no tensor, groups not integer, eps no number.
        ValueError: a shape or device unlike the scores', no axis without groups, eps
            below 0.
        NaNInputError: a NaN among the scores (on the CPU).

    Source: Shao et al. (2024), "DeepSeekMath", section 4.1.2; Liu et al. (2025) for
    scale=False.
    """
    eps = require_not_negative("eps", eps)
    kept, siblings = _grouped(scores, groups, None)
    number = siblings.total(torch.ones_like(kept))
    advantages = _from_mean(kept, None, number, siblings)
    if scale:
        freedom = number - 1 if unbiased else number
        std = (siblings.total(advantages.square()) / freedom.clamp(min=1)).sqrt() + eps
        advantages = advantages / torch.where(std > 0, std, 1.0)
    refuse_nan_behind(advantages, None, scores=scores)
    return advantages.to(result_dtype(scores.dtype))


@dataclass(frozen=True)
class _Siblings:
    """Who belongs together: a row, or what shares a place (the index of its group)."""

    place: Tensor | None
    groups: int

    def total(self, x: Tensor) -> Tensor:
        """Give each entry the sum over its own group."""
        if self.place is None:
            return x.sum(-1, keepdim=True).expand_as(x)
        sums = x.new_zeros(self.groups)
        return sums.index_add_(0, self.place.view(-1), x.reshape(-1))[self.place]

    def smallest(self, x: Tensor) -> Tensor:
        """Give each entry the smallest of its own group."""
        if self.place is None:
            return x.amin(-1, keepdim=True).expand_as(x) if x.numel() else x
        least = x.new_full((self.groups,), torch.inf)
        least.scatter_reduce_(0, self.place.view(-1), x.reshape(-1), "amin")
        return least[self.place]


def _grouped(
    scores: object, groups: object, valid: Tensor | None
) -> tuple[Tensor, _Siblings]:
    """The valid scores in the dtype to sum them in, and who belongs together."""
    tensor = require_tensor("scores", scores, min_dims=1 if groups is None else 0)
    if valid is not None:
        require_flags("valid", valid, tensor)
    kept = select(tensor.detach().to(accumulation_dtype(tensor)), valid)
    if groups is None:
        return kept, _Siblings(None, 0)
    ids = require_tensor("groups", groups)
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(f"groups must have an integer dtype, got {ids.dtype}")
    require_like("groups", ids, tensor.shape, tensor)
    names, place = torch.unique(ids, return_inverse=True)
    return kept, _Siblings(place, len(names))


def _from_mean(
    kept: Tensor, valid: Tensor | None, number: Tensor, siblings: _Siblings
) -> Tensor:
    """s_i - mean of the group, 0 where not valid.

    Counted from the group's smallest score, so that equal scores are 0 apart exactly:
    their mean may be off by a rounding, which eps would magnify ten thousand times.
    """
    if valid is None:
        base = siblings.smallest(kept)
    else:
        lowest = siblings.smallest(kept.masked_fill(~valid, torch.inf))
        base = torch.where(valid, lowest, 0.0)
    far = select(kept - base, valid)
    return select(far - siblings.total(far) / number.clamp(min=1), valid)
