"""PPO: several epochs of clipped steps on each rollout."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from course_lib.algorithms.agent_run import AgentRun
from course_lib.algorithms.batch import Batch, make_batch, minibatches
from course_lib.algorithms.history import (
    Callback,
    History,
    explained_variance,
    over_minibatches,
)
from course_lib.algorithms.kl_control import (
    adapted,
    moved,
    moved_too_far,
    policy_objective,
)
from course_lib.algorithms.learner import Learner, count_updates
from course_lib.algorithms.progress import progress_bar
from course_lib.algorithms.rollout import Environment, Rollout, collect_steps
from course_lib.kernels import (
    clipped_policy_loss,
    clipped_value_loss,
    gae,
    value_loss,
)
from course_lib.kernels.arguments import (
    require_choice,
    require_fields,
    require_fraction,
    require_not_negative,
    require_positive_int,
    require_price,
)
from course_lib.models import ActorCritic

Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class PPOConfig:
    """What a run of PPO depends on, besides its environment."""

    total_steps: int = 98_304
    """Environment steps of each agent."""
    num_steps: int = 256
    """Steps of every environment between two updates."""
    num_epochs: int = 10
    """How often each rollout is gone through."""
    minibatch_size: int = 64
    """Steps in each gradient step of an agent; the last of an epoch has what is left
    over."""
    gamma: float = 0.99
    """The discount."""
    lam: float = 0.95
    """GAE's lambda: 0 trusts the critic, 1 trusts what was paid."""
    clip_eps: float = 0.2
    """Half the width of the band of ratios within which every sample has a gradient."""
    vf_coef: float = 0.5
    """The weight of the critic's loss."""
    ent_coef: float = 0.01
    """The weight of the entropy, which is rewarded."""
    learning_rate: float = 3e-4
    """Adam's step size."""
    anneal_learning_rate: bool = True
    """Let the step size fall to 0, in a straight line over the run."""
    max_grad_norm: float = 0.5
    """A longer gradient is scaled down to this length."""
    normalize_advantages: Literal["minibatch", "batch", "none"] = "minibatch"
    """Over which steps advantages are shifted to mean 0 and scaled to variance 1."""
    value_clip: float | None = None
    """How far a value may move from its old one before its loss is held back."""
    target_kl: float | None = None
    """Stop an update's epochs when KL(old, new) exceeds 1.5 times this, in nats."""
    penalty: float | None = None
    """PPO-Penalty in place of the clip: the first price of a nat of KL."""
    penalty_target: float = 0.01
    """The KL(old, new) of a whole update that the price is adapted to: doubled above
    1.5 times it, halved below it over 1.5."""
    bootstrap_truncated: bool = True
    """Add the value of the state in which an episode was stopped. Without, being
    stopped counts as being over."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    shared: bool = False
    """One trunk for policy and value function, in place of two networks."""
    orthogonal: bool = True
    """Start from orthogonal weights of the usual gains."""
    policy_gain: float = 0.01
    """The scale of the policy's last layer at the start."""
    seeds: tuple[int, ...] = (0,)
    """One agent is trained for each; the environments are shared out evenly."""

    def __post_init__(self) -> None:
        scopes = ("minibatch", "batch", "none")
        require_choice("normalize_advantages", self.normalize_advantages, scopes)
        require_fields(self, require_positive_int, "num_epochs", "minibatch_size")
        require_fields(self, require_fraction, "gamma", "lam")
        require_fields(self, require_price, "vf_coef", "learning_rate")
        require_fields(self, require_not_negative, "clip_eps", "max_grad_norm")
        if not self.penalty_target > 0:
            raise ValueError(f"penalty_target must be > 0, got {self.penalty_target}")
        for name in ("target_kl", "penalty"):
            if getattr(self, name) is not None and len(self.seeds) > 1:
                raise ValueError(
                    f"{name} follows the KL of one agent: expected one seed, got "
                    f"{len(self.seeds)}; train them one by one"
                )


@dataclass(frozen=True)
class PPOSteps:
    """The steps of the algorithm, each a function; `faults` puts broken ones in."""

    collect: Callable[..., tuple[Rollout, Tensor]]
    make_batch: Callable[..., Batch]
    minibatches: Callable[..., Iterator[Batch]]
    loss: Callable[..., tuple[Tensor, dict[str, Tensor]]]


