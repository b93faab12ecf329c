"""GAE beside its peers: their own functions, called from the installed packages.

Every competitor gets its inputs ready-made in its own layout and dtype, and before
anything is timed its advantages are compared with ours. All of them are given what
all of them can do: episodes that terminate (p = .02), no truncation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.timing import OURS, Case, compare
from course_lib.kernels import gae, shift_values

GAMMA, LAM, ENDS = 0.99, 0.95, 0.02
SHAPES = (
    (1, 2048),
    (4, 128),
    (8, 2048),
    (256, 8),
    (64, 512),
    (256, 1024),
    (4096, 128),
    (1024, 4096),
)
BOUND, TORCH, PLAIN = "streaming bound", "ours, engine torch", "plain torch loop"
SB3, TIANSHOU = "stable-baselines3", "tianshou"
VECTORISED, LOOP = "torchrl vectorised", "torchrl loop"
PACKAGES = (
    "torch", "numpy", "numba", "stable-baselines3", "tianshou", "torchrl", "tensordict",
)  # fmt: skip


@dataclass(frozen=True)
class Rollout:
    """What GAE reads: every tensor [B, T], `last` [B]."""

    rewards: Tensor
    values: Tensor
    last: Tensor
    terminated: Tensor

    @property
    def next_values(self) -> Tensor:
        return shift_values(self.values, self.last)


def cases() -> list[Case]:
    """One case for each shape, with the peers that are installed."""
    return [
        Case("gae", shape, functools.partial(competitors, shape)) for shape in SHAPES
    ]


def competitors(shape: tuple[int, int]) -> dict[str, Callable[[], Tensor]]:
    """One call of each that is installed; all but the bound compute the same."""
    rollout = make_rollout(shape)
    makers = {
        OURS: _ours,
        TORCH: _ours_in_torch,
        BOUND: _streaming_bound,
        TIANSHOU: _tianshou,
        SB3: _stable_baselines3,
        PLAIN: _plain_loop,
        LOOP: _torchrl_loop,
        VECTORISED: _torchrl_vectorised,
    }
    runs = {}
    for name, maker in makers.items():
        try:
            runs[name] = maker(rollout)
        except ImportError:
            continue
    compare({name: run for name, run in runs.items() if name != BOUND})
    return runs


def make_rollout(shape: tuple[int, int], seed: int = 0) -> Rollout:
    """Random numbers, and episodes that end with probability `ENDS` at each step."""
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn((2, *shape), generator=generator)
    last = torch.randn(shape[0], generator=generator)
    return Rollout(rewards, values, last, torch.rand(shape, generator=generator) < ENDS)


def _ours(rollout: Rollout, engine: str = "auto") -> Callable[[], Tensor]:
    rewards, values, ended = rollout.rewards, rollout.values, rollout.terminated
    after = rollout.next_values
    return lambda: gae(
        rewards, values, after, terminated=ended, gamma=GAMMA, lam=LAM, engine=engine
    )[0]


def _ours_in_torch(rollout: Rollout) -> Callable[[], Tensor]:
    return _ours(rollout, "torch")


def _streaming_bound(rollout: Rollout) -> Callable[[], Tensor]:
    """Read once what GAE reads and write once what it writes, without its chain."""
    import numba

    @numba.njit
    def stream(rewards, values, after, ended, advantages, returns):
        for row in range(rewards.shape[0]):
            for t in range(rewards.shape[1]):
                error = rewards[row, t] + (0.0 if ended[row, t] else after[row, t])
                advantages[row, t] = error - values[row, t]
                returns[row, t] = error

    inputs = [
        x.numpy()
        for x in (
            rollout.rewards,
            rollout.values,
            rollout.next_values,
            rollout.terminated,
        )
    ]
    shape = rollout.rewards.shape

    def run() -> Tensor:
        advantages, returns = torch.empty(shape), torch.empty(shape)
        stream(*inputs, advantages.numpy(), returns.numpy())
        return advantages

    return run


def _tianshou(rollout: Rollout) -> Callable[[], Tensor]:
    from tianshou.algorithm.algorithm_base import _gae

    shape = rollout.rewards.shape
    ended = rollout.terminated.clone()
    after = rollout.next_values.masked_fill(ended, 0.0)  # as its caller does
    ended[:, -1] = True  # rows lie one behind the other
    flat = [
        x.numpy().reshape(-1) for x in (rollout.values, after, rollout.rewards, ended)
    ]
    return lambda: torch.from_numpy(_gae(*flat, GAMMA, LAM)).reshape(shape)


def _stable_baselines3(rollout: Rollout) -> Callable[[], Tensor]:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import RolloutBuffer

    rows, steps = rollout.rewards.shape
    buffer = RolloutBuffer(
        steps, Box(-1, 1, (1,)), Discrete(2), "cpu", LAM, GAMMA, n_envs=rows
    )
    ended = rollout.terminated.t().numpy()  # [T, B]
    buffer.rewards[:] = rollout.rewards.t().numpy()
    buffer.values[:] = rollout.values.t().numpy()
    buffer.episode_starts[1:] = ended[:-1]
    last, dones = rollout.last, ended[-1].copy()

    def run() -> Tensor:
        buffer.compute_returns_and_advantage(last, dones)
        return torch.from_numpy(buffer.advantages).t()

    return run


def _plain_loop(rollout: Rollout) -> Callable[[], Tensor]:
    given = rollout.rewards, rollout.values, rollout.last, rollout.terminated
    return lambda: plain_loop(*given)[0]


def plain_loop(
    rewards: Tensor, values: Tensor, last: Tensor, ended: Tensor
) -> tuple[Tensor, Tensor]:
    """The recursion of TRL, verl and OpenRLHF, [B] at a time, with ends added."""
    live = (~ended).to(values.dtype)
    later, after, columns = torch.zeros_like(last), last, []
    for t in range(rewards.shape[1] - 1, -1, -1):
        error = rewards[:, t] + GAMMA * after * live[:, t] - values[:, t]
        later = error + GAMMA * LAM * live[:, t] * later
        columns.append(later)
        after = values[:, t]
    advantages = torch.stack(columns[::-1], dim=1)
    return advantages, advantages + values


def _torchrl_loop(rollout: Rollout) -> Callable[[], Tensor]:
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    return _torchrl(rollout, generalized_advantage_estimate)


def _torchrl_vectorised(rollout: Rollout) -> Callable[[], Tensor]:
    from torchrl.objectives.value.functional import vec_generalized_advantage_estimate

    return _torchrl(rollout, vec_generalized_advantage_estimate)


def _torchrl(rollout: Rollout, function: Callable) -> Callable[[], Tensor]:
    ended = rollout.terminated.unsqueeze(-1)  # [B, T, 1], as it wants them
    values, after, rewards = (
        x.unsqueeze(-1) for x in (rollout.values, rollout.next_values, rollout.rewards)
    )
    return lambda: function(
        GAMMA, LAM, values, after, rewards, done=ended, terminated=ended
    )[0].squeeze(-1)
