"""Collecting experience: T steps of every environment, or whole episodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from course_lib.envs.cartpole import Transition
from course_lib.models import ActorCritic, DiagonalGaussian


class Environment(Protocol):
    """B environments stepped together; `CartPole` and `GymnasiumVector` are two."""

    num_envs: int
    observation_size: int
    device: torch.device

    @property
    def num_actions(self) -> int: ...
    def reset(self) -> Tensor: ...
    def step(self, actions: Tensor) -> Transition: ...


@dataclass(frozen=True)
class Rollout:
    """What was seen, done and paid, for S agents in B environments each.

    Time is the last axis of what the kernels read. Where `mask` is False nothing
    happened: the episode of that row was over.
    """

    observations: Tensor
    """s_t, [S, B, T, O]."""
    actions: Tensor
    """a_t, [S, B, T] int64, or [S, B, T, D] for continuous actions."""
    rewards: Tensor
    """r_t, [S, B, T]."""
    terminated: Tensor
    """[S, B, T] bool, the task was over after step t."""
    truncated: Tensor
    """[S, B, T] bool, the episode was stopped after step t."""
    next_observations: Tensor
    """s_{t+1}, [S, B, T, O], the state really reached, before any reset."""
    mask: Tensor
    """[S, B, T] bool, the real steps."""


class Sampler:
    """Draws actions; agent s uses the random numbers of generator s alone.

    Args:
        agent: the S policies.
        seeds: one for each.
        device: where the environments live.
    """

    def __init__(
        self, agent: ActorCritic, seeds: tuple[int, ...], device: torch.device
    ) -> None:
        self.agent = agent
        # Not the numbers that the first weights were drawn from; torch reads 32 bits.
        self.generators = [
            torch.Generator(device).manual_seed(seed + 2**31) for seed in seeds
        ]

    @torch.no_grad()
    def actions(self, observations: Tensor) -> Tensor:
        """Actions of all environments, [E, ...], for observations [E, ...]."""
        rows = observations.flatten(1).unflatten(0, (len(self.generators), -1))
        policy = self.agent.policy(rows)
        if isinstance(policy, DiagonalGaussian):
            shape, draw = policy.mean.shape[1:], torch.randn
        else:
            shape, draw = policy.logits.shape[1:-1], torch.rand
        device = observations.device
        noise = [draw(shape, generator=one, device=device) for one in self.generators]
        return policy.sample(torch.stack(noise)).flatten(0, 1)


def collect_steps(
    env: Environment, sampler: Sampler, observations: Tensor, num_steps: int
) -> tuple[Rollout, Tensor]:
    """Take `num_steps` steps everywhere; episodes go on from the last rollout.

    Args:
        env: E = S * B environments, the first B for the first agent, and so on.
        sampler: draws the actions.
        observations: [E, ...], where the environments stand.
        num_steps: T.

    Returns:
        The rollout, and the observations to go on from, [E, ...].
    """
    steps = []
    for _ in range(num_steps):
        actions = sampler.actions(observations)
        transition = env.step(actions)
        steps.append((observations, actions, transition))
        observations = transition.observations
    everything = torch.ones(
        env.num_envs, num_steps, dtype=torch.bool, device=observations.device
    )
    rollout = _stacked(steps, everything, sampler)
    return rollout, observations


def collect_episodes(env: Environment, sampler: Sampler) -> Rollout:
    """Play one whole episode in every environment, from a reset.

    Returns:
        The rollout; rows that end early are padded, and masked there.
    """
    observations = env.reset()
    running = torch.ones(env.num_envs, dtype=torch.bool, device=observations.device)
    steps, masks = [], []
    while running.any():
        actions = sampler.actions(observations)
        transition = env.step(actions)
        steps.append((observations, actions, transition))
        masks.append(running)
        running = running & ~(transition.terminated | transition.truncated)
        observations = transition.observations
    return _stacked(steps, torch.stack(masks, 1), sampler)


def _stacked(
    steps: list[tuple[Tensor, Tensor, Transition]], mask: Tensor, sampler: Sampler
) -> Rollout:
    seeds = len(sampler.generators)

    def all_steps(tensors: list[Tensor]) -> Tensor:
        stacked = torch.stack(tensors, 1)  # [E, T, ...]
        return stacked.view(seeds, -1, *stacked.shape[1:])  # [S, B, T, ...]

    transitions = [transition for _, _, transition in steps]
    reached = [one.next_observations.flatten(1) for one in transitions]
    return Rollout(
        observations=all_steps([one.flatten(1) for one, _, _ in steps]),
        actions=all_steps([actions for _, actions, _ in steps]),
        rewards=all_steps([one.rewards for one in transitions]),
        terminated=all_steps([one.terminated for one in transitions]),
        truncated=all_steps([one.truncated for one in transitions]),
        next_observations=all_steps(reached),
        mask=mask.view(seeds, -1, mask.shape[-1]),
    )
