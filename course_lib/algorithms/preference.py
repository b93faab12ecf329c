"""Learning from comparisons: pairs, a reward model on them, and DPO without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from course_lib.algorithms.history import Callback, Record
from course_lib.algorithms.language_learner import LanguageLearner, ModelLearner
from course_lib.algorithms.responses import LanguageHistory, Numbers, ScoreFn
from course_lib.algorithms.supervised import SupervisedRun, fit
from course_lib.kernels import bradley_terry_loss, masked_sum
from course_lib.kernels.arguments import (
    require_fields,
    require_not_negative,
    require_positive_int,
    require_price,
)
from course_lib.models import GRULanguageModel, LanguagePolicy, Prompts, RewardModel

PairLoss = Callable[[Tensor, Tensor], tuple[Tensor, Numbers]]


@dataclass(frozen=True)
class PreferencePairs:
    """N pairs of responses, and which of the two was preferred."""

    chosen: Tensor
    """[N, T] int64."""
    chosen_mask: Tensor
    """[N, T] bool, the real tokens."""
    rejected: Tensor
    """[N, T] int64."""
    rejected_mask: Tensor
    """[N, T] bool."""
    prompts: Prompts | None = None
    """What both of a pair answer; None: nothing."""

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, rows: Tensor | slice) -> PreferencePairs:
        parts = {k: x[rows] for k, x in vars(self).items() if x is not None}
        return PreferencePairs(**parts)

    def both(self) -> tuple[Tensor, Tensor, *tuple[Prompts, ...]]:
        """Tokens and mask of all chosen and then all rejected, [2 N, T], and prompts
        where there are any."""
        tokens = torch.cat((self.chosen, self.rejected))
        mask = torch.cat((self.chosen_mask, self.rejected_mask))
        if self.prompts is None:
            return tokens, mask
        twice = torch.arange(len(self), device=tokens.device).repeat(2)
        return tokens, mask, self.prompts[twice]


def sample_pairs(
    ref: LanguagePolicy,
    score_fn: ScoreFn,
    num_pairs: int,
    length: int,
    *,
    scale: float = 10.0,
    generator: torch.Generator,
    prompts: Prompts | None = None,
    ties: bool = True,
    batch_size: int | None = None,
) -> PreferencePairs:
    """Let a noisy judge compare responses of the reference (eq-preference):

        P(y preferred to y') = sigma(scale * (score(y) - score(y')))

    Equal scores are a coin's toss. With scale = 1 / beta, the policy that DPO fits to
    the pairs is pi* of the score at that beta.

    Args:
        ref: writes both responses of a pair, independently.
        score_fn: the judge's own opinion.
        num_pairs: N.
        length: T.
        scale: nats of log-odds for one unit of score, at least 0.
        generator: on the model's device.
        prompts: N of them, each answered twice; None: responses to nothing.
        ties: without, pairs of equal scores are left out, and fewer than N come back.
            They teach nothing but noise where scores are only right and wrong.
        batch_size: pairs that are sampled at once, where all of them need more memory
            than there is; None: all.

    Raises:
        TypeError, ValueError: a number below 1, a scale below 0, not N prompts,
            nothing but ties where they are left out.

    Source: Bradley and Terry (1952).
    """
    count = require_positive_int("num_pairs", num_pairs)
    scale = require_not_negative("scale", scale)
    if prompts is not None and len(prompts) != count:
        raise ValueError(f"prompts must be {count}, got {len(prompts)}")
    at_once = count if batch_size is None else batch_size
    drawn: list[tuple[Tensor, Tensor, Tensor]] = []
    for some in torch.arange(count, device=generator.device).split(
        require_positive_int("batch_size", at_once)
    ):
        if prompts is None:
            seen = ref.generate(2 * len(some), length, generator)
            scores = score_fn(seen.tokens, seen.mask)
        else:
            twice = prompts[some.repeat(2)]
            seen = ref.generate(twice, length, generator)
            scores = score_fn(seen.tokens, seen.mask, twice)
        drawn.append((seen.tokens, seen.mask, scores))
    tokens, mask = _joined(drawn)  # [2 N, T], first all of one side
    scores = torch.cat([one[2].view(2, -1) for one in drawn], 1)
    chance = (scale * (scores[0] - scores[1])).sigmoid()  # [N]
    coin = torch.rand(count, generator=generator, device=chance.device)
    first = coin < chance
    rows = torch.arange(count, device=chance.device)
    chosen = torch.where(first, rows, rows + count)
    rejected = torch.where(first, rows + count, rows)
    pairs = PreferencePairs(
        tokens[chosen],
        mask[chosen],
        tokens[rejected],
        mask[rejected],
        prompts,
    )
    if ties:
        return pairs
    apart = rows[scores[0] != scores[1]]
    if not len(apart):
        raise ValueError(f"ties must be kept where all {count} pairs are ties")
    return pairs[apart]


def _joined(drawn: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, Tensor]:
    """Tokens and mask of several drawings, each of both sides of its pairs."""
    width = max(tokens.shape[1] for tokens, *_ in drawn)
    sides = []
    for place in (0, 1):
        padded = [pad(one[place], (0, width - one[place].shape[1])) for one in drawn]
        sides.append(torch.cat([x.view(2, -1, width) for x in padded], 1).flatten(0, 1))
    return sides[0], sides[1]


@dataclass(frozen=True)
class RewardModelConfig:
    """What the training of a reward model depends on, besides its pairs."""

    num_epochs: int = 4
    """How often all pairs are gone through."""
    minibatch_size: int = 256
    """Pairs in each gradient step."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    anneal_learning_rate: bool = False
    """Let the step size fall to 0, epoch by epoch."""
    max_grad_norm: float = float("inf")
    """A longer gradient is scaled down to this length."""
    seed: int = 0
    """Of the order of the pairs."""

    def __post_init__(self) -> None:
        require_fields(self, require_positive_int, "num_epochs", "minibatch_size")
        require_price("learning_rate", self.learning_rate)
        require_not_negative("max_grad_norm", self.max_grad_norm)