def ppo(
    env: Environment,
    config: PPOConfig = PPOConfig(),
    *,
    advantage_fn: Callable[..., tuple[Tensor, Tensor]] = gae,
    policy_loss_fn: Loss = clipped_policy_loss,
    value_loss_fn: Loss = value_loss,
    steps: PPOSteps | None = None,
    run: AgentRun | None = None,
    callback: Callback | None = None,
    progress: bool | str = False,
) -> History:
    """Train a policy and a value function by PPO.

    collect -> estimate advantages -> update -> log, until the steps are used up. An
    update takes several epochs of minibatches, each a step down the gradient of

        L = -E[ min(rho A, clip(rho, 1 - eps, 1 + eps) A) ] + c1 L_V - c2 H.   (eq-ppo)

    Args:
        env: E = S * B environments for S seeds.
        config: everything else; every detail can be switched off there.
        advantage_fn: called as `advantage_fn(rewards, values, next_values,
            terminated=..., truncated=..., gamma=..., lam=...)` on [E, T].
        policy_loss_fn: called as `policy_loss_fn(log_probs, old_log_probs, advantages,
            clip_eps=...)` on [S, M]; not with `config.penalty`.
        value_loss_fn: called as `value_loss_fn(values, returns)` on [S, M]; not with
            `config.value_clip`.
        steps: the algorithm's steps, if not its own.
        run: a run to go on with, of these environments and this config, such as one
            that was read from a file; None: a new one.
        callback: is given the number and the record of each update.
        progress: show a progress bar; a text is what it says.

    Returns:
        History: its records hold, as means over an update's minibatches,
        `policy_loss`, `value_loss`, `entropy`, `approx_kl`, `clip_frac`,
        `clip_frac_active`, `grad_norm`, and `ratio_max`, their maximum; and
        `explained_variance` of the critic that the rollout was judged with, and
        `learning_rate`. With a penalty, which has no `clip_frac`s, also `kl` (what
        was penalised) and `penalty`, its price; a learner's own policy loss adds
        whatever numbers it returns.

    Raises:
        ValueError: environments that cannot be shared out evenly, fewer steps than
            one rollout, `target_kl` with a policy loss that returns no `approx_kl`.
            `PPOConfig` itself refuses names and counts that mean nothing, and
            `target_kl` or `penalty` for several seeds, which follow one agent's KL.

    Source: Schulman et al. (2017), algorithm 1; the details after Huang et al. (2022),
    "The 37 implementation details of proximal policy optimization".
    """
    steps = STEPS if steps is None else steps
    run = AgentRun(env, config) if run is None else run
    learner, history = run.learner, run.history
    num_updates = count_updates(env, config)
    for done in progress_bar(run.done, num_updates, "PPO", progress):
        rate, price = learner.anneal(done / num_updates, config), run.penalty
        rollout, run.observations = steps.collect(
            env, learner.sampler, run.observations, config.num_steps
        )
        batch = steps.make_batch(learner, rollout, config, advantage_fn)
        loss_fn = functools.partial(
            steps.loss,
            config=config,
            policy_loss_fn=policy_objective(config, price, policy_loss_fn),
            value_loss_fn=value_loss_fn,
        )
        numbers = update(learner, batch, config, loss_fn, steps.minibatches)
        if price is not None:
            numbers["penalty"] = torch.tensor(price)
            kl = moved(learner, batch)
            run.penalty = adapted(price, kl, config.penalty_target)
        record = history.add(rollout, learning_rate=rate, **numbers)
        if callback is not None:
            callback(len(history.records) - 1, record)
    history.agent = learner.agent
    return history


def update(
    learner: Learner,
    batch: Batch,
    config: PPOConfig,
    loss_fn: Loss,
    minibatches_fn: Callable[..., Iterator[Batch]] | None = None,
) -> dict[str, Tensor]:
    """All epochs over one batch; returns what to log.

    Nothing is read back from the batch's device, so that an accelerator is never
    waited for; but `target_kl` reads one number after each epoch.
    """
    split = minibatches if minibatches_fn is None else minibatches_fn
    seen: list[dict[str, Tensor]] = []
    for _ in range(config.num_epochs):
        for minibatch in split(batch, config, learner.sampler.generators):
            loss, numbers = loss_fn(learner.agent, minibatch)
            numbers["grad_norm"] = learner.step(loss).mean()
            seen.append(numbers)
        if moved_too_far(seen[-1], config.target_kl):
            break
    return over_minibatches(seen) | {
        "explained_variance": explained_variance(batch.old_values, batch.returns)
    }


def ppo_loss(
    agent: ActorCritic,
    batch: Batch,
    *,
    config: PPOConfig,
    policy_loss_fn: Loss,
    value_loss_fn: Loss = value_loss,
) -> tuple[Tensor, dict[str, Tensor]]:
    """eq-ppo on a minibatch, summed over the agents, and what to log."""
    policy, values = agent.policy_and_values(batch.observations)  # values [S, M]
    log_probs = policy.log_probs(batch.actions)  # [S, M]
    policy_loss, numbers = policy_loss_fn(
        log_probs, batch.old_log_probs, batch.advantages
    )
    if config.value_clip is None:
        critic_loss, _ = value_loss_fn(values, batch.returns)
    else:
        critic_loss, _ = clipped_value_loss(
            values, batch.old_values, batch.returns, clip=config.value_clip
        )
    entropy = policy.entropies().mean()
    loss = policy_loss + config.vf_coef * critic_loss - config.ent_coef * entropy
    # Each is a mean over all agents' steps, and each agent's own mean is wanted.
    return loss * len(values), {
        **numbers,
        "policy_loss": policy_loss.detach(),
        "value_loss": critic_loss.detach(),
        "entropy": entropy.detach(),
    }


STEPS = PPOSteps(collect_steps, make_batch, minibatches, ppo_loss)
