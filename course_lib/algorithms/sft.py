"""Supervised fine-tuning: make the written answers likely."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor

from course_lib.algorithms.history import Callback
from course_lib.algorithms.language_learner import ModelLearner
from course_lib.algorithms.supervised import SupervisedRun, fit
from course_lib.kernels import pretraining_loss
from course_lib.kernels.arguments import (
    require_fields,
    require_not_negative,
    require_positive_int,
    require_price,
)
from course_lib.models import LanguagePolicy, Prompts


@dataclass(frozen=True)
class Demonstrations:
    """N prompts and an answer to each."""

    prompts: Prompts
    """What is asked."""
    tokens: Tensor
    """[N, T] int64, the answers, EOS among them; anything where masked."""
    mask: Tensor
    """[N, T] bool, the real tokens."""

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Tensor) -> Demonstrations:
        return Demonstrations(self.prompts[rows], self.tokens[rows], self.mask[rows])


@dataclass(frozen=True)
class SFTConfig:
    """What supervised fine-tuning depends on, besides its model and its answers."""

    num_epochs: int = 20
    """How often all answers are gone through."""
    minibatch_size: int = 64
    """Answers in each gradient step."""
    learning_rate: float = 1e-3
    """Adam's step size."""
    anneal_learning_rate: bool = False
    """Let the step size fall to 0, epoch by epoch."""
    max_grad_norm: float = 1.0
    """A longer gradient is scaled down to this length."""
    seed: int = 0
    """Of the order of the answers."""

    def __post_init__(self) -> None:
        require_fields(self, require_positive_int, "num_epochs", "minibatch_size")
        require_price("learning_rate", self.learning_rate)
        require_not_negative("max_grad_norm", self.max_grad_norm)


def sft(
    policy: LanguagePolicy,
    demonstrations: Demonstrations,
    config: SFTConfig = SFTConfig(),
    *,
    run: SupervisedRun | None = None,
    callback: Callback | None = None,
    progress: bool | str = False,
) -> SupervisedRun:
    """Fit a policy to written answers by maximum likelihood (eq-sft):

        L = -E[ log pi(token | prompt, tokens before) ]  over the answers' tokens

    The prompts are read and not learnt; EOS is learnt, for without it no answer ends.

    Args:
        policy: where the run begins; it is copied.
        demonstrations: prompts and answers.
        config: everything else.
        run: a run to go on with; None: a new one. A callback may set its `stopped`.
        callback: is given the record of each epoch.
        progress: show a progress bar; a text is what it says.

    Returns:
        SupervisedRun: its `learner.model` is the fitted policy; its records hold
        `loss` (nats a token), `perplexity` and `grad_norm`.

    Source: Ouyang et al. (2022), section 3.5, "Supervised fine-tuning".
    """
    if run is None:
        begin = deepcopy(policy).requires_grad_(True)
        run = SupervisedRun(ModelLearner(begin, config))
    model = run.learner.model

    def loss_fn(some: Demonstrations) -> tuple[Tensor, dict[str, Tensor]]:
        tokens = some.tokens.masked_fill(~some.mask, 0)
        logits, _ = model(tokens, some.prompts)
        return pretraining_loss(logits, tokens, some.mask)

    fit(
        run,
        demonstrations,
        config,
        loss_fn,
        callback=callback,
        progress=progress,
        name="SFT",
    )
    return run
