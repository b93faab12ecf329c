"""The loops over time that numba compiles; this module is loaded at first use.

A loop that walks one row backwards waits, at each step, for its own last addition.
`gae_by_fours` therefore walks four rows side by side, each with a running sum of its
own, and takes the waiting out of what surrounds the sums: TD errors and results are
made in straight passes over a block of steps, which the compiler turns into vector
instructions. It cuts by multiplying with 0, so an inf or NaN spreads to the start of
its row; there it is seen, and the plain loop, which selects, does the work anew.

All running sums are float64: nothing is lost to the length of a row, and each result
is rounded once, when it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]

# Steps of four rows that are held at a time: long enough to read the memory in order,
# short enough for the second-level cache.
_BLOCK = 4096


def compiled(function: Callable[..., Any]) -> Any:
    try:
        return numba.njit(cache=True)(function)
    except RuntimeError:  # no folder that the compiled code may be kept in
        return numba.njit(function)


@compiled
def scan_loop(
    x: Array, decay: Array, one_decay: float, use_one: bool, init: Array, y: Array
) -> bool:
    """y_t = x_t + decay_t * y_{t+1}, row by row; say whether a NaN was met."""
    saw_nan = False
    for row in range(x.shape[0]):
        total = init[row]
        if total != total:
            saw_nan = True
        for t in range(x.shape[1] - 1, -1, -1):
            d = one_decay if use_one else decay[row, t]
            total = x[row, t] + d * total if d != 0.0 else x[row, t]
            if total != total:
                saw_nan = True
            y[row, t] = total
    return saw_nan


@compiled
def gae_loop(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    mask: Array,
    gamma: float,
    gamma_lam: float,
    advantages: Array,
    returns: Array,
) -> bool:
    """Walk each row from its end to its start; say whether a NaN was met.

    `mask` may be empty: then every step is real.
    """
    saw_nan = False
    for row in range(rewards.shape[0]):
        later_value, later_sum, is_last = 0.0, 0.0, True  # of the next real step
        for t in range(rewards.shape[1] - 1, -1, -1):
            if mask.size > 0 and not mask[row, t]:
                advantages[row, t] = returns[row, t] = 0.0
                continue
            value = np.float64(values[row, t])
            cut = terminated[row, t] or truncated[row, t]
            total = rewards[row, t] - value
            if gamma != 0.0 and not terminated[row, t]:
                own = mask.size == 0 or is_last or cut
                total += gamma * (next_values[row, t] if own else later_value)
            if gamma_lam != 0.0 and not cut:
                total += gamma_lam * later_sum
            if total != total:
                saw_nan = True
            advantages[row, t] = total
            returns[row, t] = total + value
            later_value, later_sum, is_last = value, total, False
    return saw_nan


@numba.njit(inline="always")
def _errors_of_row(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    gamma_lam: float,
    row: int,
    start: int,
    errors: Array,
    decays: Array,
) -> None:
    for i in range(len(errors)):
        t = start + i
        bootstrap = 0.0 if terminated[row, t] else gamma * next_values[row, t]
        errors[i] = rewards[row, t] + bootstrap - values[row, t]
        cut = terminated[row, t] or truncated[row, t]
        decays[i] = 0.0 if cut else gamma_lam


@numba.njit(inline="always")
def _sum_four_rows(
    sums: Array, decays: Array, a: float, b: float, c: float, d: float
) -> tuple[float, float, float, float]:
    """Turn TD errors into advantages in place, from those of the next step on."""
    for t in range(sums.shape[1] - 1, -1, -1):
        a = sums[0, t] + decays[0, t] * a
        b = sums[1, t] + decays[1, t] * b
        c = sums[2, t] + decays[2, t] * c
        d = sums[3, t] + decays[3, t] * d
        sums[0, t], sums[1, t], sums[2, t], sums[3, t] = a, b, c, d
    return a, b, c, d


@numba.njit(inline="always")
def _results_of_row(
    sums: Array, values: Array, row: int, start: int, advantages: Array, returns: Array
) -> None:
    for i in range(len(sums)):
        t = start + i
        advantages[row, t] = sums[i]
        returns[row, t] = sums[i] + values[row, t]


@compiled
def gae_by_fours(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    gamma_lam: float,
    advantages: Array,
    returns: Array,
) -> bool:
    """GAE of rows without a mask; say whether anything was not finite.

    If so, the results are void. The last four rows may overlap the four before; where
    there are fewer, the chains left over add zeros while the others wait.
    """
    rows, steps = rewards.shape
    finite = True
    buffer = np.zeros((2, 4, min(_BLOCK, steps)))
    for group in range(0, rows, 4):
        first = max(min(group, rows - 4), 0)
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for end in range(steps, 0, -_BLOCK):
            start = max(end - _BLOCK, 0)
            sums, decays = buffer[0, :, : end - start], buffer[1, :, : end - start]
            for i in range(min(rows, 4)):
                _errors_of_row(
                    rewards, values, next_values, terminated, truncated, gamma,
                    gamma_lam, first + i, start, sums[i], decays[i],
                )  # fmt: skip
            a, b, c, d = _sum_four_rows(sums, decays, a, b, c, d)
            for i in range(min(rows, 4)):
                _results_of_row(sums[i], values, first + i, start, advantages, returns)
        finite = finite and np.isfinite(a + b + c + d)
    return not finite


def compile_loop(name: str, dtype: torch.dtype) -> Any:
    """Compile the named loop for tensors of one dtype and return it."""
    rows = f"float{64 if dtype == torch.float64 else 32}[:,::1]"
    flags, number = "boolean[:,::1]", "float64"
    arguments = {
        "scan_loop": [rows, rows, number, "boolean", "float64[::1]", rows],
        "gae_loop": [*[rows] * 3, *[flags] * 3, number, number, rows, rows],
        "gae_by_fours": [*[rows] * 3, *[flags] * 2, number, number, rows, rows],
    }[name]
    loop = globals()[name]
    loop.compile(f"boolean({', '.join(arguments)})")
    return loop
