"""A finite MDP played as a batch of environments, for algorithms that only play."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.envs.cartpole import Transition
from course_lib.envs.finite import FiniteMDP
from course_lib.kernels.arguments import require_like, require_positive_int


class Tabular:
    """B copies of a finite MDP; an observation is the state, one-hot.

    What is sampled here can be compared with `course_lib.exact`, which knows the
    tables. Ended environments start again within the step.

    Args:
        mdp: the process.
        num_envs: B.
        generator: draws starts and moves.
        max_steps: the length at which an episode is truncated.

    Raises:
        TypeError, ValueError: a count that is no positive integer.
    """

    def __init__(
        self,
        mdp: FiniteMDP,
        num_envs: int,
        *,
        generator: torch.Generator,
        max_steps: int = 10_000,
    ) -> None:
        self.mdp = mdp
        self.num_envs = require_positive_int("num_envs", num_envs)
        self.max_steps = require_positive_int("max_steps", max_steps)
        self.num_actions = mdp.num_actions
        self.observation_size = mdp.num_states
        self.device = torch.device("cpu")
        self._generator = generator
        self._states = self._starts(num_envs)
        self._steps = torch.zeros(num_envs, dtype=torch.int64)

    def reset(self) -> Tensor:
        """Start a new episode everywhere; observations [B, S]."""
        self._states = self._starts(self.num_envs)
        self._steps.zero_()
        return self._one_hot(self._states)

    def step(self, actions: Tensor) -> Transition:
        """Take one step everywhere.

        Args:
            actions: [B] int64.

        Returns:
            Transition: observations [B, S], the rest [B]; rewards in float32.

        Raises:
            TypeError: no tensor of int64.
            ValueError: another shape, an action out of range.
        """
        require_like("actions", actions, (self.num_envs,), self._states)
        if actions.dtype != torch.int64:
            raise TypeError(f"actions must have dtype torch.int64, got {actions.dtype}")
        if int(actions.min()) < 0 or int(actions.max()) >= self.num_actions:
            raise ValueError(
                f"actions must lie in 0..{self.num_actions - 1}, got values from "
                f"{int(actions.min())} to {int(actions.max())}"
            )
        chances = self.mdp.transition[self._states, actions]  # [B, S]
        reached = torch.multinomial(chances, 1, generator=self._generator).squeeze(1)
        rewards = self.mdp.rewards[self._states, actions, reached].float()
        self._steps += 1
        terminated = self.mdp.terminal[reached]
        truncated = self._steps >= self.max_steps
        ended = terminated | truncated
        self._states = torch.where(ended, self._starts(self.num_envs), reached)
        self._steps = self._steps.masked_fill(ended, 0)
        return Transition(
            observations=self._one_hot(self._states),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            next_observations=self._one_hot(reached),
        )

    def _starts(self, count: int) -> Tensor:
        return torch.multinomial(
            self.mdp.start, count, replacement=True, generator=self._generator
        )

    def _one_hot(self, states: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(states, self.mdp.num_states).float()
