"""RLHF without a critic: responses to the same prompt judge each other.

RLOO, GRPO and their relatives differ in a few choices, each an option here: the
baseline, where KL is paid for, the ratio and its clip, and how tokens are averaged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from torch import Tensor

from course_lib.algorithms import ranks
from course_lib.algorithms.history import Callback
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
    Reduction,
    clipped_policy_loss,
    effective_sample_size,
    entropy,
    entropy_bonus,
    group_relative_advantages,
    importance_weights,
    kl_estimates,
    leave_one_out_advantages,
    masked_sum,
    policy_gradient_loss,
    reduce_steps,
    token_log_probs,
)
from course_lib.kernels.arguments import (
    require_choice,
    require_fields,
    require_not_negative,
    require_positive_int,
    require_price,
)
from course_lib.models import LanguagePolicy

Loss = Callable[..., tuple[Tensor, Numbers]]
Baseline = Literal["none", "group_mean", "leave_one_out", "standardized"]


@dataclass(frozen=True)
class GroupConfig:
    """What a run without a critic depends on, besides the reference and the score."""

    num_updates: int = 150
    """Batches that are sampled and learnt from."""
    batch_size: int = 256
    """Responses in each."""
    group_size: int = 8
    """Responses that judge each other."""
    length: int = 8
    """The most tokens of a response."""
    beta: float = 0.1
    """The price of a nat of KL from the reference, in the score's unit."""
    baseline: Baseline = "leave_one_out"
    """What is subtracted from a response's reward: nothing, the mean of its group
    (which shrinks the gradient by 1 - 1/n), the mean of the others; or the group's
    mean, and then divided by its deviation (GRPO)."""
    kl: Literal["reward", "k2", "k3"] = "reward"
    """Where KL is paid for: as k1 in the reward, or by an estimate in the loss. As a
    loss k2 has the gradient of KL(pi, ref), k3 that of KL(ref, pi)."""
    clip_eps: float | None = None
    """PPO's clip; None: the plain policy gradient, which one step a batch allows."""
    ratio: Literal["token", "sequence", "geometric_mean"] = "token"
    """What is clipped: each token's ratio, their product, or its T-th root (GSPO)."""
    reduction: Reduction = "sequence_sum"
    """How tokens are averaged; "constant" divides by `length`."""
    importance: Literal["none", "per_step", "trajectory"] = "none"
    """Weigh stale samples by pi / pi_old, each token by its own or by its response's;
    only without a clip."""
    rho_max: float = 2.0
    """Where those weights are cut off: a bias, for less variance."""
    ent_coef: float = 0.0
    """The weight of the entropy, nats a token on average."""
    num_epochs: int = 1
    """How often each batch is gone through."""
    minibatch_size: int = 256
    """Responses in each gradient step; the last of an epoch has what is left over, and
    one is all of the batch where that has fewer."""
    learning_rate: float = 3e-3
    """Adam's step size."""
    anneal_learning_rate: bool = True
    """Let the step size fall to 0, in a straight line over the run."""
    max_grad_norm: float = float("inf")
    """A longer gradient is scaled down to this length."""
    missing_eos_penalty: float = 0.0
    """Taken off the score of a response that ran out of length."""
    mask_capped: bool = False
    """Learn nothing from responses that ran out of length."""
    staleness: int = 0
    """How many updates old the sampling policy is."""
    seed: int = 0
    """Of everything random in the run."""

    def __post_init__(self) -> None:
        counts = ("num_updates", "batch_size", "length", "num_epochs", "minibatch_size")
        require_fields(self, require_positive_int, *counts, "group_size")
        require_fields(self, require_price, "beta", "learning_rate")
        require_price("missing_eos_penalty", self.missing_eos_penalty)
        require_fields(self, require_not_negative, "max_grad_norm", "staleness")
        if self.clip_eps is not None and not self.clip_eps > 0:
            raise ValueError(f"clip_eps must be None or above 0, got {self.clip_eps}")
        require_choice("baseline", self.baseline, get_args(Baseline))
        require_choice("kl", self.kl, ("reward", "k2", "k3"))
        if self.group_size < 2 and self.baseline != "none":
            raise ValueError(
                f"group_size must be at least 2 with baseline={self.baseline!r}, which "
                f"compares a response with others of its group, got {self.group_size}"
            )