def train_reward_model(
    language_model: LanguagePolicy,
    pairs: PreferencePairs,
    config: RewardModelConfig = RewardModelConfig(),
    *,
    loss_fn: PairLoss = bradley_terry_loss,
    run: SupervisedRun | None = None,
    callback: Callback | None = None,
    progress: bool | str = False,
) -> tuple[nn.Module, list[Record]]:
    """Fit a reward model to comparisons by maximum likelihood.

    Args:
        language_model: where the trunk comes from; it is copied.
        pairs: the comparisons.
        config: everything else.
        loss_fn: called as `loss_fn(chosen, rejected)` on rewards [M] each.
        run: a run to go on with, of any reward model; None: a new one of the GRU's.
        callback: is given the record of each epoch.
        progress: show a progress bar; a text is what it says.

    Returns:
        The model, frozen, and a record for each epoch: `loss`, `accuracy`, `margin`
        and `grad_norm`, means over the epoch's steps.

    Source: Ouyang et al. (2022), equation 1.
    """
    if run is None:
        if not isinstance(language_model, GRULanguageModel):
            raise TypeError(
                "language_model must be a GRULanguageModel where no run is given, got "
                f"{type(language_model).__name__}"
            )
        run = SupervisedRun(ModelLearner(RewardModel(language_model), config))
    model = run.learner.model

    def pair_loss(some: PreferencePairs) -> tuple[Tensor, Numbers]:
        chosen, rejected = _both(model, some)
        return loss_fn(chosen, rejected)

    records = fit(
        run,
        pairs,
        config,
        pair_loss,
        callback=callback,
        progress=progress,
        name="rewards",
    )
    return model.requires_grad_(False), records


