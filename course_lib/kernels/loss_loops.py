"""The passes of `compiled_losses`, for numba; this module is loaded at first use.

Sums are float64. A ratio is rounded to the dtype before it is compared with the edges
of the band, as operations do it.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from course_lib.kernels.numba_loops import compiled

Array = NDArray[Any]


@numba.njit(inline="always")
def _growth(log_ratio: float) -> float:
    """rho - 1, to full precision near 0."""
    near = abs(log_ratio) < 0.5
    return math.expm1(log_ratio) if near else math.exp(log_ratio) - 1.0


@numba.njit(inline="always")
def _clipped(
    ratio: float, gain: float, low: float, high: float
) -> tuple[float, float, bool]:
    """The surrogate of a step, its slope to log pi, whether the clip made that 0."""
    if gain > 0.0 and ratio > high:
        return high * gain, 0.0, True
    if gain < 0.0 and ratio < low:
        return low * gain, 0.0, True
    return ratio * gain, ratio * gain, False


@compiled
def clipped_policy_pass(
    log_probs: Array,
    old_log_probs: Array,
    advantages: Array,
    mask: Array,
    clip_eps: float,
    slope: Array,
    seen: Array,
) -> bool:
    """Loss, k3, shares outside and flat, largest ratio; say whether all are finite.

    `mask` may be empty: then every step is real.
    """
    number = slope.dtype.type
    low, high = number(1 - clip_eps), number(1 + clip_eps)
    total, k3, largest = 0.0, 0.0, 0.0
    real, outside, silent = 0, 0, 0
    for row in range(log_probs.shape[0]):
        for t in range(log_probs.shape[1]):
            slope[row, t] = 0.0
            if mask.size > 0 and not mask[row, t]:
                continue
            moved = number(log_probs[row, t] - old_log_probs[row, t])
            growth = _growth(moved)
            ratio, gain = number(1.0 + growth), np.float64(advantages[row, t])
            surrogate, pull, flat = _clipped(ratio, gain, low, high)
            total -= surrogate
            slope[row, t] = -pull
            k3 += growth - moved
            real += 1
            outside += ratio > high or ratio < low
            silent += flat
            largest = max(largest, ratio)
    count = max(real, 1)
    slope /= count
    sums = (total, k3, float(outside), float(silent))
    for place in range(4):
        seen[place] = sums[place] / count
    seen[4] = largest
    return bool(np.isfinite(total + k3))


@compiled
def value_pass(
    values: Array,
    returns: Array,
    mask: Array,
    slope: Array,
    seen: Array,
) -> bool:
    """Half the squared error and the explained variance; say whether all are finite.

    `mask` may be empty: then every step is real.
    """
    total, error_sum, return_sum, real = 0.0, 0.0, 0.0, 0
    for row in range(values.shape[0]):
        for t in range(values.shape[1]):
            slope[row, t] = 0.0
            if mask.size > 0 and not mask[row, t]:
                continue
            error = np.float64(values[row, t]) - returns[row, t]
            slope[row, t] = error
            real += 1
            total += 0.5 * error * error
            error_sum += error
            return_sum += returns[row, t]
    count = max(real, 1)
    left, spread = 0.0, 0.0
    for row in range(values.shape[0]):
        for t in range(values.shape[1]):
            if mask.size > 0 and not mask[row, t]:
                continue
            left += (slope[row, t] - error_sum / count) ** 2
            spread += (returns[row, t] - return_sum / count) ** 2
            slope[row, t] /= count
    seen[0] = total / count
    seen[1] = 1.0 - left / spread if spread > 0.0 else np.nan
    return bool(np.isfinite(total))


@compiled
def ppo_pass(
    logits: Array,
    values: Array,
    actions: Array,
    old_log_probs: Array,
    advantages: Array,
    returns: Array,
    clip_eps: float,
    vf_coef: float,
    ent_coef: float,
    logit_slopes: Array,
    value_slopes: Array,
    seen: Array,
) -> bool:
    """PPO's loss of a softmax policy, and its slopes; say whether they can be used.

    They cannot where something is not finite, or where an action is none.

    Logits are [S, M, A], everything else [S, M]; the loss is summed over S and averaged
    over M, what else is `seen` averaged over both.
    """
    number = seen.dtype.type
    low, high = number(1 - clip_eps), number(1 + clip_eps)
    policy = critic = bonus = k3 = largest = 0.0
    outside, silent, (seeds, steps, num_actions) = 0, 0, logits.shape
    log_p = np.empty(num_actions)
    for s in range(seeds):
        for m in range(steps):
            entropy = _log_softmax(logits[s, m], log_p)
            chosen, gain = actions[s, m], np.float64(advantages[s, m])
            if not 0 <= chosen < num_actions:
                return False
            moved = number(number(log_p[chosen]) - old_log_probs[s, m])
            growth, error = _growth(moved), np.float64(values[s, m]) - returns[s, m]
            ratio = number(1.0 + growth)
            surrogate, pull, flat = _clipped(ratio, gain, low, high)
            for a in range(num_actions):
                slope = pull + ent_coef * (log_p[a] + entropy)
                logit_slopes[s, m, a] = math.exp(log_p[a]) * slope / steps
            logit_slopes[s, m, chosen] -= pull / steps
            value_slopes[s, m] = vf_coef * error / steps
            policy, critic = policy - surrogate, critic + 0.5 * error * error
            bonus, k3 = bonus + entropy, k3 + growth - moved
            outside, silent = outside + (ratio > high or ratio < low), silent + flat
            largest = max(largest, ratio)
    sums = (policy, critic, bonus, k3, float(outside), float(silent))
    for place in range(6):
        seen[1 + place] = sums[place] / (seeds * steps)
    loss = policy + vf_coef * critic - ent_coef * bonus
    seen[0], seen[7] = loss / steps, largest
    return bool(np.isfinite(seen[0] + k3))


@numba.njit(inline="always")
def _log_softmax(logits: Array, log_p: Array) -> float:
    """Fill `log_p` and return the entropy."""
    top, total, entropy = np.float64(logits.max()), 0.0, 0.0
    for a in range(len(log_p)):
        log_p[a] = logits[a] - top
        total += math.exp(log_p[a])
    shift = math.log(total)
    for a in range(len(log_p)):
        log_p[a] -= shift
        entropy -= math.exp(log_p[a]) * log_p[a]
    return entropy


def compile_loop(name: str, dtype: torch.dtype) -> Any:
    """Compile the named pass for tensors of one dtype and return it."""
    width = 64 if dtype == torch.float64 else 32
    rows, flags, number = f"float{width}[:,:]", "boolean[:,:]", "float64"
    results = [f"float{width}[:,::1]", f"float{width}[::1]"]
    arguments = {
        "clipped_policy_pass": [*[rows] * 3, flags, number, *results],
        "value_pass": [*[rows] * 2, flags, *results],
        "ppo_pass": [
            *[f"float{width}[:,:,:]", rows, "int64[:,:]", *[rows] * 3],
            *[*[number] * 3, f"float{width}[:,:,::1]", *results],
        ],
    }[name]
    loop = globals()[name]
    loop.compile(f"boolean({', '.join(arguments)})")
    return loop
