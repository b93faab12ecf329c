"""Task: the return of each finished episode in one environment's stream of steps."""

from collections.abc import Sequence

import torch
from torch import Tensor

from course_lib.notebook.checks.task import Case, Task


def episode_returns(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    """Return [E]: for each episode that ended within the stream, its summed reward.

    Differences of one running sum, where the answers below add up step by step.
    """
    ended = terminated | truncated  # [T]
    paid_by_then = rewards.cumsum(0)[ended]  # [E]
    return paid_by_then.diff(prepend=paid_by_then.new_zeros(1))


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([1, 2], [0, 1], [0, 0]),
        _case([2, 4, 8], [0, 0, 0], [0, 1, 0]),  # CASES L13, and a tail
        _case([1, 2, 4, 8], [0, 1, 0, 0], [0, 0, 0, 1]),
        _case([1, 2, 4], [0, 0, 1], [0, 1, 0]),  # cut off, then an end
        _case([5, 3], [1, 0], [0, 1]),  # episodes of one step
        _case([1, 1, 1, 1, 1], [0, 1, 0, 0, 0], [0, 1, 0, 1, 0]),  # both flags at once
    ]
    for length in (7, 12):
        # Quarters are exact in float32, so every order of summing gives the same.
        rewards = torch.randint(-12, 13, (length,), generator=generator) / 4
        kind = torch.randint(0, 4, (length,), generator=generator)
        kind[2], kind[4], kind[-1] = 1, 2, 0
        cases.append(Case(_arguments(rewards, kind == 1, kind == 2)))
    return cases


def _case(rewards: list[int], terminated: list[int], truncated: list[int]) -> Case:
    flags = torch.tensor([terminated, truncated]).bool()
    return Case(_arguments(torch.tensor(rewards).float(), *flags))


def _arguments(
    rewards: Tensor, terminated: Tensor, truncated: Tensor
) -> dict[str, Tensor]:
    return {"rewards": rewards, "terminated": terminated, "truncated": truncated}


TASK = Task(
    "episode_returns",
    episode_returns,
    _cases,
    ("returns",),
    tolerance=1e-6,
    any_float=True,
)