def learned_score(model: nn.Module, scale: float = 10.0, zero: float = 0.0) -> ScoreFn:
    """A reward model as a score function, in the unit of the score it was taught.

    Args:
        model: its rewards are nats of log-odds.
        scale: nats for one unit of score: what the pairs were labelled with.
        zero: what is added, in units of score; comparisons do not tell it.

    Raises:
        ValueError: a scale that is not above 0.
    """
    if not scale > 0:
        raise ValueError(f"scale must be above 0, got {scale}")

    @torch.no_grad()
    def score(tokens: Tensor, mask: Tensor, *prompts: Prompts) -> Tensor:
        rewards: Tensor = model(tokens, mask, *prompts)
        return rewards / scale + zero

    return score


@torch.no_grad()
def preference_accuracy(model: nn.Module, pairs: PreferencePairs) -> float:
    """The share of pairs in which the chosen one is rewarded more; a tie counts half.

    To be asked of pairs that the model was not trained on.
    """
    _, seen = bradley_terry_loss(*_both(model, pairs))
    return float(seen["accuracy"])


@dataclass(frozen=True)
class DPOConfig:
    """What a run of DPO depends on, besides its reference and its pairs."""

    beta: float = 0.1
    """The price of a nat of KL in the score's unit, if the pairs' scale is 1 / beta."""
    scale: float = 10.0
    """Nats of log-odds for one unit of score, as the pairs were labelled."""
    num_epochs: int = 2
    """How often all pairs are gone through."""
    minibatch_size: int = 256
    """Pairs in each gradient step."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    anneal_learning_rate: bool = False
    """Let the step size fall to 0, epoch by epoch."""
    max_grad_norm: float = float("inf")
    """A longer gradient is scaled down to this length."""
    seed: int = 0
    """Of the order of the pairs."""


def dpo(
    ref: LanguagePolicy,
    pairs: PreferencePairs,
    config: DPOConfig = DPOConfig(),
    *,
    loss_fn: PairLoss = bradley_terry_loss,
    callback: Callback | None = None,
    progress: bool = False,
) -> LanguageHistory:
    """Train the policy on comparisons directly, without rewards or sampling (eq-dpo):

        L = -E log sigma( h(chosen) - h(rejected) ),
        h(y) = scale beta log( pi(y) / ref(y) )

    pi* = ref exp(score / beta) / Z turned round says that the score is
    beta log(pi* / ref) up to a constant, which the difference of a pair removes.
    scale beta log(pi / ref) is then what a reward model would have learnt.

    Args:
        ref: the reference, and what the policy starts as; it is copied.
        pairs: the comparisons, of responses of the reference.
        config: everything else.
        loss_fn: called as `loss_fn(chosen, rejected)` on h [M] each.
        callback: is given the record of each epoch.
        progress: show a progress bar.

    Returns:
        LanguageHistory: its records, one for each epoch, hold `loss`, `accuracy`,
        `margin` and `grad_norm`.

    Source: Rafailov et al. (2023), equation 7, where scale beta is called beta.
    """
    history = LanguageHistory(config.seed)
    learner, ref = LanguageLearner(ref, config), ref.frozen()
    policy, factor = learner.policy, config.scale * config.beta

    def pair_loss(some: PreferencePairs) -> tuple[Tensor, Numbers]:
        tokens, mask, *context = some.both()
        gap = policy.log_probs(tokens, *context) - ref.log_probs(tokens, *context)
        chosen, rejected = (factor * masked_sum(gap, mask, -1)).chunk(2)
        return loss_fn(chosen, rejected)

    history.records = fit(
        SupervisedRun(learner),
        pairs,
        config,
        pair_loss,
        callback=callback,
        progress=progress,
        name="DPO",
    )
    history.policy, history.ref = policy, ref
    return history


def _both(model: nn.Module, pairs: PreferencePairs) -> tuple[Tensor, Tensor]:
    """Rewards of the chosen and the rejected, in one pass."""
    chosen, rejected = model(*pairs.both()).chunk(2)
    return chosen, rejected
