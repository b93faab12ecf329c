"""Task: the discounted return of every step; a row may hold several episodes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from course_lib import kernels
from course_lib.notebook.checks.task import Case, Task


def discounted_returns(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    """Return [T]: the kernel's returns. A check must not wait for a compiler, so the
    engine is the one that starts at once."""
    return kernels.discounted_returns(
        rewards, gamma, terminated=terminated, engine="torch"
    )


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    integers = torch.tensor([1, 0, 2])  # CASES K13
    cases = [
        _case(torch.tensor([1.0, 2.0]), 0.5, [0, 0]),
        _case(torch.tensor([5.0]), 0.9, [0]),
        _case(torch.tensor([1.0, 2.0, 3.0]), 0.5, [0, 0, 0]),  # CASES L01, L03
        _case(torch.tensor([1.0, 1.0, 1.0, 1.0]), 0.9, [0, 1, 0, 0]),  # CASES K01
        Case(
            {"rewards": integers, "gamma": 0.5, "terminated": torch.zeros(3).bool()},
            "rewards = [1, 0, 2] (integers), gamma = 0.5, no step terminated",
            adversarial=True,  # an integer result is a matter of its own
        ),
        _case(torch.tensor([1.0, 2.0]), 0.0, [0, 0]),
        _case(torch.tensor([2.0, -1.0, 4.0]), 0.5, [1, 1, 1]),
    ]
    discount = 0.5 + 0.4 * float(torch.rand((), generator=generator))
    for gamma in (discount, 0.0, 1.0):
        rewards = torch.randn(6, generator=generator)
        cases.append(_case(rewards, gamma, [0, 0, 1, 0, 0, 0]))
    return cases


def _case(rewards: Tensor, gamma: float, terminated: list[int]) -> Case:
    flags = torch.tensor(terminated).bool()
    return Case({"rewards": rewards.float(), "gamma": gamma, "terminated": flags})


TASK = Task(
    "discounted_returns",
    discounted_returns,
    _cases,
    results=("returns",),
    tolerance=1e-5,  # float32, summed in another order
    any_float=True,
)


@TASK.right
def appended(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns: list[Tensor] = []
    for t in reversed(range(len(rewards))):
        running = 0.0 if terminated[t] else running
        running = rewards[t] + gamma * running
        returns.append(running)
    returns.reverse()
    return torch.stack(returns)


@TASK.right
def filled_in(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running * (not terminated[t])
        returns[t] = running
    return returns


@TASK.right
def by_sums(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in range(len(rewards)):
        for k in range(t, len(rewards)):
            returns[t] += gamma ** (k - t) * rewards[k]
            if terminated[k]:
                break
    return returns


@TASK.wrong("end-ignored", source="datawhalechina/easy-rl #114; CASES K01")
def end_ignored(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns: list[Tensor] = []
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running
        returns.append(running)
    returns.reverse()
    return torch.stack(returns)


@TASK.wrong("end-read-one-late", source="hill-a/stable-baselines #385; CASES K08")
def end_read_one_late(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns: list[Tensor] = []
    for t in reversed(range(len(rewards))):
        running = 0.0 if terminated[min(t + 1, len(rewards) - 1)] else running
        running = rewards[t] + gamma * running
        returns.append(running)
    returns.reverse()
    return torch.stack(returns)


@TASK.wrong("last-reward-cut", source="the bracket of (1 - done) opened too early")
def last_reward_cut(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in reversed(range(len(rewards))):
        running = (rewards[t] + gamma * running) * (not terminated[t])
        returns[t] = running
    return returns


@TASK.wrong(
    "return-from-the-start", source="udacity/deep-reinforcement-learning #42; CASES L01"
)
def from_the_start(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns: list[Tensor] = []
    for t in reversed(range(len(rewards))):
        running = 0.0 if terminated[t] else running
        running = rewards[t] + gamma * running
        returns.append(running)
    returns.reverse()
    return torch.stack(returns)[:1].expand(len(rewards))


@TASK.wrong("summed-forwards", source="Farama-Foundation/Gymnasium PR 1337; CASES L03")
def summed_forwards(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in range(len(rewards)):
        running = rewards[t] + gamma * running * (not terminated[t])
        returns[t] = running
    return returns


@TASK.variant("summed-forwards")
def forwards_through_ends(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running = torch.zeros(())
    returns: list[Tensor] = []
    for reward in rewards:
        running = reward + gamma * running
        returns.append(running)
    return torch.stack(returns)


@TASK.wrong("list-reversed", source="ericyangyu/PPO-for-Beginners PR 15; CASES L03")
def list_reversed(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns: list[Tensor] = []
    for t in reversed(range(len(rewards))):
        running = 0.0 if terminated[t] else running
        running = rewards[t] + gamma * running
        returns.append(running)
    return torch.stack(returns)


@TASK.wrong("discount-left-out", source="γ = 1 hides it, and many examples have it")
def discount_left_out(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns: list[Tensor] = []
    for t in reversed(range(len(rewards))):
        running = 0.0 if terminated[t] else running
        running = rewards[t] + running
        returns.append(running)
    returns.reverse()
    return torch.stack(returns)


@TASK.wrong("reward-discounted", source="γ outside the bracket")
def reward_discounted(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns: list[Tensor] = []
    for t in reversed(range(len(rewards))):
        running = 0.0 if terminated[t] else running
        running = gamma * (rewards[t] + running)
        returns.append(running)
    returns.reverse()
    return torch.stack(returns)


@TASK.wrong("reward-for-return", source="natolambert/rlhf-book PR 216; CASES L18")
def reward_for_return(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in reversed(range(len(rewards))):
        running = rewards[t]
        returns[t] = running
    return returns


@TASK.wrong("integer-returns", source="thu-ml/tianshou #85; CASES K13")
def integer_returns(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns = torch.zeros_like(rewards)
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running * (not terminated[t])
        returns[t] = running
    return returns


@TASK.wrong("own-reward-missed", source="openai/spinningup #50: one step late")
def own_reward_missed(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in range(len(rewards)):
        for k in range(t + 1, len(rewards)):
            returns[t] += gamma ** (k - t) * rewards[k]
            if terminated[k]:
                break
    return returns


@TASK.wrong("discounted-from-the-start", source="γ to the power k, not to k − t")
def discounted_from_start(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in range(len(rewards)):
        for k in range(t, len(rewards)):
            returns[t] += gamma**k * rewards[k]
            if terminated[k]:
                break
    return returns


@TASK.wrong("discounted-once", source="one γ before the sum of all later rewards")
def discounted_once(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in range(len(rewards)):
        for k in range(t, len(rewards)):
            returns[t] += gamma ** min(k - t, 1) * rewards[k]
            if terminated[k]:
                break
    return returns


@TASK.wrong("standardised", source="carried over from pytorch/examples reinforce.py")
def standardised(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running * (not terminated[t])
        returns[t] = running
    return (returns - returns.mean()) / (returns.std() + 1e-8)


@TASK.wrong("one-step-ahead", source="a TD target's reach, with a reward for the value")
def one_step_ahead(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in range(len(rewards)):
        for k in range(t, min(t + 2, len(rewards))):
            returns[t] += gamma ** (k - t) * rewards[k]
            if terminated[k]:
                break
    return returns


@TASK.wrong("first-episode-only", source="a loop that ends at the first terminated")
def first_episode_only(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running * (not terminated[t])
        returns[t] = running
    return returns * (terminated.cumsum(0) <= terminated.long())


@TASK.variant("own-reward-missed")
def next_return(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    returns = discounted_returns(rewards, gamma, terminated)
    following = torch.cat([returns[1:], returns.new_zeros(1)])
    return torch.where(terminated, 0.0, following)


@TASK.variant("own-reward-missed")
def next_return_discounted(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    return gamma * next_return(rewards, gamma, terminated)


@TASK.variant("summed-forwards")
def forwards_from_an_end(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = 0.0
    returns = torch.zeros(len(rewards), dtype=torch.result_type(rewards, gamma))
    for t in range(len(rewards)):
        running = rewards[t] + gamma * running
        returns[t] = running
        running = 0.0 if terminated[t] else running
    return returns


@TASK.wrong(
    "end-counted-twice", source="running = rewards[-1], and the loop begins there"
)
def last_twice(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    running: float | Tensor = rewards[-1]
    returns: list[Tensor] = []
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running * (not terminated[t])
        returns.append(running)
    return torch.stack(returns[::-1])


@TASK.wrong("powers-divided-out", source="cumsum of γ^t r_t, over γ^t: 0 / 0 at γ = 0")
def powers(rewards: Tensor, gamma: float, terminated: Tensor) -> Tensor:
    weights = gamma ** torch.arange(len(rewards), dtype=torch.float64)
    sums: list[Tensor] = []
    for t in range(len(rewards)):
        total = torch.zeros((), dtype=torch.float64)
        for k in range(t, len(rewards)):
            total = total + weights[k] * rewards[k]
            if terminated[k]:
                break
        sums.append(total / weights[t])
    return torch.stack(sums)