_PPO_LIKE = GroupConfig(clip_eps=0.2, num_epochs=4, learning_rate=1e-3)
METHODS: dict[str, GroupConfig] = {
    "reinforce": GroupConfig(baseline="none"),
    "rloo": GroupConfig(),
    "clip-rloo": replace(_PPO_LIKE, reduction="token_mean"),
    "sequence-ratio": replace(_PPO_LIKE, ratio="sequence"),
    "gspo": replace(_PPO_LIKE, ratio="geometric_mean", clip_eps=0.05),
    "grpo": replace(
        _PPO_LIKE, baseline="standardized", kl="k3", reduction="sequence_mean"
    ),
    "dr-grpo": replace(_PPO_LIKE, baseline="group_mean", kl="k2", reduction="constant"),
}
"""What people call by a name; GRPO divides by the deviation, which is a bias in the
price of KL, and averages over each response's own length; dr-grpo does neither."""


def rlhf_group(
    ref: LanguagePolicy,
    score_fn: ScoreFn,
    config: GroupConfig = GroupConfig(),
    *,
    prompt_fn: PromptFn | None = None,
    advantage_fn: Callable[[Tensor], Tensor] | None = None,
    policy_loss_fn: Loss | None = None,
    run: LanguageRun | None = None,
    callback: Callback | None = None,
    progress: bool | str = False,
) -> LanguageHistory:
    """Train a language model on a score, without a critic.

    collect -> estimate advantages -> update -> log, as `rlhf_ppo` does; what is
    maximised is the same eq-rlhf. All tokens of a response share one advantage: how
    much its reward is above those of its group.

    Args:
        ref: the reference, and what the policy starts as; it is copied.
        score_fn: called as `score_fn(tokens, mask)`, with the prompts as a third
            argument where there are any.
        config: everything else; `METHODS` has what is known by a name.
        prompt_fn: called as `prompt_fn(count, done, generator)`; gives a prompt for
            each group of a batch. None: responses to nothing.
        advantage_fn: called as `advantage_fn(rewards)` on [groups, n], in place of the
            config's baseline.
        policy_loss_fn: in place of the loss that the config asks for: with a clip
            called as `policy_loss_fn(log_probs, old_log_probs, advantages,
            clip_eps=..., mask=..., reduction=...)`, without as
            `policy_loss_fn(log_probs, weights, mask=..., reduction=...)`.
        run: a run to go on with, as for `rlhf_ppo`; None: a new one.
        callback: is given the record of each update.
        progress: show a progress bar; a text is what it says.

    Returns:
        LanguageHistory: its records hold `score`, `kl` (nats a response), `length`,
        `finished`, `entropy`, `learning_rate`, `policy_loss`, `ess` (effective sample
        size as a share of the batch), `informative` (share of groups whose advantages
        are not all 0), `grad_norm`, and what the policy's loss reports.

    Raises:
        ValueError: groups that do not fill the batch, or an importance weight beside a
            clip, which has the ratio already.

    Source: Ahmadian et al. (2024) for RLOO; Shao et al. (2024) for GRPO; Liu et al.
    (2025) for "dr-grpo"; Zheng et al. (2025), "Group sequence policy optimization".
    """
    _check(config)
    run = LanguageRun(ref, config) if run is None else run
    learner, history = run.learner, run.history
    loss_fn = functools.partial(
        group_loss, config=config, policy_loss_fn=policy_loss_fn
    )
    # Means over rows are of as many rows on each process; those over tokens are not.
    token_mean = config.reduction == "token_mean"
    weight_fn = ranks.share_of_tokens if token_mean else None
    for done in progress_bar(run.done, config.num_updates, "groups", progress):
        rate = learner.anneal(done, config)
        prompts = run.draw_prompts(prompt_fn, config, config.group_size)
        responses = collect_responses(learner, run.ref, score_fn, config, prompts)
        batch = estimate_advantages(responses, config, advantage_fn)
        numbers = update(learner, batch, config, loss_fn, weight_fn)
        informative = batch.advantages[:, 0].view(-1, config.group_size) != 0
        record = history.add(
            responses,
            learning_rate=rate,
            informative=informative.any(-1).float().mean(),
            **numbers,
        )
        if callback is not None:
            callback(len(history.records) - 1, record)
    history.policy, history.ref = learner.policy, run.ref
    return history


