"""REINFORCE: make each action likelier in proportion to what came after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from course_lib.algorithms.agent_run import AgentRun
from course_lib.algorithms.history import Callback, History, explained_variance
from course_lib.algorithms.learner import Learner, count_episode_updates
from course_lib.algorithms.progress import progress_bar
from course_lib.algorithms.rollout import Environment, Rollout, collect_episodes
from course_lib.kernels import (
    discounted_returns,
    leave_one_out_advantages,
    masked_mean,
    policy_gradient_loss,
)
from course_lib.kernels.arguments import (
    require_choice,
    require_fraction,
    require_not_negative,
    require_positive_int,
    require_price,
)

PolicyLoss = Callable[..., tuple[Tensor, dict[str, Tensor]]]
Baseline = Literal["none", "value", "leave_one_out", "group_mean"]


@dataclass(frozen=True)
class ReinforceConfig:
    """What a run of REINFORCE depends on, besides its environment."""

    num_episodes: int = 1_000
    """Episodes of each agent; an update takes one from every environment."""
    gamma: float = 0.99
    """The discount."""
    baseline: Baseline = "none"
    """What is subtracted from a return: nothing, a learned V(s), the mean over the
    other episodes at the same step, or the mean over all of them (biased: a return is
    then partly subtracted from itself)."""
    critic_steps: int = 5
    """Gradient steps of the learned baseline after each of the policy's. With one it
    lags behind, and a baseline that is far off is little better than none."""
    learning_rate: float = 2e-3
    """Adam's step size."""
    max_grad_norm: float = float("inf")
    """A longer gradient is scaled down to this length."""
    time_average: bool = False
    """Divide an episode's loss by its length, as much code does: another estimator."""
    discount_states: bool = False
    """Weigh step t by gamma^t, as the gradient of the discounted objective asks."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    seeds: tuple[int, ...] = (0,)
    """One agent is trained for each; the environments are shared out evenly."""

    def __post_init__(self) -> None:
        require_choice("baseline", self.baseline, get_args(Baseline))
        require_positive_int("critic_steps", self.critic_steps)
        require_fraction("gamma", self.gamma)
        require_price("learning_rate", self.learning_rate)
        require_not_negative("max_grad_norm", self.max_grad_norm)


def reinforce(
    env: Environment,
    config: ReinforceConfig = ReinforceConfig(),
    *,
    returns_fn: Callable[..., Tensor] = discounted_returns,
    policy_loss_fn: PolicyLoss = policy_gradient_loss,
    run: AgentRun | None = None,
    callback: Callback | None = None,
    progress: bool | str = False,
) -> History:
    """Train a policy by REINFORCE.

    collect episodes -> estimate advantages -> update -> log, until the episodes are
    used up. The gradient of the loss is that of -J in expectation,

        grad J = E[ sum_t  grad log pi(a_t | s_t)  (G_t - b(s_t)) ].    (eq-reinforce)

    Args:
        env: E = S * B environments for S seeds.
        config: everything else.
        returns_fn: called as `returns_fn(rewards, gamma, terminated=...,
            truncated=...)` on [E, T].
        policy_loss_fn: called as `policy_loss_fn(log_probs, weights, mask=...,
            reduction=...)` on [E, T].
        run: a run to go on with, of these environments and this config, such as one
            that was read from a file; None: a new one.
        callback: is given the number and the record of each update.
        progress: show a progress bar; a text is what it says.

    Returns:
        History: its records hold `policy_loss`, `entropy`, `grad_norm` and, with a
        learned baseline, `value_loss` and `explained_variance`.

    Raises:
        ValueError: environments that cannot be shared out, fewer episodes than an
            agent's environments. `ReinforceConfig` itself refuses an unknown baseline.

    Source: Williams (1992), theorem 1; Sutton and Barto (2018), section 13.3.
    """
    run = AgentRun(env, config) if run is None else run
    learner, history = run.learner, run.history
    num_updates = count_episode_updates(env, config)
    for _ in progress_bar(run.done, num_updates, "REINFORCE", progress):
        rollout = collect_episodes(env, learner.sampler)
        returns, advantages = estimate_advantages(learner, rollout, config, returns_fn)
        numbers = update(learner, rollout, returns, advantages, config, policy_loss_fn)
        record = history.add(rollout, **numbers)
        if callback is not None:
            callback(len(history.records) - 1, record)
    history.agent = learner.agent
    return history


def estimate_advantages(
    learner: Learner,
    rollout: Rollout,
    config: ReinforceConfig,
    returns_fn: Callable[..., Tensor] = discounted_returns,
) -> tuple[Tensor, Tensor]:
    """Returns and advantages, [S, B, T] each, before anything is updated."""
    returns = returns_fn(
        rollout.rewards.flatten(0, 1),
        config.gamma,
        terminated=rollout.terminated.flatten(0, 1),
        truncated=rollout.truncated.flatten(0, 1),
    ).view_as(rollout.rewards)
    if config.baseline == "none":
        return returns, returns
    if config.baseline == "value":
        return returns, returns - learner.values(rollout.observations)
    # Episodes side by side at the same step, those that are over left out.
    scores, real = returns.transpose(1, 2), rollout.mask.transpose(1, 2)  # [S, T, B]
    others = leave_one_out_advantages(scores, valid=real).transpose(1, 2)
    if config.baseline == "leave_one_out":
        return returns, others
    count = rollout.mask.sum(1, keepdim=True)  # [S, 1, T]
    return returns, others * (count - 1) / count.clamp_min(1)


def update(
    learner: Learner,
    rollout: Rollout,
    returns: Tensor,
    advantages: Tensor,
    config: ReinforceConfig,
    policy_loss_fn: PolicyLoss = policy_gradient_loss,
) -> dict[str, Tensor]:
    """One gradient step on all episodes, then the critic's; returns what to log."""
    seeds, _, steps = rollout.mask.shape
    policy = learner.agent.policy(rollout.observations.flatten(1, 2))
    mask = rollout.mask.flatten(0, 1)  # [E, T]
    log_probs = policy.log_probs(rollout.actions.flatten(1, 2)).view(-1, steps)
    policy_loss, _ = episode_loss(
        log_probs, advantages.flatten(0, 1), mask, config, policy_loss_fn
    )
    # It is a mean over all agents' episodes, and each agent's own is wanted.
    norms = learner.step(policy_loss * seeds)
    numbers = {
        "policy_loss": policy_loss.detach(),
        "entropy": masked_mean(policy.entropies().view(-1, steps).detach(), mask),
        "grad_norm": norms.mean(),
    }
    if config.baseline == "value":
        numbers["explained_variance"] = explained_variance(
            returns - advantages, returns, rollout.mask
        )
        numbers["value_loss"] = learner.fit_critic(
            rollout, returns, config.critic_steps
        )
    return numbers


def episode_loss(
    log_probs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    config: ReinforceConfig,
    policy_loss_fn: PolicyLoss = policy_gradient_loss,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The pseudo-loss: summed over an episode, averaged over episodes; [E, T] each."""
    weights = advantages
    if config.discount_states:
        steps = torch.arange(weights.shape[1], device=weights.device)
        weights = weights * config.gamma**steps
    reduction = "sequence_mean" if config.time_average else "sequence_sum"
    return policy_loss_fn(log_probs, weights, mask=mask, reduction=reduction)
