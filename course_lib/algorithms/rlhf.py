"""RLHF with PPO: a language model, a score, and a price on leaving the reference."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from course_lib.algorithms import ranks
from course_lib.algorithms.history import Callback, explained_variance
from course_lib.algorithms.language_run import LanguageRun, PromptFn
from course_lib.algorithms.progress import progress_bar
from course_lib.algorithms.responses import (
    LanguageHistory,
    Numbers,
    ResponseBatch,
    Responses,
    ScoreFn,
    collect_responses,
    response_batch,
    update,
)
from course_lib.kernels import (
    clipped_policy_loss,
    clipped_value_loss,
    entropy,
    entropy_bonus,
    gae,
    kl_shaped_rewards,
    pretraining_loss,
    token_log_probs,
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
from course_lib.models import LanguagePolicy

Loss = Callable[..., tuple[Tensor, Numbers]]


@dataclass(frozen=True)
class RLHFConfig:
    """What a run of RLHF with PPO depends on, besides the reference and the score."""

    num_updates: int = 150
    """Batches that are sampled and learnt from."""
    batch_size: int = 256
    """Responses in each."""
    length: int = 8
    """The most tokens of a response."""
    beta: float = 0.1
    """The price of a nat of KL from the reference, in the score's unit."""
    gamma: float = 1.0
    """The discount."""
    lam: float = 0.95
    """GAE's lambda."""
    num_epochs: int = 4
    """How often each batch is gone through."""
    minibatch_size: int = 256
    """Responses in each gradient step; the last of an epoch has what is left over, and
    one is all of the batch where that has fewer."""
    clip_eps: float = 0.2
    """Half the width of the band of ratios within which every token has a gradient."""
    vf_coef: float = 1.0
    """The weight of the critic's loss, itself half a squared error."""
    ent_coef: float = 0.0
    """The weight of the entropy; the KL in the reward already keeps it up."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    anneal_learning_rate: bool = True
    """Let the step size fall to 0, in a straight line over the run."""
    max_grad_norm: float = float("inf")
    """A longer gradient is scaled down to this length."""
    normalize_advantages: Literal["minibatch", "batch", "none"] = "batch"
    """Over which real tokens advantages are shifted to mean 0 and scaled."""
    value_clip: float | None = None
    """How far a value may move from its old one before its loss is held back."""
    credit: Literal["token", "response"] = "token"
    """GAE for each token, or one number for all tokens of a response: its score, less
    what KL costs, less V of the prompt (and more the value after it, where a capped one
    is bootstrapped)."""
    missing_eos_penalty: float = 0.0
    """Taken off the score of a response that ran out of length."""
    mask_capped: bool = False
    """Learn nothing from responses that ran out of length."""
    bootstrap_capped: bool = False
    """Add the value of what a response that ran out of length would have gone on to."""
    kl_target: float | None = None
    """Adapt beta so that KL is this many nats a response; None: beta stays."""
    kl_horizon: float = 10_000.0
    """Responses over which beta is adapted."""
    ptx_coef: float = 0.0
    """The weight of the loss on pretraining text (PPO-ptx)."""
    staleness: int = 0
    """How many updates old the sampling policy is."""
    seed: int = 0
    """Of everything random in the run."""

    def __post_init__(self) -> None:
        counts = ("num_updates", "batch_size", "length", "num_epochs", "minibatch_size")
        require_fields(self, require_positive_int, *counts)
        require_fields(self, require_fraction, "gamma", "lam")
        require_fields(self, require_price, "beta", "learning_rate", "vf_coef")
        require_price("missing_eos_penalty", self.missing_eos_penalty)
        require_fields(self, require_not_negative, "max_grad_norm", "staleness")
        if not self.clip_eps > 0:
            raise ValueError(f"clip_eps must be above 0, got {self.clip_eps}")
        scopes = ("minibatch", "batch", "none")
        require_choice("normalize_advantages", self.normalize_advantages, scopes)
        require_choice("credit", self.credit, ("token", "response"))
        if self.mask_capped and self.bootstrap_capped:
            raise ValueError(
                "bootstrap_capped must be False with mask_capped, which learns nothing "
                "from the responses that it is for; got True"
            )


def rlhf_ppo(
    ref: LanguagePolicy,
    score_fn: ScoreFn,
    config: RLHFConfig = RLHFConfig(),
    *,
    prompt_fn: PromptFn | None = None,
    advantage_fn: Callable[..., tuple[Tensor, Tensor]] = gae,
    rewards_fn: Callable[..., Tensor] = kl_shaped_rewards,
    policy_loss_fn: Loss = clipped_policy_loss,
    value_loss_fn: Loss = value_loss,
    pretraining_tokens: Tensor | None = None,
    run: LanguageRun | None = None,
    callback: Callback | None = None,
    progress: bool | str = False,
) -> LanguageHistory:
    """Train a language model by PPO on a score, at a price on KL from the reference.

    collect -> estimate advantages -> update -> log. What is maximised is

        J = E[ score ] - beta KL(pi, ref),                              (eq-rlhf)

    by PPO in the MDP of tokens, whose rewards are -beta (log pi_old - log ref) at each
    token and the score at the last one.

    Args:
        ref: the reference, and what the policy starts as; it is copied, not changed.
        score_fn: called as `score_fn(tokens, mask)`, with the prompts as a third
            argument where there are any: a reward model or a rule.
        config: everything else.
        prompt_fn: called as `prompt_fn(count, done, generator)`; gives the prompts of a
            batch. None: responses to nothing.
        advantage_fn: called as `advantage_fn(rewards, values, next_values,
            terminated=..., gamma=..., lam=..., mask=...)` on [B, T].
        rewards_fn: called as `rewards_fn(log_probs, ref_log_probs, scores, beta=...,
            mask=...)`.
        policy_loss_fn: called as `policy_loss_fn(log_probs, old_log_probs, advantages,
            clip_eps=..., mask=...)`.
        value_loss_fn: called as `value_loss_fn(values, returns, mask=...)`; not with
            `config.value_clip`.
        pretraining_tokens: [N, T] int64 for `config.ptx_coef`; each update draws a
            batch of them.
        run: a run to go on with, of this reference and config, such as one that was
            read from a file; None: a new one. It is at hand for the callback.
        callback: is given the record of each update.
        progress: show a progress bar; a text is what it says.

    Returns:
        LanguageHistory: its records hold `score`, `kl` (nats a response), `length`,
        `finished`, `entropy`, `beta`, `learning_rate`, `policy_loss`, `value_loss`,
        `explained_variance`, `approx_kl`, `clip_frac`, `clip_frac_active`,
        `ratio_max`, `grad_norm`.

    Raises:
        ValueError: a target of KL that is not above 0, `ptx_coef` without text.

    Source: Ziegler et al. (2019), section 2; Ouyang et al. (2022), section 3.5.
    """
    if config.ptx_coef and pretraining_tokens is None:
        raise ValueError("pretraining_tokens must be given with ptx_coef, got None")
    run = LanguageRun(ref, config) if run is None else run
    learner, history = run.learner, run.history
    if config.kl_target is not None:  # refuses early
        adapted_beta(run.beta, 0.0, config.kl_target, 0, config.kl_horizon)
    for done in progress_bar(run.done, config.num_updates, "RLHF", progress):
        rate, beta = learner.anneal(done, config), run.beta
        prompts = run.draw_prompts(prompt_fn, config)
        responses = collect_responses(learner, run.ref, score_fn, config, prompts)
        batch = estimate_advantages(responses, beta, config, advantage_fn, rewards_fn)
        loss_fn = functools.partial(
            rlhf_loss,
            config=config,
            policy_loss_fn=policy_loss_fn,
            value_loss_fn=value_loss_fn,
            text=_some(pretraining_tokens, config, learner.generator),
        )
        numbers = update(learner, batch, config, loss_fn, ranks.share_of_tokens)
        record = history.add(
            responses, beta=beta, learning_rate=rate, **numbers, **_fit(batch)
        )
        if config.kl_target is not None:
            run.beta = adapted_beta(
                beta,
                record["kl"],
                config.kl_target,
                # All that went into the mean, of each process.
                config.batch_size * ranks.world_size(),
                config.kl_horizon,
            )
        if callback is not None:
            callback(len(history.records) - 1, record)
    history.policy, history.ref = learner.policy, run.ref
    return history


def estimate_advantages(
    responses: Responses,
    beta: float,
    config: RLHFConfig,
    advantage_fn: Callable[..., tuple[Tensor, Tensor]] = gae,
    rewards_fn: Callable[..., Tensor] = kl_shaped_rewards,
) -> ResponseBatch:
    """Shape the rewards, and judge each token with the critic that sampled it."""
    mask, values = responses.mask, responses.old_values
    rewards = rewards_fn(
        responses.old_log_probs,
        responses.ref_log_probs,
        responses.rewards,
        beta=beta,
        mask=mask,
    )
    # A response is over at its last token, by EOS or because the task allows no more:
    # nothing comes after it. The critic knows how much is left, since it counts along.
    over = mask & (mask.flip(-1).cumsum(-1).flip(-1) == 1)
    next_values = torch.zeros_like(values)
    if config.bootstrap_capped:  # or it was stopped there, and would have gone on
        over = over & responses.finished.unsqueeze(-1)
        next_values = _after(responses).unsqueeze(-1).expand_as(values)
    advantages, returns = advantage_fn(
        rewards,
        values,
        next_values,
        terminated=over,
        gamma=config.gamma,
        lam=config.lam,
        mask=mask,
    )
    if config.credit == "response":
        whole = rewards.sum(-1) - values[:, 0]
        if config.bootstrap_capped:
            whole = whole + _after(responses).masked_fill(responses.finished, 0.0)
        advantages = whole.unsqueeze(-1) * mask
    if config.mask_capped:
        mask = mask & responses.finished.unsqueeze(-1)
    if config.normalize_advantages == "batch":
        advantages = ranks.whiten_over_ranks(advantages, mask)
    return replace(response_batch(responses, advantages, returns), mask=mask)


def rlhf_loss(
    policy: LanguagePolicy,
    batch: ResponseBatch,
    *,
    config: RLHFConfig,
    policy_loss_fn: Loss = clipped_policy_loss,
    value_loss_fn: Loss = value_loss,
    text: Tensor | None = None,
) -> tuple[Tensor, Numbers]:
    """PPO's loss on responses, with a term for pretraining text, and what to log."""
    logits, values = policy(batch.tokens, *batch.context)
    log_probs = token_log_probs(logits, batch.tokens)
    advantages, mask = batch.advantages, batch.mask
    if config.normalize_advantages == "minibatch":
        advantages = ranks.whiten_over_ranks(advantages, mask)
    policy_loss, numbers = policy_loss_fn(
        log_probs, batch.old_log_probs, advantages, clip_eps=config.clip_eps, mask=mask
    )
    if config.value_clip is None:
        critic_loss, _ = value_loss_fn(values, batch.returns, mask=mask)
    else:
        critic_loss, _ = clipped_value_loss(
            values, batch.old_values, batch.returns, clip=config.value_clip, mask=mask
        )
    loss = policy_loss + config.vf_coef * critic_loss
    if config.ent_coef:
        bonus, _ = entropy_bonus(entropy(logits), mask=mask)
        loss = loss - config.ent_coef * bonus
    numbers = numbers | {
        "policy_loss": policy_loss.detach(),
        "value_loss": critic_loss.detach(),
    }
    if text is not None:
        ptx_loss, _ = pretraining_loss(policy(text)[0], text, policy.real_tokens(text))
        loss = loss + config.ptx_coef * ptx_loss
        numbers["ptx_loss"] = ptx_loss.detach()
    return loss, numbers


