"""What every kernel must get right on a device: its own float64 results on the CPU."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchmarks.device_checks_losses import LOSSES, Check
from benchmarks.device_inputs import Inputs
from course_lib.kernels import (
    Engine,
    discounted_returns,
    gae,
    n_step_advantages,
    reverse_scan,
    shift_values,
    td_errors,
    vtrace,
)

SHAPES = ((1, 1), (3, 7), (1, 4096), (257, 130), (600, 5))


def _scan(given: Inputs) -> tuple[Tensor, ...]:
    decay = torch.where(given.truncated, 0.0, 0.9)
    first = given.values[:, 0]
    return (
        reverse_scan(given.rewards, decay, init=first, engine=given.engine),
        reverse_scan(given.rewards, 0.9, engine=given.engine),
        reverse_scan(given.rewards.t().contiguous().t(), decay, engine=given.engine),
    )


def _returns(given: Inputs) -> tuple[Tensor, ...]:
    ends = given.ends
    return (
        discounted_returns(
            given.rewards, 0.95, next_values=given.after, engine=given.engine, **ends
        ),
    )


def _gae(given: Inputs) -> tuple[Tensor, ...]:
    return gae(*given.steps, gamma=0.99, lam=0.95, engine=given.engine, **given.ends)


def _gae_turned(given: Inputs) -> tuple[Tensor, ...]:
    steps = [x.t().contiguous().t() for x in given.steps]
    ends = {name: x.t().contiguous().t() for name, x in given.ends.items()}
    return gae(*steps, gamma=0.99, lam=0.95, engine=given.engine, **ends)


def _gae_masked(given: Inputs) -> tuple[Tensor, ...]:
    steps = [given.hidden(x) for x in given.steps]
    after = given.hidden(given.values).masked_fill(given.terminated, math.nan)
    return gae(
        *steps[:2], after, gamma=1.0, lam=0.95, mask=given.mask, engine=given.engine,
        **given.ends,
    )  # fmt: skip


def _gae_infinite(given: Inputs) -> tuple[Tensor, ...]:
    """Infinity at the end of each row stays in its episode; only those are shown."""
    rewards = given.rewards.clone()
    rewards[:, -1] = math.inf
    cut = given.truncated.clone()
    cut[:, :-1] |= torch.arange(cut.shape[1] - 1, device=cut.device) == cut.shape[1] - 2
    results = gae(
        rewards, given.values, given.after, terminated=given.terminated,
        truncated=cut, gamma=0.99, lam=0.95, engine=given.engine,
    )  # fmt: skip
    return tuple(x[:, :-1] for x in results)


def _vtrace(given: Inputs) -> tuple[Tensor, ...]:
    return vtrace(
        *given.steps, given.log_probs, given.old_log_probs, gamma=0.95,
        engine=given.engine, **given.ends,
    )  # fmt: skip


def _without_a_loop(given: Inputs) -> tuple[Tensor, ...]:
    ended = given.terminated
    return (
        td_errors(*given.steps, terminated=ended, gamma=0.99),
        n_step_advantages(*given.steps, gamma=0.99, n=3, **given.ends),
        shift_values(given.values, given.after.nan_to_num()[:, 0]),
    )


RECURRENCES: dict[str, Check] = {
    "reverse_scan": _scan,
    "discounted_returns": _returns,
    "gae": _gae,
    "gae of [T, B] in memory": _gae_turned,
    "gae with a mask": _gae_masked,
    "gae beside infinity": _gae_infinite,
    "vtrace": _vtrace,
}
"""These run once on each engine."""

CHECKS: dict[str, Check] = {
    **RECURRENCES,
    "td_errors, n_step_advantages, shift_values": _without_a_loop,
    **LOSSES,
}


def largest_difference(
    check: Check, device: torch.device, engine: Engine = "auto"
) -> float:
    """Over all shapes and results: error over the largest result; inf for a NaN."""
    worst = 0.0
    for shape in SHAPES:
        found = check(Inputs(shape, device, torch.float32, engine))
        expected = check(Inputs(shape, torch.device("cpu"), torch.float64))
        for one, other in zip(found, expected, strict=True):
            if one.numel() == 0:
                continue
            scale = other.abs().max().clamp(min=1.0)
            error = ((one.cpu().double() - other).abs().max() / scale).item()
            worst = max(worst, error if math.isfinite(error) else math.inf)
    return worst
