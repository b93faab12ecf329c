"""What is trained: S agents, their parameters, optimizer and random numbers."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from course_lib.algorithms.rollout import Environment, Rollout, Sampler
from course_lib.kernels import value_loss
from course_lib.kernels.arguments import require_positive_int
from course_lib.models import ActorCritic, Adam, FlatParameters


class LearnerConfig(Protocol):
    """What every algorithm's config holds for its networks and its optimizer."""

    @property
    def seeds(self) -> tuple[int, ...]: ...
    @property
    def hidden(self) -> tuple[int, ...]: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def max_grad_norm(self) -> float: ...


class StepsConfig(LearnerConfig, Protocol):
    """What the config of an algorithm that is given its steps holds besides."""

    @property
    def total_steps(self) -> int: ...
    @property
    def num_steps(self) -> int: ...


class AnnealedConfig(Protocol):
    """What a config holds for a step size that may fall."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def anneal_learning_rate(self) -> bool: ...


class EpisodesConfig(LearnerConfig, Protocol):
    """What the config of an algorithm that is given its episodes holds besides."""

    @property
    def num_episodes(self) -> int: ...


class Learner:
    """S agents that learn side by side in the environments of one batch.

    Args:
        env: E = S * B environments; the first B are the first agent's, and so on.
        config: the seeds and the numbers of the optimizer.
        options: passed on to `ActorCritic`.

    Raises:
        ValueError: no seed, environments that cannot be shared out evenly, or
            continuous actions that are no vectors.
    """

    def __init__(self, env: Environment, config: LearnerConfig, **options: Any) -> None:
        seeds = config.seeds
        if not seeds or env.num_envs % len(seeds):
            raise ValueError(
                f"seeds must be as many as share out {env.num_envs} environments "
                f"evenly, got {len(seeds)}"
            )
        self.agent = ActorCritic(
            env.observation_size,
            seeds=seeds,
            hidden=config.hidden,
            **_actions_of(env),
            **options,
        ).to(env.device)
        self.parameters = FlatParameters(self.agent)
        self.optimizer = Adam(self.parameters, config.learning_rate)
        # Where a critic takes steps of its own, its averages are its own as well: the
        # policy, which has no gradient there, is not moved by what it had before.
        self.critic_optimizer = Adam(self.parameters, config.learning_rate)
        self.max_grad_norm = config.max_grad_norm
        self.sampler = Sampler(self.agent, seeds, env.device)

    @torch.no_grad()
    def values(self, observations: Tensor) -> Tensor:
        """V(s) without a gradient, [S, B, T], of observations [S, B, T, O]."""
        return self.agent.values(observations.flatten(1, 2)).view(
            observations.shape[:-1]
        )

    def step(self, loss: Tensor) -> Tensor:
        """Move the parameters down the gradient of a loss, summed over the agents.

        Returns:
            Tensor: [S], the norm of each agent's gradient, before it is clipped.
        """
        return self._step(loss, self.optimizer)

    def fit_critic(self, rollout: Rollout, returns: Tensor, steps: int) -> Tensor:
        """Some steps of the critic alone towards returns [S, B, T]; its loss before."""
        losses = []
        for _ in range(steps):
            values = self.agent.values(rollout.observations.flatten(1, 2))  # [S, B T]
            # A row for each agent, so that its steps are averaged with no other's.
            loss, _ = value_loss(
                values,
                returns.flatten(1),
                mask=rollout.mask.flatten(1),
                reduction="sequence_mean",
            )
            self._step(loss * len(values), self.critic_optimizer)
            losses.append(loss.detach())
        return losses[0]

    def state_dict(self) -> dict[str, Any]:
        """Weights, both optimizers' averages and the random numbers' states."""
        return {
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
            "random": [one.get_state() for one in self.sampler.generators],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` said."""
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        for one, random in zip(self.sampler.generators, state["random"], strict=True):
            # A copy: torch reads the state from where its storage begins.
            one.set_state(random.cpu().clone())

    def _step(self, loss: Tensor, optimizer: Adam) -> Tensor:
        self.parameters.zero_gradients()
        loss.backward()
        norms = self.parameters.clip_gradients(self.max_grad_norm)
        optimizer.step()
        return norms

    def anneal(self, done: float, config: AnnealedConfig) -> float:
        """Set the step size when the share `done` of a run is over, and return it."""
        rate = config.learning_rate
        if config.anneal_learning_rate:
            rate *= 1 - done
        self.optimizer.learning_rate = rate
        return rate


def count_updates(env: Environment, config: StepsConfig) -> int:
    """How many rollouts of `num_steps` steps everywhere make up the run.

    Raises:
        TypeError, ValueError: `num_steps` is no positive integer, or `total_steps` are
            not even one rollout.
    """
    steps = require_positive_int("num_steps", config.num_steps)
    each = steps * env.num_envs // len(config.seeds)
    if config.total_steps < each:
        raise ValueError(
            f"total_steps must be at least the {each} of one rollout, {steps} in each "
            f"of an agent's environments, got {config.total_steps}"
        )
    return config.total_steps // each


def count_episode_updates(env: Environment, config: EpisodesConfig) -> int:
    """How many times an episode in every environment makes up the run.

    Raises:
        ValueError: `num_episodes` are fewer than an agent's environments.
    """
    each = env.num_envs // len(config.seeds)
    if config.num_episodes < each:
        raise ValueError(
            f"num_episodes must be at least the {each} of one update, one in each of "
            f"an agent's environments, got {config.num_episodes}"
        )
    return config.num_episodes // each


def _actions_of(env: Environment) -> dict[str, Any]:
    try:
        return {"num_actions": env.num_actions}
    except TypeError:  # its actions are continuous
        shape = env.action_shape  # type: ignore[attr-defined]
        if len(shape) != 1:
            raise ValueError(
                f"env must have actions of one axis, got the shape {shape}"
            ) from None
        return {"action_size": shape[0]}
