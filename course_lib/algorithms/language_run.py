"""A run of RLHF that can be put down and taken up again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.algorithms.history import Record
from course_lib.algorithms.language_learner import LanguageConfig, LanguageLearner
from course_lib.algorithms.responses import LanguageHistory
from course_lib.models import LanguagePolicy, Prompts

PromptFn = Callable[[int, float, torch.Generator], Prompts]
"""Called as `prompt_fn(count, done, generator)`, with the share of the run that is
done; gives so many prompts."""


class LanguageRun:
    """A run as far as it has come: all that is needed to go on from there.

    Args:
        ref: the reference, and what the policy starts as; it is copied.
        config: of the algorithm.
    """

    def __init__(self, ref: LanguagePolicy, config: LanguageConfig) -> None:
        self.learner = LanguageLearner(ref, config, staleness=config.staleness)
        self.ref = ref.frozen()
        self.history = LanguageHistory(config.seed)
        self.beta = config.beta
        """The price of a nat for the next update."""

    @property
    def done(self) -> int:
        """How many updates were made."""
        return len(self.history.records)

    @property
    def records(self) -> list[Record]:
        """One for each update."""
        return self.history.records

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and names only, to be written to a file."""
        return {
            "learner": self.learner.state_dict(),
            "ref": self.ref.state_dict(),
            "beta": self.beta,
            "records": self.history.records,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` said, in a run of the same config."""
        self.learner.load_state_dict(state["learner"])
        self.ref.load_state_dict(state["ref"])
        self.beta = state["beta"]
        self.history.resume(state["records"])

    def draw_prompts(
        self, prompt_fn: PromptFn | None, config: LanguageConfig, group_size: int = 1
    ) -> Prompts | None:
        """The next batch's prompts, each for `group_size` responses in a row."""
        if prompt_fn is None:
            return None
        count, share = config.batch_size // group_size, self.done / config.num_updates
        prompts = prompt_fn(count, share, self.learner.generator)
        if len(prompts) != count:
            raise ValueError(f"prompt_fn must give {count} prompts, got {len(prompts)}")
        rows = torch.arange(count, device=prompts.tokens.device)
        return prompts[rows.repeat_interleave(group_size)]
