"""A rollout turned into samples with advantages, and cut into minibatches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from course_lib.algorithms.learner import Learner
from course_lib.algorithms.rollout import Rollout
from course_lib.kernels import gae, whiten


class BatchConfig(Protocol):
    """What the config of an algorithm that works on batches holds for them."""

    @property
    def gamma(self) -> float: ...
    @property
    def lam(self) -> float: ...
    @property
    def bootstrap_truncated(self) -> bool: ...
    @property
    def normalize_advantages(self) -> str: ...
    @property
    def minibatch_size(self) -> int: ...


@dataclass(frozen=True)
class Batch:
    """The steps of a rollout as samples, [S, N, ...]; a minibatch is one as well."""

    observations: Tensor
    """[S, N, O]."""
    actions: Tensor
    """[S, N] int64, or [S, N, D]."""
    old_log_probs: Tensor
    """log pi_old(a | s), [S, N], of the policy that sampled."""
    old_values: Tensor
    """V(s) at the time of the rollout, [S, N]."""
    advantages: Tensor
    """[S, N]."""
    returns: Tensor
    """What the critic is to learn, [S, N]: advantages + old_values."""


def make_batch(
    learner: Learner,
    rollout: Rollout,
    config: BatchConfig,
    advantage_fn: Callable[..., tuple[Tensor, Tensor]] = gae,
) -> Batch:
    """Judge the rollout with the policy and the critic that sampled it."""
    observations, actions = rollout.observations, rollout.actions
    values = learner.values(observations)  # [S, B, T]
    ended = rollout.terminated
    if not config.bootstrap_truncated:
        ended = ended | rollout.truncated
    advantages, returns = advantage_fn(
        rollout.rewards.flatten(0, 1),
        values.flatten(0, 1),
        learner.values(rollout.next_observations).flatten(0, 1),
        terminated=ended.flatten(0, 1),
        truncated=rollout.truncated.flatten(0, 1),
        gamma=config.gamma,
        lam=config.lam,
    )
    with torch.no_grad():
        policy = learner.agent.policy(observations.flatten(1, 2))
        old_log_probs = policy.log_probs(actions.flatten(1, 2))
    batch = Batch(
        observations=observations.flatten(1, 2),
        actions=actions.flatten(1, 2),
        old_log_probs=old_log_probs,
        old_values=values.flatten(1),
        advantages=advantages.view_as(values).flatten(1),
        returns=returns.view_as(values).flatten(1),
    )
    if config.normalize_advantages == "batch":
        batch = replace(batch, advantages=whiten(batch.advantages, dim=-1))
    return batch


def minibatches(
    batch: Batch, config: BatchConfig, generators: list[torch.Generator]
) -> Iterator[Batch]:
    """The batch in a new order, in pieces; one order for all of its tensors.

    With `normalize_advantages="minibatch"` each piece's advantages have mean 0 and
    variance 1.
    """
    size = batch.returns.shape[1]
    device = batch.returns.device
    orders = [torch.randperm(size, generator=g, device=device) for g in generators]
    order = torch.stack(orders)  # [S, N]

    def shuffled(x: Tensor) -> Tensor:
        places = order.view(*order.shape, *[1] * (x.dim() - 2))
        return torch.take_along_dim(x, places, dim=1)

    yield from in_pieces(Batch(*map(shuffled, vars(batch).values())), config)


def in_pieces(batch: Batch, config: BatchConfig) -> Iterator[Batch]:
    """The batch as it stands, `minibatch_size` steps of each agent at a time."""
    size = config.minibatch_size
    if config.normalize_advantages == "minibatch":
        batch = replace(batch, advantages=_whitened_in_pieces(batch.advantages, size))
    pieces = (one.split(size, dim=1) for one in vars(batch).values())
    for piece in zip(*pieces, strict=True):
        yield Batch(*piece)


def _whitened_in_pieces(x: Tensor, size: int) -> Tensor:
    """Each piece of [S, N] by itself, all whole ones in one call."""
    count = x.shape[1] // size
    pieces = x[:, : count * size].unflatten(1, (count, size))
    last = x[:, count * size :]  # fewer than `size`, perhaps none
    return torch.cat((whiten(pieces, dim=-1).flatten(1), whiten(last, dim=-1)), dim=1)
