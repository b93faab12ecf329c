"""What PPO does about the distance it has moved: pay for it, or stop.

KL(old, new) is measured on the samples of old. The penalty puts a price on it that is
adapted from update to update; `target_kl` ends the epochs of one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from course_lib.algorithms.batch import Batch
from course_lib.algorithms.learner import Learner
from course_lib.kernels import (
    clipped_policy_loss,
    kl_estimates,
    kl_penalty_policy_loss,
)

Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]


class ClipConfig(Protocol):
    """What the clip needs to know."""

    @property
    def clip_eps(self) -> float: ...


def policy_objective(
    config: ClipConfig, price: float | None, policy_loss_fn: Loss = clipped_policy_loss
) -> Loss:
    """The policy's loss as a function of log_probs, old_log_probs and advantages."""
    if price is None:
        return functools.partial(policy_loss_fn, clip_eps=config.clip_eps)

    def penalised(
        log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        # The samples are old's, so k3 with old first estimates KL(old, new).
        kl = kl_estimates(old_log_probs, log_probs, kind="k3")
        return kl_penalty_policy_loss(
            log_probs, old_log_probs, advantages, kl, beta=price
        )

    return penalised


@torch.no_grad()
def moved(learner: Learner, batch: Batch) -> float:
    """KL(old, new) in nats over a whole batch, by the estimate that is penalised."""
    log_probs = learner.agent.policy(batch.observations).log_probs(batch.actions)
    return float(kl_estimates(batch.old_log_probs, log_probs, kind="k3").mean())


def adapted(price: float, kl: float, target: float) -> float:
    """PPO-Penalty's price of a nat for the next update.

    Args:
        price: what it was in the last one.
        kl: KL(old, new) of the last update, in nats.
        target: the KL that is wanted.

    Source: Schulman et al. (2017), section 4.
    """
    if kl > 1.5 * target:
        return price * 2
    return price / 2 if kl < target / 1.5 else price


def moved_too_far(numbers: dict[str, Tensor], target_kl: float | None) -> bool:
    """Whether a minibatch's `approx_kl` exceeds 1.5 times `target_kl`, if there is one.

    Raises:
        ValueError: the policy's loss has returned no `approx_kl`.
    """
    if target_kl is None:
        return False
    if "approx_kl" not in numbers:
        raise ValueError("target_kl needs a policy_loss_fn that returns an approx_kl")
    return bool(numbers["approx_kl"] > 1.5 * target_kl)
