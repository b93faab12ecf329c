"""Advantage actor-critic: REINFORCE whose returns a learned value function replaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from course_lib.algorithms.agent_run import AgentRun
from course_lib.algorithms.history import Callback, History, explained_variance
from course_lib.algorithms.learner import Learner, count_updates
from course_lib.algorithms.progress import progress_bar
from course_lib.algorithms.rollout import Environment, Rollout, collect_steps
from course_lib.kernels import gae, policy_gradient_loss, value_loss


@dataclass(frozen=True)
class ActorCriticConfig:
    """What a run of actor-critic depends on, besides its environment."""

    total_steps: int = 98_304
    """Environment steps of each agent."""
    num_steps: int = 16
    """Steps of every environment between two updates."""
    gamma: float = 0.99
    """The discount."""
    lam: float = 0.98
    """GAE's lambda: 0 trusts the critic, 1 trusts what was paid."""
    vf_coef: float = 0.5
    """The weight of the critic's loss."""
    ent_coef: float = 0.01
    """The weight of the entropy, which is rewarded."""
    learning_rate: float = 3e-3
    """Adam's step size."""
    anneal_learning_rate: bool = True
    """Let the step size fall to 0, in a straight line over the run."""
    max_grad_norm: float = 0.5
    """A longer gradient is scaled down to this length."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    seeds: tuple[int, ...] = (0,)
    """One agent is trained for each; the environments are shared out evenly."""


def actor_critic(
    env: Environment,
    config: ActorCriticConfig = ActorCriticConfig(),
    *,
    advantage_fn: Callable[..., tuple[Tensor, Tensor]] = gae,
    policy_loss_fn: Callable[..., tuple[Tensor, dict[str, Tensor]]] = (
        policy_gradient_loss
    ),
    value_loss_fn: Callable[..., tuple[Tensor, dict[str, Tensor]]] = value_loss,
    run: AgentRun | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> History:
    """Train a policy and a value function, one gradient step for each rollout.

    collect -> estimate advantages -> update -> log, until the steps are used up:

        grad J = E[ sum_t  grad log pi(a_t | s_t)  A_t ].      (eq-actor-critic)

    Args:
        env: E = S * B environments for S seeds.
        config: everything else.
        advantage_fn: called as `advantage_fn(rewards, values, next_values,
            terminated=..., truncated=..., gamma=..., lam=...)` on [E, T].
        policy_loss_fn: called as `policy_loss_fn(log_probs, advantages,
            reduction="token_mean")` on [S, B T].
        value_loss_fn: called as `value_loss_fn(values, returns)` on [S, B T].
        run: a run to go on with, of these environments and this config, such as one
            that was read from a file; None: a new one.
        callback: is given the number and the record of each update.
        progress: show a progress bar.

    Returns:
        History: its records hold `policy_loss`, `value_loss`, `entropy`, `grad_norm`,
        `explained_variance` and `learning_rate`.

    Raises:
        ValueError: environments that cannot be shared out evenly, fewer steps than
            one rollout.

    Source: Mnih et al. (2016), algorithm S3, with GAE and synchronous environments.
    """
    run = AgentRun(env, config) if run is None else run
    learner, history = run.learner, run.history
    num_updates = count_updates(env, config)
    for done in progress_bar(run.done, num_updates, "actor-critic", progress):
        rate = learner.anneal(done / num_updates, config)
        rollout, run.observations = collect_steps(
            env, learner.sampler, run.observations, config.num_steps
        )
        advantages, returns = estimate_advantages(
            learner, rollout, config, advantage_fn
        )
        numbers = update(
            learner, rollout, advantages, returns, config, policy_loss_fn, value_loss_fn
        )
        record = history.add(rollout, learning_rate=rate, **numbers)
        if callback is not None:
            callback(len(history.records) - 1, record)
    history.agent = learner.agent
    return history


def estimate_advantages(
    learner: Learner,
    rollout: Rollout,
    config: ActorCriticConfig,
    advantage_fn: Callable[..., tuple[Tensor, Tensor]] = gae,
) -> tuple[Tensor, Tensor]:
    """Advantages and the critic's targets, [S, B, T] each, before any update."""
    advantages, returns = advantage_fn(
        rollout.rewards.flatten(0, 1),
        learner.values(rollout.observations).flatten(0, 1),
        learner.values(rollout.next_observations).flatten(0, 1),
        terminated=rollout.terminated.flatten(0, 1),
        truncated=rollout.truncated.flatten(0, 1),
        gamma=config.gamma,
        lam=config.lam,
    )
    return advantages.view_as(rollout.rewards), returns.view_as(rollout.rewards)


def update(
    learner: Learner,
    rollout: Rollout,
    advantages: Tensor,
    returns: Tensor,
    config: ActorCriticConfig,
    policy_loss_fn: Callable[..., tuple[Tensor, dict[str, Tensor]]],
    value_loss_fn: Callable[..., tuple[Tensor, dict[str, Tensor]]],
) -> dict[str, Tensor]:
    """One gradient step on the whole rollout; returns what to log."""
    policy, values = learner.agent.policy_and_values(rollout.observations.flatten(1, 2))
    log_probs = policy.log_probs(rollout.actions.flatten(1, 2))  # [S, B T]
    policy_loss, _ = policy_loss_fn(
        log_probs, advantages.flatten(1), reduction="token_mean"
    )
    critic_loss, _ = value_loss_fn(values, returns.flatten(1))
    entropy = policy.entropies().mean()
    loss = policy_loss + config.vf_coef * critic_loss - config.ent_coef * entropy
    # A mean over all agents' steps was taken, and each agent's own is wanted.
    norms = learner.step(loss * len(config.seeds))
    return {
        "policy_loss": policy_loss.detach(),
        "value_loss": critic_loss.detach(),
        "entropy": entropy.detach(),
        "explained_variance": explained_variance(returns - advantages, returns),
        "grad_norm": norms.mean(),
    }