@TASK.right
def running_total(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        total = total + rewards[t]
        if terminated[t] or truncated[t]:
            returns.append(total)
            total = torch.zeros(())
    return torch.stack(returns)


@TASK.right
def by_slices(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    start = 0
    for t in range(len(rewards)):
        if terminated[t] or truncated[t]:
            returns.append(rewards[start : t + 1].sum())
            start = t + 1
    return torch.stack(returns)


@TASK.wrong("termination-only", source="boyu-ai/Hands-on-RL #72, #128; CASES L13")
def termination_only(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = [rewards.new_zeros(0)]
    total = torch.zeros(1)
    for t in range(len(rewards)):
        total = total + rewards[t]
        if terminated[t]:
            returns.append(total)
            total = torch.zeros(1)
    return torch.cat(returns)


@TASK.right
def running_cat(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = [rewards.new_zeros(0)]
    total = torch.zeros(1)
    for t in range(len(rewards)):
        total = total + rewards[t]
        if terminated[t] or truncated[t]:
            returns.append(total)
            total = torch.zeros(1)
    return torch.cat(returns)


@TASK.wrong("truncation-only", source="the other flag of the two; CASES L13")
def truncation_only(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = [rewards.new_zeros(0)]
    total = torch.zeros(1)
    for t in range(len(rewards)):
        total = total + rewards[t]
        if truncated[t]:
            returns.append(total)
            total = torch.zeros(1)
    return torch.cat(returns)


@TASK.wrong("both-flags-needed", source="`and` where `or` is meant")
def both_flags(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = [rewards.new_zeros(0)]
    total = torch.zeros(1)
    for t in range(len(rewards)):
        total = total + rewards[t]
        if terminated[t] and truncated[t]:
            returns.append(total)
            total = torch.zeros(1)
    return torch.cat(returns)


@TASK.wrong("total-never-reset", source="the counter outlives the episode")
def never_reset(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        total = total + rewards[t]
        if terminated[t] or truncated[t]:
            returns.append(total)
    return torch.stack(returns)


@TASK.wrong("tail-counted", source="the unfinished episode appended after the loop")
def tail_counted(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        total = total + rewards[t]
        if terminated[t] or truncated[t]:
            returns.append(total)
            total = torch.zeros(())
    returns.append(total)
    return torch.stack(returns)


@TASK.wrong("lengths", source="CartPole pays 1 a step, so it hides there")
def lengths(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        total = total + 1
        if terminated[t] or truncated[t]:
            returns.append(total)
            total = torch.zeros(())
    return torch.stack(returns)


@TASK.wrong("last-reward-only", source="the sum overwritten, not added to")
def last_reward_only(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        total = rewards[t]
        if terminated[t] or truncated[t]:
            returns.append(total)
            total = torch.zeros(())
    return torch.stack(returns)


@TASK.wrong("last-reward-missed", source="a slice that stops before the end")
def last_reward_missed(
    rewards: Tensor, terminated: Tensor, truncated: Tensor
) -> Tensor:
    returns: list[Tensor] = []
    start = 0
    for t in range(len(rewards)):
        if terminated[t] or truncated[t]:
            returns.append(rewards[start:t].sum())
            start = t + 1
    return torch.stack(returns)


@TASK.wrong("last-reward-twice", source="the next episode starts one step early")
def last_reward_twice(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    start = 0
    for t in range(len(rewards)):
        if terminated[t] or truncated[t]:
            returns.append(rewards[start : t + 1].sum())
            start = t
    return torch.stack(returns)


@TASK.wrong("mean-reward", source="sum and mean confused; CASES misconception 7")
def mean_reward(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    start = 0
    for t in range(len(rewards)):
        if terminated[t] or truncated[t]:
            returns.append(rewards[start : t + 1].mean())
            start = t + 1
    return torch.stack(returns)


@TASK.wrong("one-number", source="the mean that is wanted later, taken already")
def one_number(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    start = 0
    for t in range(len(rewards)):
        if terminated[t] or truncated[t]:
            returns.append(rewards[start : t + 1].sum())
            start = t + 1
    return torch.stack(returns).mean()


@TASK.variant("tail-counted")
def nonempty_tail(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    after_ends = (terminated | truncated).nonzero().flatten() + 1
    pieces = rewards.tensor_split(after_ends.tolist())
    return torch.stack([piece.sum() for piece in pieces if len(piece)])


@TASK.wrong("ended-twice", source="two `if`s for one `or`")
def ended_twice(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        total = total + rewards[t]
        for ended in (terminated[t], truncated[t]):
            if ended:
                returns.append(total)
                total = torch.zeros(())
    return torch.stack(returns)


@TASK.wrong("first-episode-missed", source="differences of a sum, without the first 0")
def first_missed(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    return rewards.cumsum(0)[terminated | truncated].diff()


@TASK.wrong("end-opens-the-next", source="the flags asked before the reward is added")
def end_opens(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        if terminated[t] or truncated[t]:
            returns.append(total)
            total = torch.zeros(())
        total = total + rewards[t]
    return torch.stack(returns)


@TASK.wrong("carried-over-a-truncation", source="the sum reset on `terminated` only")
def carried(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        total = total + rewards[t]
        if terminated[t] or truncated[t]:
            returns.append(total)
        if terminated[t]:
            total = torch.zeros(())
    return torch.stack(returns)


@TASK.wrong("one-tensor-for-all", source="`total += r` changes what the list holds")
def one_tensor(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        total += rewards[t]
        if terminated[t] or truncated[t]:
            returns.append(total)
    return torch.stack(returns)


@TASK.variant("one-tensor-for-all")
def one_tensor_zeroed(rewards: Tensor, terminated: Tensor, truncated: Tensor) -> Tensor:
    returns: list[Tensor] = []
    total = torch.zeros(())
    for t in range(len(rewards)):
        total += rewards[t]
        if terminated[t] or truncated[t]:
            returns.append(total)
            total.zero_()
    return torch.stack(returns)
