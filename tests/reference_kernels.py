"""What the estimators mean, written from their definitions as loops over one row.

Everything is a plain Python float, which is a float64. The sums run forwards from t,
as the definitions do; nothing here knows the recursions that the kernels use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Row = Sequence[float]
Flags = Sequence[bool]


def successors(mask: Flags) -> list[int | None]:
    """For each step the place of the row's next real step, None after the last."""
    real = [t for t, is_real in enumerate(mask) if is_real]
    return [next((u for u in real if u > t), None) for t in range(len(mask))]


def value_after(
    t: int, values: Row, next_values: Row, terminated: Flags, truncated: Flags,
    mask: Flags | None,
) -> float:  # fmt: skip
    """V(s_{t+1}) as step t sees it."""
    if terminated[t]:
        return 0.0
    following = None if mask is None else successors(mask)[t]
    if following is None or truncated[t]:
        return next_values[t]
    return values[following]


def path_from(
    t: int, terminated: Flags, truncated: Flags, mask: Flags | None
) -> list[int]:
    """The real steps from t on, to the end of the episode or of the row."""
    path = []
    for u in range(t, len(terminated)):
        if mask is None or mask[u]:
            path.append(u)
            if terminated[u] or truncated[u]:
                break
    return path


def td_error(
    t: int, rewards: Row, values: Row, next_values: Row, terminated: Flags,
    truncated: Flags, mask: Flags | None, gamma: float,
) -> float:  # fmt: skip
    after = 0.0
    if gamma > 0:
        after = value_after(t, values, next_values, terminated, truncated, mask)
    return rewards[t] + gamma * after - values[t]


def advantage(
    t: int, rewards: Row, values: Row, next_values: Row, terminated: Flags,
    truncated: Flags, mask: Flags | None, gamma: float, lam: float,
) -> float:  # fmt: skip
    """Sum over l of (gamma lam)^l delta_{t+l}; 0 at a step that is not real."""
    if mask is not None and not mask[t]:
        return 0.0
    path = path_from(t, terminated, truncated, mask)
    terms = []
    for position, u in enumerate(path):
        weight = (gamma * lam) ** position
        if weight > 0:
            error = td_error(
                u, rewards, values, next_values, terminated, truncated, mask, gamma
            )
            terms.append(weight * error)
    return math.fsum(terms)


def n_step_advantage(
    t: int, rewards: Row, values: Row, next_values: Row, terminated: Flags,
    truncated: Flags, gamma: float, n: int,
) -> float:  # fmt: skip
    path = path_from(t, terminated, truncated, None)[:n]
    terms = [gamma**position * rewards[u] for position, u in enumerate(path)]
    if gamma > 0 and not terminated[path[-1]]:
        terms.append(gamma ** len(path) * next_values[path[-1]])
    return math.fsum(terms) - values[t]


def vtrace_pair(
    t: int, rewards: Row, values: Row, next_values: Row, log_probs: Row,
    behaviour_log_probs: Row, terminated: Flags, truncated: Flags, gamma: float,
    lam: float, rho_max: float, c_max: float,
) -> tuple[float, float]:  # fmt: skip
    """Advantage and target of step t, by the paper's equation 1."""

    def ratio(u: int) -> float:
        return math.exp(log_probs[u] - behaviour_log_probs[u])

    def correction(t: int) -> float:
        terms, product = [], 1.0
        for position, u in enumerate(path_from(t, terminated, truncated, None)):
            error = td_error(
                u, rewards, values, next_values, terminated, truncated, None, gamma
            )
            terms.append(gamma**position * product * min(rho_max, ratio(u)) * error)
            product *= lam * min(c_max, ratio(u))
        return math.fsum(terms)

    after = 0.0
    if not terminated[t]:
        after = next_values[t]
        if not truncated[t] and t + 1 < len(rewards):
            after += correction(t + 1)
    gained = rewards[t] + gamma * after - values[t]
    return min(rho_max, ratio(t)) * gained, values[t] + correction(t)


def advantages_backwards(
    rewards: Row, values: Row, next_values: Row, terminated: Flags, truncated: Flags,
    gamma: float, lam: float,
) -> list[float]:  # fmt: skip
    """GAE of a long row in one pass; a test compares it with `advantage`."""
    result = [0.0] * len(rewards)
    later = 0.0
    for t in reversed(range(len(rewards))):
        error = td_error(
            t, rewards, values, next_values, terminated, truncated, None, gamma
        )
        later = error if terminated[t] or truncated[t] else error + gamma * lam * later
        result[t] = later
    return result


def for_each_step(
    function: Callable[..., float], shape: torch.Size, *tensors: Tensor | None,
    **others: object,
) -> Tensor:  # fmt: skip
    """Apply a function of (t, *rows) to every step of every row, in float64."""
    length = shape[-1]
    rows = [x if x is None else x.reshape(-1, length).tolist() for x in tensors]
    number = shape[:-1].numel()
    result = [
        [
            function(t, *(x if x is None else x[row] for x in rows), **others)
            for t in range(length)
        ]
        for row in range(number)
    ]
    return torch.tensor(result, dtype=torch.float64).reshape(shape)
