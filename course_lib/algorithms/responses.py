"""What the algorithms on language models share: sampling, learning, and a record."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from course_lib.algorithms.history import Record
from course_lib.kernels.arguments import require_like
from course_lib.models import Adam, FlatParameters, GRULanguageModel

ScoreFn = Callable[[Tensor, Tensor], Tensor]
"""Called as `score_fn(tokens, mask)` on [B, T] int64 and bool; gives [B] floats."""
Numbers = dict[str, Tensor]


class LearnerConfig(Protocol):
    """What the config of everything that is trained here holds."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def max_grad_norm(self) -> float: ...
    @property
    def seed(self) -> int: ...


class LanguageConfig(LearnerConfig, Protocol):
    """What the config of every algorithm that samples responses holds."""

    @property
    def num_updates(self) -> int: ...
    @property
    def anneal_learning_rate(self) -> bool: ...
    @property
    def length(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def num_epochs(self) -> int: ...
    @property
    def minibatch_size(self) -> int: ...
    @property
    def missing_eos_penalty(self) -> float: ...
    @property
    def staleness(self) -> int: ...


@dataclass(frozen=True)
class Responses:
    """B sampled responses and what three models say about them; a constant."""

    tokens: Tensor
    """[B, T] int64."""
    mask: Tensor
    """[B, T] bool, the real tokens."""
    old_log_probs: Tensor
    """[B, T], of the policy that sampled, as it was then."""
    old_values: Tensor
    """V of the prefix before each token, [B, T], of the critic of that time."""
    ref_log_probs: Tensor
    """[B, T], of the frozen reference: what KL is measured from, never the ratio."""
    scores: Tensor
    """[B], what the score function gave."""
    rewards: Tensor
    """[B], the scores, less the penalty where EOS is missing."""
    finished: Tensor
    """[B] bool, ended by EOS; all, where there is none."""
    entropies: Tensor
    """[B, T] nats, of the distributions that were sampled from."""

    @property
    def kl(self) -> Tensor:
        """log pi_old - log ref, [B], summed over a response; its mean estimates KL."""
        gap = self.old_log_probs - self.ref_log_probs
        return gap.masked_fill(~self.mask, 0.0).sum(-1)


class ModelLearner:
    """A model with its optimizer and random numbers.

    Args:
        model: is trained in place.
        config: the numbers of the optimizer, and the seed.
    """

    def __init__(self, model: nn.Module, config: LearnerConfig) -> None:
        self.parameters = FlatParameters(model, stacked=False)
        self.optimizer = Adam(self.parameters, config.learning_rate)
        self.max_grad_norm = config.max_grad_norm
        # Not the numbers that the first weights were drawn from; torch reads 32 bits.
        self.generator = torch.Generator(self.parameters.values.device)
        self.generator.manual_seed(config.seed + 2**31)

    def step(self, loss: Tensor) -> Tensor:
        """Move the parameters down the gradient; return its norm, [], unclipped."""
        self.parameters.zero_gradients()
        loss.backward()
        norm = self.parameters.clip_gradients(self.max_grad_norm)[0]
        self.optimizer.step()
        return norm


class LanguageLearner(ModelLearner):
    """A policy with its critic that learns, and the older one that samples.

    Args:
        reference: what the policy is before it learns; it is copied.
        config: the numbers of the optimizer, and the seed.
        staleness: how many updates old the sampling policy is.
    """

    def __init__(
        self,
        reference: GRULanguageModel,
        config: LearnerConfig,
        *,
        staleness: int = 0,
    ) -> None:
        self.policy = deepcopy(reference).requires_grad_(True)
        super().__init__(self.policy, config)
        self._past: deque[Tensor] = deque(maxlen=staleness + 1)
        self._behind = self.policy
        if staleness:
            self._behind = deepcopy(self.policy)
            self._old_parameters = FlatParameters(self._behind, stacked=False)

    def anneal(self, done: int, config: LanguageConfig) -> float:
        """Set the step size for the update after `done` others, and return it."""
        rate = config.learning_rate
        if config.anneal_learning_rate:
            rate *= 1 - done / config.num_updates
        self.optimizer.learning_rate = rate
        return rate

    @torch.no_grad()
    def sampling_policy(self) -> GRULanguageModel:
        """The policy as it was `staleness` updates ago, or at the start before that.

        To be asked once for each update.
        """
        if self._behind is not self.policy:
            self._past.append(self.parameters.values.detach().clone())
            self._old_parameters.values.copy_(self._past[0])
        return self._behind


@torch.no_grad()
def collect_responses(
    learner: LanguageLearner,
    ref: GRULanguageModel,
    score_fn: ScoreFn,
    config: LanguageConfig,
) -> Responses:
    """Sample a batch and have it judged by the score function and the reference.

    The log-probabilities and values of the policy are those of sampling: none is
    computed again, so none can differ.
    """
    policy = learner.sampling_policy()
    seen = policy.generate(config.batch_size, config.length, learner.generator)
    scores = score_fn(seen.tokens, seen.mask)
    require_like("scores", scores, (config.batch_size,), seen.tokens)
    scores = scores.detach().to(seen.log_probs)
    finished = torch.ones_like(scores, dtype=torch.bool)
    if policy.eos_token is not None:
        finished = ((seen.tokens == policy.eos_token) & seen.mask).any(-1)
    return Responses(
        tokens=seen.tokens,
        mask=seen.mask,
        old_log_probs=seen.log_probs,
        old_values=seen.values,
        ref_log_probs=ref.log_probs(seen.tokens),
        scores=scores,
        rewards=scores - config.missing_eos_penalty * (~finished),
        finished=finished,
        entropies=seen.entropies,
    )


@dataclass(frozen=True)
class ResponseBatch:
    """Responses with advantages; a minibatch is one as well."""

    tokens: Tensor
    """[B, T] int64."""
    mask: Tensor
    """[B, T] bool, the tokens that are learnt from."""
    old_log_probs: Tensor
    """[B, T], of the policy that sampled."""
    ref_log_probs: Tensor
    """[B, T], of the frozen reference."""
    old_values: Tensor
    """[B, T], of the critic at the time of sampling."""
    advantages: Tensor
    """[B, T]."""
    returns: Tensor
    """What the critic is to learn, [B, T]."""


def response_batch(
    responses: Responses, advantages: Tensor, returns: Tensor | None = None
) -> ResponseBatch:
    """Put responses and advantages together; without a critic there are no returns."""
    return ResponseBatch(
        tokens=responses.tokens,
        mask=responses.mask,
        old_log_probs=responses.old_log_probs,
        ref_log_probs=responses.ref_log_probs,
        old_values=responses.old_values,
        advantages=advantages,
        returns=torch.zeros_like(advantages) if returns is None else returns,
    )


_Rows = TypeVar("_Rows", bound=ResponseBatch)


def minibatches(
    batch: _Rows, minibatch_size: int, generator: torch.Generator
) -> Iterator[_Rows]:
    """The responses in a new order, in pieces; one order for all of the tensors."""
    rows = len(batch.tokens)
    if minibatch_size >= rows:
        yield batch  # one piece has no order
        return
    order = torch.randperm(rows, generator=generator, device=batch.tokens.device)
    for piece in order.split(minibatch_size):
        yield type(batch)(*(x[piece] for x in vars(batch).values()))


def update(
    learner: LanguageLearner,
    batch: ResponseBatch,
    config: LanguageConfig,
    loss_fn: Callable[..., tuple[Tensor, Numbers]],
) -> Numbers:
    """All epochs over one batch; returns means over minibatches, of `ratio_max` the
    maximum.

    Args:
        learner: its policy is moved.
        batch: the responses.
        config: epochs and minibatches.
        loss_fn: called as `loss_fn(policy, minibatch)`; gives a loss and what to log.
    """
    seen: list[Numbers] = []
    for _ in range(config.num_epochs):
        for piece in minibatches(batch, config.minibatch_size, learner.generator):
            loss, numbers = loss_fn(learner.policy, piece)
            numbers["grad_norm"] = learner.step(loss)
            seen.append(numbers)
    columns = {name: torch.stack([one[name] for one in seen]) for name in seen[0]}
    return {
        name: column.max() if name == "ratio_max" else column.mean()
        for name, column in columns.items()
    }


@dataclass
class LanguageHistory:
    """What a run leaves behind: a record for each update, and the models."""

    seed: int
    records: list[Record] = field(default_factory=list)
    """One for each update."""
    policy: GRULanguageModel | None = field(default=None, repr=False)
    """The trained policy, when the run is over."""
    ref: GRULanguageModel | None = field(default=None, repr=False)
    """The reference, as it was all along."""
    _started: float = field(default_factory=time.process_time, repr=False)

    def add(self, responses: Responses, **numbers: Tensor | float) -> Record:
        """Log an update: its responses, and its numbers."""
        mask, count = responses.mask, len(self.records) + 1
        record = {
            "update": count - 1.0,
            "responses": float(count * len(mask)),
            "score": float(responses.scores.mean()),
            "kl": float(responses.kl.mean()),
            "length": float(mask.sum()) / len(mask),
            "finished": float(responses.finished.float().mean()),
            "entropy": float(responses.entropies[mask].mean()),
            **{name: float(value) for name, value in numbers.items()},
            "cpu_seconds": time.process_time() - self._started,
        }
        self.records.append(record)
        return record

    def column(self, name: str) -> list[float]:
        """One number of every record, NaN where a record does not have it."""
        return [record.get(name, math.nan) for record in self.records]

    def last(self, name: str, count: int = 10) -> float:
        """The mean of a number over the last `count` updates."""
        column = self.column(name)[-count:]
        return sum(column) / len(column)
