"""TRPO: the largest step that the old policy's data vouch for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from course_lib.algorithms.agent_run import AgentRun
from course_lib.algorithms.batch import Batch, make_batch, minibatches
from course_lib.algorithms.history import Callback, History, explained_variance
from course_lib.algorithms.learner import Learner, count_updates
from course_lib.algorithms.natural_gradient import (
    conjugate_gradient,
    fisher_product,
    flat_gradient,
    line_search,
    read_flat,
    write_flat,
)
from course_lib.algorithms.progress import progress_bar
from course_lib.algorithms.rollout import Environment, collect_steps
from course_lib.kernels import gae, value_loss
from course_lib.kernels.arguments import require_choice, require_positive_int


@dataclass(frozen=True)
class TRPOConfig:
    """What a run of TRPO depends on, besides its environment."""

    total_steps: int = 98_304
    """Environment steps of each agent."""
    num_steps: int = 256
    """Steps of every environment between two updates."""
    gamma: float = 0.99
    """The discount."""
    lam: float = 0.95
    """GAE's lambda: 0 trusts the critic, 1 trusts what was paid."""
    max_kl: float = 0.01
    """kappa, how far a policy may move in one update: mean KL(old, new), in nats."""
    damping: float = 0.1
    """Added to the diagonal of the Fisher matrix."""
    cg_iterations: int = 10
    """Fisher-vector products in a solve."""
    backtracks: int = 10
    """How often a step is halved before it is given up."""
    critic_epochs: int = 10
    """How often the critic goes through each rollout."""
    minibatch_size: int = 64
    """Steps in each gradient step of a critic."""
    learning_rate: float = 1e-3
    """Adam's step size, for the critic alone."""
    max_grad_norm: float = float("inf")
    """A longer gradient of the critic is scaled down to this length."""
    bootstrap_truncated: bool = True
    """Add the value of the state in which an episode was stopped."""
    normalize_advantages: Literal["batch", "none"] = "batch"
    """Over which steps advantages are shifted to mean 0 and scaled to variance 1."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    seeds: tuple[int, ...] = (0,)
    """One agent is trained for each; the environments are shared out evenly."""

    def __post_init__(self) -> None:
        scopes = ("batch", "none")
        require_choice("normalize_advantages", self.normalize_advantages, scopes)
        require_positive_int("critic_epochs", self.critic_epochs)
        require_positive_int("minibatch_size", self.minibatch_size)


def trpo(
    env: Environment,
    config: TRPOConfig = TRPOConfig(),
    *,
    advantage_fn: Callable[..., tuple[Tensor, Tensor]] = gae,
    run: AgentRun | None = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> History:
    """Train a policy by TRPO, and a critic beside it.

    collect -> estimate advantages -> update -> log, until the steps are used up. The
    update solves, along one direction,

        max E[ rho A ]   subject to   E[ KL(old, new) ] <= kappa.         (eq-trpo)

    Args:
        env: E = S * B environments for S seeds.
        config: everything else.
        advantage_fn: called as `advantage_fn(rewards, values, next_values,
            terminated=..., truncated=..., gamma=..., lam=...)` on [E, T].
        run: a run to go on with, of these environments and this config, such as one
            that was read from a file; None: a new one.
        callback: is given the number and the record of each update.
        progress: show a progress bar.

    Returns:
        History: its records hold, as means over the agents, `kl` and
        `surrogate_gain` of the step, `step_fraction` (0 where a step was given up),
        `entropy`, `grad_norm` of the surrogate, `value_loss` and `explained_variance`;
        and `kl_max`, the largest `kl` of an agent.

    Raises:
        ValueError: environments that cannot be shared out evenly, fewer steps than
            one rollout. `TRPOConfig` itself refuses names and counts that mean nothing.

    Source: Schulman et al. (2015), "Trust region policy optimization", appendix C.
    """
    run = AgentRun(env, config) if run is None else run
    learner, history = run.learner, run.history
    num_updates = count_updates(env, config)
    for _ in progress_bar(run.done, num_updates, "TRPO", progress):
        rollout, run.observations = collect_steps(
            env, learner.sampler, run.observations, config.num_steps
        )
        batch = make_batch(learner, rollout, config, advantage_fn)
        numbers = update_policy(learner, batch, config)
        numbers |= update_critic(learner, batch, config)
        record = history.add(rollout, **numbers)
        if callback is not None:
            callback(len(history.records) - 1, record)
    history.agent = learner.agent
    return history


def update_policy(
    learner: Learner, batch: Batch, config: TRPOConfig
) -> dict[str, Tensor]:
    """One step within the trust region; the policy stays as it was where none gains."""
    agent, actions, old_log_probs = learner.agent, batch.actions, batch.old_log_probs
    parameters = agent.policy_parameters()
    with torch.no_grad():
        old = agent.policy(batch.observations)

    def surrogate_and_kl() -> tuple[Tensor, Tensor]:
        new = agent.policy(batch.observations)
        ratio = (new.log_probs(actions) - old_log_probs).exp()
        return (ratio * batch.advantages).mean(-1), old.kl(new).mean(-1)  # [S] each

    surrogate, kl = surrogate_and_kl()
    gradient = flat_gradient(surrogate.sum(), parameters, keep_graph=True)  # [S, P]
    product = fisher_product(kl.sum(), parameters, config.damping)
    direction = conjugate_gradient(product, gradient, iterations=config.cg_iterations)
    curvature = (direction * product(direction)).sum(-1, keepdim=True)
    # The length at which the quadratic model of the KL reaches kappa.
    length = (2 * config.max_kl / curvature.clamp_min(1e-30)).sqrt()

    @torch.no_grad()
    def judge(trial: Tensor) -> tuple[Tensor, Tensor]:
        write_flat(parameters, trial)
        new_surrogate, new_kl = surrogate_and_kl()
        return new_surrogate - surrogate, new_kl

    start = read_flat(parameters).detach()
    accepted, fraction = line_search(
        judge,
        start,
        length * direction,
        max_kl=config.max_kl,
        backtracks=config.backtracks,
    )
    gain, kl = judge(accepted)  # and leaves the accepted parameters in place
    return {
        "surrogate_gain": gain.mean(),
        "kl": kl.mean(),
        "kl_max": kl.max(),
        "step_fraction": fraction.mean(),
        "entropy": old.entropies().mean(),
        "grad_norm": gradient.norm(dim=-1).mean(),
    }


def update_critic(
    learner: Learner, batch: Batch, config: TRPOConfig
) -> dict[str, Tensor]:
    """Several epochs of minibatches towards the returns."""
    losses = []
    for _ in range(config.critic_epochs):
        for minibatch in minibatches(batch, config, learner.sampler.generators):
            values = learner.agent.values(minibatch.observations)
            loss, _ = value_loss(values, minibatch.returns)
            learner.step(loss * len(values))  # a mean over agents, and each its own
            losses.append(loss.detach())
    return {
        "value_loss": torch.stack(losses).mean(),
        "explained_variance": explained_variance(batch.old_values, batch.returns),
    }