def adapted_beta(
    beta: float, kl: float, target: float, num_responses: int, horizon: float
) -> float:
    """The price of a nat for the next update, by a proportional controller
    (eq-adaptive-kl):

        beta' = beta (1 + clip(kl / target - 1, -.2, .2) * n / horizon)

        >>> adapted_beta(0.2, kl=12.0, target=6.0, num_responses=256, horizon=10_000)
        0.201024

    Args:
        beta: the price so far.
        kl: what was just measured, nats a response: of what is penalised.
        target: the wish, nats a response.
        num_responses: n, how many went into the measurement.
        horizon: responses; a smaller one adapts faster.

    Raises:
        ValueError: a target or a horizon that is not above 0.

    Source: Ziegler et al. (2019), section 2.2.
    """
    for name, value in (("target", target), ("horizon", horizon)):
        if not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}")
    error = min(max(kl / target - 1, -0.2), 0.2)
    return beta * (1 + error * num_responses / horizon)


def _after(responses: Responses) -> Tensor:
    if responses.last_values is None:
        raise ValueError(
            "responses must have last_values with bootstrap_capped, got None"
        )
    return responses.last_values


def _some(
    text: Tensor | None, config: RLHFConfig, generator: torch.Generator
) -> Tensor | None:
    if text is None or not config.ptx_coef:
        return None
    device = text.device
    rows = torch.randint(
        len(text), (config.minibatch_size,), generator=generator, device=device
    )
    return text[rows]


def _fit(batch: ResponseBatch) -> Numbers:
    """How much of the returns the critic that sampled already knew."""
    values, returns, real = ranks.gathered_rows(
        batch.old_values, batch.returns, mask=batch.mask
    )
    if not real.any():
        return {"explained_variance": torch.tensor(torch.nan)}
    return {
        "explained_variance": explained_variance(
            values[real][None],
            returns[real][None],  # one critic
        )
    }
