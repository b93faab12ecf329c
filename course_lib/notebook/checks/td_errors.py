"""Task: the TD error of every step."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.kernels import discounted_returns
from course_lib.notebook.checks.task import Case, Task


def td_errors(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    gamma: float,
) -> Tensor:
    """Return [T]: delta_t = r_t + gamma * V(s_{t+1}) - V(s_t), with 0 for the value
    after a terminated step, whatever `next_values` holds there."""
    return rewards + gamma * next_values.masked_fill(terminated, 0.0) - values


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    broken = [3.0, torch.nan, -1.0, torch.inf]
    cases = [
        _case([1], [5], [6], [0], 0.9),  # CASES K07
        _case([1], [5], [6], [1], 0.9),
        _case([0, 0, 1], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [0, 0, 1], 1.0),  # L18
        _case([1, 1, 1], [1, 2, 3], [2, 3, 4], [0, 1, 0], 0.9),  # CASES K08
        # A row cut off after its second step: what it reached is not what follows.
        _case([1, 1, 1], [2, 4, 8], [4, 6, 16], [0, 0, 0], 0.5),
    ]
    discount = 0.5 + 0.4 * float(torch.rand((), generator=generator))
    for gamma in (discount, 0.0, 1.0):
        numbers = torch.randn(3, 6, generator=generator).tolist()
        rewards, values, next_values = numbers
        cases.append(_case(rewards, values, next_values, [0, 0, 1, 0, 0, 1], gamma))
    # A trap: it spoils the numbers of many a mistake that is not about it.
    trap = _case([1, 2, 3, 4], [5, 6, 7, 8], broken, [0, 1, 0, 1], 0.5)
    return [*cases, replace(trap, adversarial=True)]


def _case(
    rewards: list[float],
    values: list[float],
    next_values: list[float],
    terminated: list[int],
    gamma: float,
) -> Case:
    return Case(
        {
            "rewards": torch.tensor(rewards, dtype=torch.float64),
            "values": torch.tensor(values, dtype=torch.float64),
            "next_values": torch.tensor(next_values, dtype=torch.float64),
            "terminated": torch.tensor(terminated).bool(),
            "gamma": gamma,
        }
    )


TASK = Task("td_errors", td_errors, _cases, results=("TD errors",))


@TASK.right
def selected(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = r + gamma * ahead
    return target - v


@TASK.right
def filled(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = after.clone()
    ahead[end] = 0.0
    return r + gamma * ahead - v


@TASK.right
def one_by_one(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    errors = torch.empty_like(v)
    for t in range(len(r)):
        errors[t] = r[t] - v[t]
        if not end[t]:
            errors[t] += gamma * after[t]
    return errors


@TASK.wrong("end-ignored", source="datawhalechina/easy-rl #114; CASES K01")
def no_end(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = after.clone()
    return r + gamma * ahead - v


@TASK.wrong("end-turned-round", source="done and 1 - done exchanged")
def turned(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end, after, 0.0)
    target = r + gamma * ahead
    return target - v


@TASK.wrong(
    "end-multiplied",
    source="(1 - done) * V: 0 times NaN is NaN; radixark/miles PR 1363",
)
def product(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = ~end * after
    target = r + gamma * ahead
    return target - v


@TASK.wrong("end-read-one-late", source="hill-a/stable-baselines #385; CASES K08")
def late(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end.roll(-1), 0.0, after)
    target = r + gamma * ahead
    return target - v


@TASK.wrong("end-read-one-early", source="AechPro/rlgym-ppo PR 23; CASES K08")
def early(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end.roll(1), 0.0, after)
    target = r + gamma * ahead
    return target - v


@TASK.wrong("last-reward-cut", source="the bracket of (1 - done) opened too early")
def unpaid_end(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = torch.where(end, 0.0, r + gamma * ahead)
    return target - v


@TASK.wrong("last-error-cut", source="alessiodm/drl-zh #13: a mask too many; K10")
def no_last_error(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = r + gamma * ahead
    return torch.where(end, 0.0, target - v)


@TASK.wrong("own-value-ahead", source="leggedrobotics/rsl_rl #151; CASES K07")
def own_value(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end, 0.0, v)
    target = r + gamma * ahead
    return target - v


@TASK.wrong(
    "values-shifted", source="DLR-RM/stable-baselines3 issue 183; CASES K07, K09"
)
def shifted(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end, 0.0, torch.cat([v[1:], after[-1:]]))
    target = r + gamma * ahead
    return target - v


@TASK.wrong("discount-left-out", source="γ = 1 hides it, as in CASES L18")
def undiscounted(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = r + ahead
    return target - v


@TASK.wrong("reward-discounted", source="γ outside the bracket")
def discounted(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = gamma * (r + ahead)
    return target - v


@TASK.wrong("value-discounted-twice", source="γ put before both values")
def both(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = after.clone()
    ahead[end] = 0.0
    return r + gamma * (ahead - v)


@TASK.wrong("sign-turned", source="value minus target, as in a loss")
def negated(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = r + gamma * ahead
    return v - target


@TASK.wrong("only-the-target", source="the critic's target taken for the error")
def target_only(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    ahead = after.clone()
    ahead[end] = 0.0
    return r + gamma * ahead


@TASK.wrong("reward-minus-value", source="natolambert/rlhf-book PR 216; CASES L18")
def nothing_ahead(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    errors = torch.empty_like(v)
    for t in range(len(r)):
        errors[t] = r[t] - v[t]
    return errors


@TASK.wrong("reward-left-out", source="bootstrapping without what was paid")
def unpaid(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = gamma * ahead
    return target - v


@TASK.wrong("end-without-value", source="if done: delta = r, without the state's value")
def end_alone(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = r + gamma * ahead
    return torch.where(end, target, target - v)


@TASK.wrong("squared", source="the critic's loss taken for the error")
def squared(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = r + gamma * ahead
    return (target - v) ** 2


@TASK.variant("values-shifted")
def shifted_to_zero(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    ahead = torch.where(end, 0.0, torch.cat([v[1:], v.new_zeros(1)]))
    return r + gamma * ahead - v


@TASK.variant("end-read-one-early")
def early_but_first(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    ahead = torch.where(torch.cat([end.new_zeros(1), end[:-1]]), 0.0, after)
    return r + gamma * ahead - v


@TASK.variant("end-read-one-late")
def late_but_last(
    r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float
) -> Tensor:
    ahead = torch.where(torch.cat([end[1:], end.new_zeros(1)]), 0.0, after)
    return r + gamma * ahead - v


@TASK.wrong("errors-summed", source="GAE with λ = 1 for the error of one step")
def summed(r: Tensor, v: Tensor, after: Tensor, end: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(end, 0.0, after)
    target = r + gamma * ahead
    return discounted_returns(target - v, gamma, terminated=end, engine="torch")
