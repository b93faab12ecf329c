"""The steps that an estimator of advantages reads: checked, and taken apart.

`next_values` is the value of the state that a step really reached, before any reset.
A step is followed by nothing in three ways:

    terminated   the task itself is over: no value follows, and no later error counts
    truncated    the episode was cut off: its last value counts, no later error does
    end of row   the collection stopped in mid-episode: as truncated

Where terminated and truncated are both set, terminated rules.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.kernels.arguments import require_flags, require_like, require_tensor
from course_lib.kernels.engines import plain, plain_rows, refuse_nan, result_dtype
from course_lib.kernels.selection import select


class Steps(NamedTuple):
    """Rows of steps, each tensor [..., T]; None for a flag means nowhere, for the
    mask that all steps are real."""

    rewards: Tensor
    values: Tensor
    next_values: Tensor
    terminated: Tensor
    truncated: Tensor | None = None
    mask: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """What torch promotes rewards, values and next values to."""
        return result_dtype(
            self.rewards.dtype, self.values.dtype, self.next_values.dtype
        )

    @property
    def cut(self) -> Tensor:
        """[..., T] bool: no later error counts after this step."""
        if self.truncated is None:
            return self.terminated
        return self.terminated | self.truncated

    def as_rows(self) -> Steps:
        """The same with all batch axes as one, [B, T], and without gradients."""
        rewards, values, after = (plain_rows(x, x.dtype) for x in self[:3])
        terminated, truncated, mask = (
            None if x is None else plain_rows(x, torch.bool) for x in self[3:]
        )
        assert terminated is not None
        return Steps(rewards, values, after, terminated, truncated, mask)


def checked_steps(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor | None = None,
    mask: Tensor | None = None,
) -> Steps:
    """Refuse what does not have the rewards' shape and device, or the right type.

    Raises:
        TypeError: no tensor, or a flag that is not boolean.
        ValueError: rewards without an axis, or a shape or device unlike theirs.
    """
    require_tensor("rewards", rewards, min_dims=1)
    shape = rewards.shape
    require_like("values", values, shape, rewards)
    require_like("next_values", next_values, shape, rewards)
    require_flags("terminated", terminated, rewards)
    if truncated is not None:
        require_flags("truncated", truncated, rewards)
    if mask is not None:
        require_flags("mask", mask, rewards)
    return Steps(rewards, values, next_values, terminated, truncated, mask)


def one_step_errors(steps: Steps, gamma: float, dtype: torch.dtype) -> Tensor:
    """r_t + gamma * V(s_{t+1}) - V(s_t), 0 where masked, computed in `dtype`."""
    errors = plain(steps.rewards, dtype) - plain(steps.values, dtype)
    if gamma > 0:  # a discount of 0 looks at no value, not even an infinite one
        after = plain(values_after(steps), dtype)
        errors = errors + select(gamma * after, ~steps.terminated)
    return select(errors, steps.mask)


def values_after(steps: Steps) -> Tensor:
    """V(s_{t+1}), [..., T]: under a mask, of the next real step within the episode."""
    if steps.mask is None or steps.rewards.shape[-1] == 0:
        return steps.next_values
    following = next_real_step(steps.mask)
    inside = following < steps.mask.shape[-1]
    if steps.truncated is not None:
        inside = inside & ~steps.truncated
    index = following.clamp(max=steps.mask.shape[-1] - 1)
    return torch.where(inside, steps.values.gather(-1, index), steps.next_values)


def next_real_step(mask: Tensor) -> Tensor:
    """[..., T] int: the first real step after t, or T where there is none."""
    length = mask.shape[-1]
    places = torch.arange(length, device=mask.device).expand(mask.shape)
    places = places.masked_fill(~mask, length)
    after = torch.full_like(places, length)
    after[..., :-1] = places[..., 1:]
    return after.flip(-1).cummin(-1).values.flip(-1)


def refuse_nan_steps(steps: Steps, gamma: float) -> None:
    """Raise for the first NaN that a result of these steps would depend on.

    Raises:
        NaNInputError: names the argument and the index of its first NaN.
    """
    unused = steps.terminated
    rewards, values = steps.rewards, steps.values
    if steps.mask is not None:
        hidden = ~steps.mask
        rewards, values = rewards.masked_fill(hidden, 0), values.masked_fill(hidden, 0)
        replaced = next_real_step(steps.mask) < steps.mask.shape[-1]
        if steps.truncated is not None:
            replaced = replaced & ~steps.truncated
        unused = unused | hidden | replaced
    after = steps.next_values.masked_fill(unused, 0) if gamma > 0 else None
    refuse_nan(rewards=rewards, values=values, next_values=after)
