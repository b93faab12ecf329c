"""Task: the TD(0) update of one value."""

from collections.abc import Sequence

import torch

from course_lib.algorithms import td_update
from course_lib.notebook.checks.task import Case, Task

_NAMES = ("value", "reward", "next_value", "gamma", "step_size")


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    numbers = [
        (0.5, 0.0, 0.0, 1.0, 0.1),  # the walk's first step into its left end
        (0.5, 1.0, 0.0, 1.0, 0.1),  # … and into its right end
        (4.0, 0.0, 2.0, 0.5, 1.0),  # the five-step episode's first step
    ]
    for _ in range(4):
        value, reward, next_value = torch.randn(3, generator=generator).tolist()
        gamma, step_size = torch.rand(2, generator=generator).tolist()
        numbers.append((value, reward, next_value, gamma, step_size))
    return [Case(dict(zip(_NAMES, row, strict=True))) for row in numbers]


TASK = Task("td_update", td_update, _cases, results=("new value",))


@TASK.right
def as_a_mean(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return (1 - alpha) * v + alpha * (r + gamma * ahead)


@TASK.right
def by_error(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    td_error = r + gamma * ahead - v
    v += alpha * td_error
    return v


@TASK.wrong("away-from-the-target", source="a sign: V minus the step")
def away(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v - alpha * (r + gamma * ahead - v)


@TASK.wrong("step-size-left-out", source="α = 1 hides it")
def all_the_way(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + (r + gamma * ahead - v)


@TASK.wrong("discount-left-out", source="γ = 1 hides it, and the walk's is 1")
def undiscounted(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + alpha * (r + ahead - v)


@TASK.wrong("reward-discounted", source="γ outside the bracket")
def discounted(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + alpha * (gamma * (r + ahead) - v)


@TASK.wrong("old-value-kept", source="keras-style update: the − V forgotten")
def added(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + alpha * (r + gamma * ahead)


@TASK.wrong("weights-swapped", source="an exponential mean written the wrong way round")
def swapped(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return alpha * v + (1 - alpha) * (r + gamma * ahead)


@TASK.wrong("only-the-error", source="the assignment's left side forgotten")
def error_only(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return alpha * (r + gamma * ahead - v)


@TASK.wrong("reward-left-out", source="bootstrapping without what was paid")
def unpaid(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + alpha * (gamma * ahead - v)


@TASK.wrong("value-discounted-twice", source="γ put before both values")
def both(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + alpha * (r + gamma * (ahead - v))


@TASK.wrong(
    "error-undamped", source="α before the target only, the bracket closed early"
)
def early(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + alpha * (r + gamma * ahead) - v


@TASK.variant("only-the-error")
def whole_error(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return r + gamma * ahead - v


@TASK.variant("error-undamped")
def reward_damped(
    v: float, r: float, ahead: float, gamma: float, alpha: float
) -> float:
    return v + alpha * r + gamma * ahead - v


@TASK.variant("error-undamped")
def target_undamped(
    v: float, r: float, ahead: float, gamma: float, alpha: float
) -> float:
    return (1 - alpha) * v + r + gamma * ahead


@TASK.wrong("error-discounted", source="γ before the bracket of the error")
def whole(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + alpha * gamma * (r + ahead - v)


@TASK.wrong("values-exchanged", source="V(s) and V(s') exchanged in the error")
def exchanged(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + alpha * (r + gamma * v - ahead)


@TASK.wrong("rates-exchanged", source="γ and α exchanged")
def rates(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + gamma * (r + alpha * ahead - v)


@TASK.variant("error-undamped")
def reward_whole(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return (1 - alpha) * v + r + alpha * gamma * ahead


@TASK.wrong("other-value-discounted", source="γ on V(s), none on V(s')")
def other(v: float, r: float, ahead: float, gamma: float, alpha: float) -> float:
    return v + alpha * (r + ahead - gamma * v)
