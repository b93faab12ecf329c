"""What the algorithms on language models share: responses, updates, and a record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from course_lib.algorithms import ranks
from course_lib.algorithms.history import Record
from course_lib.algorithms.language_learner import LanguageConfig, LanguageLearner
from course_lib.kernels.arguments import require_like
from course_lib.models import LanguagePolicy, Prompts

ScoreFn = Callable[..., Tensor]
"""Called as `score_fn(tokens, mask)` on [B, T] int64 and bool, and with the prompts as
a third argument where there are any; gives [B] floats."""
Numbers = dict[str, Tensor]


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
    last_values: Tensor | None = None
    """V after the last token, [B], of the critic of that time."""
    prompts: Prompts | None = None
    """What is answered; None: nothing."""
    kept: Tensor | None = None
    """[B, T, V] bool, the tokens that sampling could draw; None: all."""

    @property
    def context(self) -> tuple[Prompts | Tensor | None, ...]:
        """What a policy is given besides the tokens, in order to score them."""
        return _context(self.prompts, self.kept)

    @property
    def kl(self) -> Tensor:
        """log pi_old - log ref, [B], summed over a response; its mean estimates KL."""
        gap = self.old_log_probs - self.ref_log_probs
        return gap.masked_fill(~self.mask, 0.0).sum(-1)


@torch.no_grad()
def collect_responses(
    learner: LanguageLearner,
    ref: LanguagePolicy,
    score_fn: ScoreFn,
    config: LanguageConfig,
    prompts: Prompts | None = None,
) -> Responses:
    """Sample a batch and have it judged by the score function and the reference.

    The log-probabilities and values of the policy are those of sampling: none is
    computed again, so none can differ.
    """
    policy = learner.sampling_policy()
    asked = config.batch_size if prompts is None else prompts
    seen = policy.generate(asked, config.length, learner.generator)
    scores = score_fn(seen.tokens, seen.mask, *([] if prompts is None else [prompts]))
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
        # The reference may say anything, also what sampling would not have drawn.
        ref_log_probs=ref.log_probs(seen.tokens, *_context(prompts, None)),
        scores=scores,
        rewards=scores - config.missing_eos_penalty * (~finished),
        finished=finished,
        entropies=seen.entropies,
        last_values=seen.last_values,
        prompts=prompts,
        kept=seen.kept,
    )


def _context(
    prompts: Prompts | None, kept: Tensor | None
) -> tuple[Prompts | Tensor | None, ...]:
    return () if prompts is None and kept is None else (prompts, kept)


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
    prompts: Prompts | None = None
    """What is answered; None: nothing."""
    kept: Tensor | None = None
    """[B, T, V] bool, the tokens that sampling could draw; None: all."""

    @property
    def context(self) -> tuple[Prompts | Tensor | None, ...]:
        """What a policy is given besides the tokens, in order to score them."""
        return _context(self.prompts, self.kept)


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
        prompts=responses.prompts,
        kept=responses.kept,
    )


_NOT_OF_TOKENS = ("ratio_max", "ess", "ptx_loss")
"""What is logged and is no mean over the tokens of a minibatch."""
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
        parts = {k: x[piece] for k, x in vars(batch).items() if x is not None}
        yield type(batch)(**parts)


def update(
    learner: LanguageLearner,
    batch: ResponseBatch,
    config: LanguageConfig,
    loss_fn: Callable[..., tuple[Tensor, Numbers]],
    weight_fn: Callable[[Tensor], Tensor | float] | None = None,
) -> Numbers:
    """All epochs over one batch; returns means over minibatches, of `ratio_max` the
    maximum.

    Args:
        learner: its policy is moved.
        batch: the responses.
        config: epochs and minibatches.
        loss_fn: called as `loss_fn(policy, minibatch)`; gives a loss and what to log.
        weight_fn: called as `weight_fn(mask)` on each minibatch; what its loss counts
            among those of several processes. None: all count alike.
    """
    seen: list[Numbers] = []
    for _ in range(config.num_epochs):
        for piece in minibatches(batch, config.minibatch_size, learner.generator):
            loss, numbers = loss_fn(learner.policy, piece)
            if weight_fn is not None:
                share = weight_fn(piece.mask)
                loss = loss * share
                # Of what is logged too, for it is averaged over the processes.
                numbers = {
                    name: x if name in _NOT_OF_TOKENS else x * share
                    for name, x in numbers.items()
                }
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
    policy: LanguagePolicy | None = field(default=None, repr=False)
    """The trained policy, when the run is over."""
    ref: LanguagePolicy | None = field(default=None, repr=False)
    """The reference, as it was all along."""
    _started: float = field(default_factory=time.process_time, repr=False)

    def add(self, responses: Responses, **numbers: Tensor | float) -> Record:
        """Log an update: its responses, and its numbers."""
        mask, count = responses.mask, len(self.records) + 1
        seen = {
            "score": float(responses.scores.mean()),
            "kl": float(responses.kl.mean()),
            "length": float(mask.sum()) / len(mask),
            "finished": float(responses.finished.float().mean()),
            "entropy": float(
                responses.entropies[mask].mean() * ranks.share_of_tokens(mask)
            ),
            **{name: float(value) for name, value in numbers.items()},
        }
        seen = ranks.average_numbers(seen, mask.device)
        record = {
            "update": count - 1.0,
            "responses": float(count * len(mask) * ranks.world_size()),
            **seen,
            "cpu_seconds": time.process_time() - self._started,
        }
        self.records.append(record)
        return record

    def resume(self, records: list[Record]) -> None:
        """Go on behind these records, on the clock too."""
        self.records = [dict(one) for one in records]
        spent = records[-1]["cpu_seconds"] if records else 0.0
        self._started = time.process_time() - spent

    def column(self, name: str) -> list[float]:
        """One number of every record, NaN where a record does not have it."""
        return [record.get(name, math.nan) for record in self.records]

    def last(self, name: str, count: int = 10) -> float:
        """The mean of a number over the last `count` updates."""
        column = self.column(name)[-count:]
        return sum(column) / len(column)