def estimate_advantages(
    responses: Responses,
    config: GroupConfig,
    advantage_fn: Callable[[Tensor], Tensor] | None = None,
) -> ResponseBatch:
    """Compare each response's reward with its group's; the same for all its tokens."""
    rewards = responses.rewards
    if config.kl == "reward":
        rewards = rewards - config.beta * responses.kl
    groups = rewards.view(-1, config.group_size)
    if advantage_fn is not None:
        advantages = advantage_fn(groups)
    elif config.baseline == "leave_one_out":
        advantages = leave_one_out_advantages(groups)
    elif config.baseline == "none":
        advantages = groups
    else:
        scale = config.baseline == "standardized"
        advantages = group_relative_advantages(groups, scale=scale)
    mask = responses.mask
    if config.mask_capped:
        mask = mask & responses.finished.unsqueeze(-1)
    broadcast = advantages.reshape(-1, 1).expand(mask.shape)  # [B, T]
    return replace(response_batch(responses, broadcast), mask=mask)


def group_loss(
    policy: LanguagePolicy,
    batch: ResponseBatch,
    *,
    config: GroupConfig,
    policy_loss_fn: Loss | None = None,
) -> tuple[Tensor, Numbers]:
    """The loss on responses that the config asks for, and what to log."""
    old, mask = batch.old_log_probs, batch.mask
    bonus: Tensor | float = 0.0
    if config.ent_coef:
        logits, _ = policy(batch.tokens, *batch.context)
        log_probs = token_log_probs(logits, batch.tokens)
        bonus, _ = entropy_bonus(entropy(logits), mask=mask)
    else:
        log_probs = policy.log_probs(batch.tokens, *batch.context)
    if config.clip_eps is None:
        loss_fn = policy_loss_fn or policy_gradient_loss
        weights = batch.advantages * _correction(log_probs.detach(), batch, config)
        policy_loss, numbers = loss_fn(
            log_probs, weights, mask=mask, **_averaging(config)
        )
    else:
        loss_fn = policy_loss_fn or clipped_policy_loss
        if config.ratio == "token":
            averaging, steps = _averaging(config), (log_probs, old, batch.advantages)
            real = mask
        else:
            # A response is one action with one ratio, [B, 1]: nothing to average over.
            averaging, real = {"reduction": "sequence_sum"}, mask.any(-1, keepdim=True)
            whole_new = _joint(log_probs, mask, config)
            steps = (whole_new, _joint(old, mask, config), batch.advantages[:, :1])
        policy_loss, numbers = loss_fn(
            *steps, clip_eps=config.clip_eps, mask=real, **averaging
        )
    loss = policy_loss - config.ent_coef * bonus
    if config.kl != "reward":
        each = kl_estimates(log_probs, batch.ref_log_probs, config.kl)
        kl_loss = reduce_steps(each, mask, **_averaging(config))
        loss = loss + config.beta * kl_loss
        numbers["kl_loss"] = kl_loss.detach()
    whole = importance_weights(log_probs.detach(), old, mask=mask, kind="trajectory")
    return loss, numbers | {
        "policy_loss": policy_loss.detach(),
        "ess": effective_sample_size(whole) / len(whole),
    }


def _averaging(config: GroupConfig) -> dict[str, Any]:
    if config.reduction == "constant":
        return {"reduction": "constant", "constant_length": config.length}
    return {"reduction": config.reduction}


def _joint(log_probs: Tensor, mask: Tensor, config: GroupConfig) -> Tensor:
    """log of a response's probability, [B, 1], or that of a token of it on average."""
    total = masked_sum(log_probs, mask, -1)
    if config.ratio == "geometric_mean":
        total = total / mask.sum(-1).clamp(min=1)
    return total.unsqueeze(-1)


def _correction(
    log_probs: Tensor, batch: ResponseBatch, config: GroupConfig
) -> Tensor | float:
    """Truncated importance weights, a constant: [B, T], or one for a response."""
    if config.importance == "none":
        return 1.0
    weights = importance_weights(
        log_probs, batch.old_log_probs, mask=batch.mask, kind=config.importance
    ).clamp(max=config.rho_max)
    return weights if config.importance == "per_step" else weights.unsqueeze(-1)


def _check(config: GroupConfig) -> None:
    if config.batch_size % config.group_size:
        raise ValueError(
            f"group_size must divide batch_size={config.batch_size}, got "
            f"{config.group_size}"
        )
    if config.importance != "none" and config.clip_eps is not None:
        raise ValueError(
            "importance must be 'none' beside a clip, whose ratio is the same "
            f"correction; got {config.importance!r}"
        )
