"""Task: for each state, the return that followed its first visit in one episode."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.kernels import discounted_returns
from course_lib.notebook.checks.task import Case, Task


def first_visit_returns(
    states: Tensor, rewards: Tensor, gamma: float, num_states: int
) -> Tensor:
    """Return [S]: the return from each state's first visit on, NaN if never visited."""
    found = torch.full((num_states,), torch.nan, dtype=rewards.dtype)
    for state in range(num_states):
        steps = [t for t in range(len(states)) if int(states[t]) == state]
        if steps:
            later = range(steps[0], len(states))
            found[state] = sum(
                gamma ** (t - steps[0]) * float(rewards[t]) for t in later
            )
    return found


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([0, 0, 1], [1, 2, 3], 1.0, 2),  # CASES L21
        _case([0, 1, 2], [1, 2, 3], 0.5, 3),  # CASES L01, L03
        _case([0, 0, 1, 0], [0, 4, 6, -8], 0.5, 2),
        _case([0, 1, 0], [1, 0, -1], 1.0, 2),  # a first return of 0 is a return
    ]
    # Traps: what stands for a state that was never visited is a matter of its own.
    unseen = [
        _case([0, 0, 1, 0], [0, 4, 6, -8], 0.5, 3),
        _case([1], [5], 0.9, 2),
    ]
    cases += [replace(case, adversarial=True) for case in unseen]
    for gamma in (0.9, 0.0, 1.0):
        later = torch.randint(0, 4, (8,), generator=generator).tolist()
        rewards = torch.randn(12, generator=generator).tolist()
        cases.append(_case([2, 0, 3, 1, *later], rewards, gamma, 4))
    return cases


def _case(
    states: list[int], rewards: list[float], gamma: float, num_states: int
) -> Case:
    return Case(
        {
            "states": torch.tensor(states),
            "rewards": torch.tensor(rewards, dtype=torch.float32),
            "gamma": gamma,
            "num_states": num_states,
        }
    )


TASK = Task(
    "first_visit_returns",
    first_visit_returns,
    _cases,
    results=("first returns",),
    tolerance=1e-5,  # float32, summed in another order
    any_float=True,
)


def _filled(
    states: Tensor, numbers: Tensor, num_states: int, last: bool = False
) -> Tensor:
    """Put a number per step at the state of that step, at its first or last visit."""
    found = torch.full((num_states,), torch.nan)
    order = range(len(states)) if last else reversed(range(len(states)))
    for t in order:
        found[states[t]] = numbers[t]
    return found


