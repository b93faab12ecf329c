"""What every kernel must get right on a device: its own float64 results on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course_lib.kernels import (
    discounted_returns,
    gae,
    n_step_advantages,
    reverse_scan,
    shift_values,
    td_errors,
    vtrace,
)

SHAPES = ((1, 1), (3, 7), (1, 4096), (257, 130), (600, 5))
Check = Callable[["Inputs", str], tuple[Tensor, ...]]


class Inputs:
    """Random steps on a device in a dtype: the same numbers for the same seed."""

    def __init__(
        self, shape: tuple[int, int], device: torch.device, dtype: torch.dtype
    ):
        generator = torch.Generator().manual_seed(11)
        numbers = torch.randn((5, *shape), generator=generator)
        ends = torch.rand((3, *shape), generator=generator)
        self.rewards, self.values, self.after = numbers[:3].to(device, dtype)
        log_probs = -numbers[3:].abs()
        self.log_probs, self.behaviour_log_probs = log_probs.to(device, dtype)
        self.terminated, self.truncated = (ends[:2] < 0.02).to(device)
        self.mask = (ends[2] < 0.8).to(device)
        # Nothing may come from where nothing is looked at.
        self.after[self.terminated] = math.nan

    @property
    def steps(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.rewards, self.values, self.after

    @property
    def ends(self) -> dict[str, Tensor]:
        return {"terminated": self.terminated, "truncated": self.truncated}


def _scan(given: Inputs, engine: str) -> tuple[Tensor, ...]:
    decay = torch.where(given.truncated, 0.0, 0.9)
    first = given.values[:, 0]
    return (
        reverse_scan(given.rewards, decay, init=first, engine=engine),
        reverse_scan(given.rewards, 0.9, engine=engine),
        reverse_scan(given.rewards.t().contiguous().t(), decay, engine=engine),
    )


def _returns(given: Inputs, engine: str) -> tuple[Tensor, ...]:
    ends = given.ends
    return (
        discounted_returns(
            given.rewards, 0.95, next_values=given.after, engine=engine, **ends
        ),
    )


def _gae(given: Inputs, engine: str) -> tuple[Tensor, ...]:
    return gae(*given.steps, gamma=0.99, lam=0.95, engine=engine, **given.ends)


def _gae_turned(given: Inputs, engine: str) -> tuple[Tensor, ...]:
    steps = [x.t().contiguous().t() for x in given.steps]
    ends = {name: x.t().contiguous().t() for name, x in given.ends.items()}
    return gae(*steps, gamma=0.99, lam=0.95, engine=engine, **ends)


def _gae_masked(given: Inputs, engine: str) -> tuple[Tensor, ...]:
    steps = [torch.where(given.mask, x, math.nan) for x in given.steps]
    after = torch.where(given.mask & ~given.terminated, given.values, math.nan)
    return gae(
        *steps[:2], after, gamma=1.0, lam=0.95, mask=given.mask, engine=engine,
        **given.ends,
    )  # fmt: skip


def _gae_infinite(given: Inputs, engine: str) -> tuple[Tensor, ...]:
    """Infinity at the end of each row stays in its episode; only those are shown."""
    rewards = given.rewards.clone()
    rewards[:, -1] = math.inf
    cut = given.truncated.clone()
    cut[:, :-1] |= torch.arange(cut.shape[1] - 1, device=cut.device) == cut.shape[1] - 2
    results = gae(
        rewards, given.values, given.after, terminated=given.terminated,
        truncated=cut, gamma=0.99, lam=0.95, engine=engine,
    )  # fmt: skip
    return tuple(x[:, :-1] for x in results)


def _vtrace(given: Inputs, engine: str) -> tuple[Tensor, ...]:
    return vtrace(
        *given.steps, given.log_probs, given.behaviour_log_probs, gamma=0.95,
        engine=engine, **given.ends,
    )  # fmt: skip


def _without_a_loop(given: Inputs, engine: str) -> tuple[Tensor, ...]:
    ended = given.terminated
    return (
        td_errors(*given.steps, terminated=ended, gamma=0.99),
        n_step_advantages(*given.steps, gamma=0.99, n=3, **given.ends),
        shift_values(given.values, given.after.nan_to_num()[:, 0]),
    )


CHECKS: dict[str, Check] = {
    "reverse_scan": _scan,
    "discounted_returns": _returns,
    "gae": _gae,
    "gae of [T, B] in memory": _gae_turned,
    "gae with a mask": _gae_masked,
    "gae beside infinity": _gae_infinite,
    "vtrace": _vtrace,
    "td_errors, n_step_advantages, shift_values": _without_a_loop,
}


def largest_difference(run: Check, device: torch.device, engine: str) -> float:
    """Over all shapes and results: error over the largest result; inf for a NaN."""
    worst = 0.0
    for shape in SHAPES:
        found = run(Inputs(shape, device, torch.float32), engine)
        expected = run(Inputs(shape, torch.device("cpu"), torch.float64), "auto")
        for one, other in zip(found, expected, strict=True):
            if one.numel() == 0:
                continue
            scale = other.abs().max().clamp(min=1.0)
            error = ((one.cpu().double() - other).abs().max() / scale).item()
            worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst
