"""What a run leaves behind: a record for each update, and every finished episode."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import torch
from torch import Tensor

from course_lib.algorithms.rollout import Rollout
from course_lib.kernels import masked_var
from course_lib.models import ActorCritic

Record = dict[str, float]
Callback = Callable[[int, Record], None]
"""Called after each update with its number, from 0, and its record."""


@dataclass(frozen=True)
class Episode:
    """One finished episode."""

    seed: int
    """Which agent played it, as an index into the run's seeds."""
    env_steps: int
    """Environment steps of that agent when the episode was over."""
    episode_return: float
    """Its rewards, summed without a discount."""
    length: int
    """Its steps."""


@dataclass
class History:
    """The records and episodes of a run; `env_steps` counts for each agent alone."""

    seeds: tuple[int, ...]
    records: list[Record] = field(default_factory=list)
    """One for each update, means over the agents."""
    episodes: list[Episode] = field(default_factory=list)
    """Every finished episode, in the order in which they ended."""
    env_steps: list[int] = field(default_factory=list)
    """Environment steps so far, of each agent."""
    agent: ActorCritic | None = field(default=None, repr=False)
    """The trained agents, when the run is over."""
    _started: float = field(default_factory=time.process_time, repr=False)
    _running: Tensor | None = field(default=None, repr=False)  # [2, S, B]

    def add(self, rollout: Rollout, **numbers: Tensor | float) -> Record:
        """Log an update: the episodes that ended in its rollout, and its numbers."""
        ended = self._count_episodes(rollout)
        lengths = [float(one.length) for one in ended]
        record = {
            "update": float(len(self.records)),
            "env_steps": _mean([float(steps) for steps in self.env_steps]),
            "episode_return": _mean([one.episode_return for one in ended]),
            "episode_length": _mean(lengths),
            **{name: float(value) for name, value in numbers.items()},
            "cpu_seconds": time.process_time() - self._started,
        }
        self.records.append(record)
        return record

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers only, to be written to a file; without the agents."""
        return {
            "records": self.records,
            "episodes": [astuple(one) for one in self.episodes],
            "env_steps": self.env_steps,
            "running": self._running,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on behind what `state_dict` said, on the clock too."""
        self.records = [dict(one) for one in state["records"]]
        self.episodes = [Episode(*one) for one in state["episodes"]]
        self.env_steps = list(state["env_steps"])
        running = state["running"]
        self._running = None if running is None else running.cpu().clone()
        spent = self.records[-1]["cpu_seconds"] if self.records else 0.0
        self._started = time.process_time() - spent

    def column(self, name: str) -> list[float]:
        """One number of every record, NaN where a record does not have it."""
        return [record.get(name, math.nan) for record in self.records]

    def returns(self, seed: int = 0) -> list[float]:
        """The return of every finished episode of one agent, in order."""
        return [e.episode_return for e in self.episodes if e.seed == seed]

    def recent_returns(
        self, env_steps: Sequence[int], window: int = 10, seed: int = 0
    ) -> list[float]:
        """The mean return of the last `window` episodes at each of some env steps.

        Args:
            env_steps: growing; episodes that were over by then count.
            window: how many episodes.
            seed: which agent, as an index.

        Returns:
            One number for each of `env_steps`, NaN before `window` episodes are over.
        """
        episodes = [one for one in self.episodes if one.seed == seed]
        found: list[float] = []
        ended = 0
        for step in env_steps:
            while ended < len(episodes) and episodes[ended].env_steps <= step:
                ended += 1
            last = episodes[max(0, ended - window) : ended]
            whole = len(last) == window
            found.append(_mean([e.episode_return for e in last] if whole else []))
        return found

    def solved_at(
        self, threshold: float = 475.0, window: int = 10, seed: int = 0
    ) -> int | None:
        """Env steps at which `window` episodes first averaged `threshold`, or None."""
        recent: list[float] = []
        for episode in self.episodes:
            if episode.seed == seed:
                recent = [*recent, episode.episode_return][-window:]
                if len(recent) == window and sum(recent) >= window * threshold:
                    return episode.env_steps
        return None

    def _count_episodes(self, rollout: Rollout) -> list[Episode]:
        """Add up rewards row by row, over the borders of rollouts."""
        # Fetched from the rollout's device once, not number by number.
        mask, rewards = rollout.mask.cpu(), rollout.rewards.cpu().double()
        over = (rollout.terminated | rollout.truncated).cpu() & mask  # [S, B, T]
        real = mask.double()
        gained = torch.stack((rewards * real, real))  # [2, S, B, T]
        sums = gained.cumsum(-1)
        if self._running is not None:
            sums += self._running.unsqueeze(-1)
        before = self.env_steps or [0] * len(self.seeds)
        played = mask.sum(1).cumsum(-1).tolist()  # [S, T]
        ended, last = [], torch.zeros_like(sums[..., 0])  # [2, S, B]
        for time_step, seed, row in over.permute(2, 0, 1).nonzero().tolist():
            total = sums[:, seed, row, time_step] - last[:, seed, row]
            last[:, seed, row] = sums[:, seed, row, time_step]
            steps = before[seed] + played[seed][time_step]
            ended.append(Episode(seed, steps, float(total[0]), int(total[1])))
        self._running = sums[..., -1] - last
        self.env_steps = [a + b[-1] for a, b in zip(before, played, strict=True)]
        self.episodes += ended
        return ended


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else math.nan


def explained_variance(
    values: Tensor, returns: Tensor, mask: Tensor | None = None
) -> Tensor:
    """1 - Var(G - V) / Var(G): 1 for a perfect critic, 0 for a constant one.

    Args:
        values, returns: [S, ...] each, a critic in each row.
        mask: [S, ...] bool, the real steps. None: every step is.

    Returns:
        A scalar, the mean over the critics whose returns are not all alike; NaN where
        there is none.
    """
    real = None if mask is None else mask.flatten(1)
    spread = masked_var(returns.flatten(1), real, dim=1)  # [S]
    left = masked_var((returns - values).flatten(1), real, dim=1) / spread
    return torch.where(spread > 0, 1 - left, torch.nan).nanmean()


def over_minibatches(seen: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """One number each of what every minibatch has logged: the mean, or a `_max`'s max.

    Args:
        seen: scalars by name, all with the same names.
    """
    columns = {name: torch.stack([one[name] for one in seen]) for name in seen[0]}
    return {
        name: column.max() if name.endswith("_max") else column.mean()
        for name, column in columns.items()
    }