@TASK.right
def from_the_back(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    found = torch.full((n,), torch.nan, dtype=r.dtype)
    total = 0.0
    for t in reversed(range(len(r))):
        total = float(r[t]) + gamma * total
        found[s[t]] = total  # an earlier visit overwrites a later one
    return found


@TASK.right
def from_the_front(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    returns = discounted_returns(r, gamma)
    found = torch.full((n,), torch.nan, dtype=r.dtype)
    seen = set()
    for state, after in zip(s.tolist(), returns, strict=True):
        if state not in seen:
            found[state] = after
            seen.add(state)
    return found


def _but_the_last(r: Tensor) -> Tensor:
    return (torch.arange(len(r)) < len(r) - 1).float()


@TASK.right
def filled(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, discounted_returns(r, gamma), n)


@TASK.wrong("zero-taken-for-unseen", source="0 as sentinel: lost walks look unseen")
def zero_taken_for_unseen(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    found = torch.zeros(n)
    for state, after in zip(s, discounted_returns(r, gamma), strict=True):
        if found[state] == 0:
            found[state] = after
    return torch.where(found == 0, torch.nan, found)


@TASK.wrong(
    "every-visit", source="ShangtongZhang/reinforcement-learning-an-introduction #122"
)
def every_visit(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    returns = discounted_returns(r, gamma)
    means = [returns[s == state].mean() for state in range(n)]
    return torch.stack(means)


@TASK.wrong("last-visit", source="walking forwards and overwriting")
def last_visit(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, discounted_returns(r, gamma), n, last=True)


@TASK.wrong("reward-for-return", source="natolambert/rlhf-book PR 216; CASES L18")
def reward_for_return(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, r, n)


@TASK.wrong(
    "return-from-the-start", source="udacity/deep-reinforcement-learning #42; CASES L01"
)
def return_from_the_start(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, discounted_returns(r, gamma)[:1].expand(len(r)), n)


@TASK.wrong("summed-forwards", source="Farama-Foundation/Gymnasium PR 1337; CASES L03")
def summed_forwards(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, discounted_returns(r.flip(0), gamma).flip(0), n)


@TASK.wrong("list-reversed", source="ericyangyu/PPO-for-Beginners PR 15; CASES L03")
def list_reversed(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, discounted_returns(r, gamma).flip(0), n)


@TASK.wrong("discount-left-out", source="γ = 1 hides it, and the walk's is 1")
def discount_left_out(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, discounted_returns(r, 1.0), n)


@TASK.wrong("discounted-from-the-start", source="γ to the power t, not to t − first")
def discounted_from_the_start(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, gamma ** torch.arange(len(r)) * discounted_returns(r, gamma), n)


@TASK.wrong("own-reward-missed", source="openai/spinningup #50: one step late")
def own_reward_missed(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, discounted_returns(r, gamma).roll(-1) * _but_the_last(r), n)


@TASK.wrong("zero-when-never-visited", source="torch.zeros in place of NaN")
def zero_when_never_visited(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return first_visit_returns(s, r, gamma, n).nan_to_num(0.0)


@TASK.wrong("every-arrival", source="a state compared with the one before it only")
def every_arrival(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    returns = discounted_returns(r, gamma)
    found = torch.full((n,), torch.nan, dtype=r.dtype)
    seen = set()
    for state, after in zip(s.tolist(), returns, strict=True):
        if state not in seen:
            found[state] = after
            seen = {state}
    return found


@TASK.wrong("stopped-at-a-repeat", source="break for continue")
def stopped_at_a_repeat(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    returns = discounted_returns(r, gamma)
    found = torch.full((n,), torch.nan, dtype=r.dtype)
    seen = set()
    for state, after in zip(s.tolist(), returns, strict=True):
        if state in seen:
            break
        found[state] = after
        seen.add(state)
    return found


@TASK.wrong("never-written", source="found[s] == nan, which is never true")
def never_written(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    returns = discounted_returns(r, gamma)
    found = torch.full((n,), torch.nan, dtype=r.dtype)
    seen = set()
    for state, after in zip(s.tolist(), returns, strict=True):
        if found[state] == torch.nan:
            found[state] = after
            seen.add(state)
    return found


@TASK.wrong("best-visit", source="the largest return of a state's visits")
def best_visit(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    found = torch.full((n,), torch.nan, dtype=r.dtype)
    total = 0.0
    for t in reversed(range(len(r))):
        total = float(r[t]) + gamma * total
        found[s[t]] = max(total, float(found[s[t]]))  # NaN is never larger
    return found


@TASK.wrong("reward-of-arrival", source="the reward paid on reaching a state")
def reward_of_arrival(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s, discounted_returns(_one_later(r), gamma), n)


def _one_later(r: Tensor) -> Tensor:
    return torch.cat([r.new_zeros(1), r[:-1]])


@TASK.wrong("last-step-missed", source="range(len(states) - 1)")
def last_step_missed(s: Tensor, r: Tensor, gamma: float, n: int) -> Tensor:
    return _filled(s[:-1], discounted_returns(r, gamma)[:-1], n)


@TASK.wrong("stopped-at-the-next-visit", source="the return of the loop, not the rest")
def until_again(
    states: Tensor, rewards: Tensor, gamma: float, num_states: int
) -> Tensor:
    found = torch.full((num_states,), torch.nan)
    for t in reversed(range(len(states))):
        total, k = 1.0 * rewards[t], t + 1
        while k < len(states) and states[k] != states[t]:
            total = total + gamma ** (k - t) * rewards[k]
            k += 1
        found[states[t]] = total
    return found


@TASK.right
def summed_to_the_end(
    states: Tensor, rewards: Tensor, gamma: float, num_states: int
) -> Tensor:
    found = torch.full((num_states,), torch.nan)
    for t in reversed(range(len(states))):
        total, k = 1.0 * rewards[t], t + 1
        while k < len(states):
            total = total + gamma ** (k - t) * rewards[k]
            k += 1
        found[states[t]] = total
    return found
