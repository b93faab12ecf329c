"""Problems as prompts: drawn for a batch, scored by the verifier, shown as examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from course_lib.algorithms.sft import Demonstrations
from course_lib.envs import CharacterTokenizer, Problem, verifier
from course_lib.kernels.arguments import require_fraction
from course_lib.models import LanguagePolicy, Prompts


class PromptSource:
    """Problems in levels from easy to hard, as a policy reads and answers them.

    Calling it draws prompts, which makes it the `prompt_fn` of `rlhf_ppo` and
    `rlhf_group`; its `score` is their `score_fn`.

    Args:
        levels: the problems of each level; at least one in each.
        tokenizer: writes all of them.
        curriculum: the share of a run by which all levels are open; the first is from
            the start, the others one after another. 0: all of them at once.
        format_bonus: see `verifier.reward`.
        device: where the prompts are wanted.

    Raises:
        ValueError: an empty level, a character that is not in the alphabet, a share
            outside [0, 1].
    """

    def __init__(
        self,
        levels: Sequence[Sequence[Problem]],
        tokenizer: CharacterTokenizer,
        *,
        curriculum: float = 0.0,
        format_bonus: float = 0.0,
        device: torch.device | str = "cpu",
    ) -> None:
        if not levels or not all(levels):
            raise ValueError("levels must each hold a problem, got none in one")
        self.problems = [one for level in levels for one in level]
        self.tokenizer, self.format_bonus = tokenizer, format_bonus
        self.curriculum = require_fraction("curriculum", curriculum)
        self.device = torch.device(device)
        self._ends = torch.tensor([len(level) for level in levels]).cumsum(0).tolist()
        self._texts = [self._encoded(one, "question") for one in self.problems]

    def __len__(self) -> int:
        return len(self.problems)

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest question."""
        return max(map(len, self._texts))

    @property
    def longest_answer(self) -> int:
        """Tokens of the longest written answer, EOS among them."""
        return max(len(one.answer) for one in self.problems) + 1

    def open_problems(self, done: float) -> int:
        """How many problems are drawn from when that share of the run is done."""
        later = len(self._ends) - 1
        if self.curriculum > 0:
            later = min(later, int(done / self.curriculum * later))
        return int(self._ends[later])

    def __call__(self, count: int, done: float, generator: torch.Generator) -> Prompts:
        """Prompts of so many open problems, each drawn with equal chance."""
        rows = torch.randint(
            self.open_problems(done),
            (count,),
            generator=generator,
            device=generator.device,
        )
        return self.prompts(rows.cpu())

    def prompts(self, rows: Tensor) -> Prompts:
        """The problems of those rows, [B] int64."""
        texts = [self._texts[row] for row in rows.tolist()]
        return Prompts.padded(texts, rows).to(self.device)

    def texts(self, tokens: Tensor, mask: Tensor) -> list[str]:
        """What responses [B, T] say, without EOS and what is behind it."""
        return [
            self.tokenizer.decode(row[real].tolist())
            for row, real in zip(tokens.cpu(), mask.cpu(), strict=True)
        ]

    def score(self, tokens: Tensor, mask: Tensor, prompts: Prompts) -> Tensor:
        """The verifier's reward of each response, [B]."""
        golds = [self.problems[row].gold for row in prompts.rows.tolist()]
        rewards = [
            verifier.reward(text, gold, format_bonus=self.format_bonus)
            for text, gold in zip(self.texts(tokens, mask), golds, strict=True)
        ]
        return torch.tensor(rewards, device=tokens.device)

    def _encoded(
        self, problem: Problem, part: Literal["question", "answer"]
    ) -> list[int]:
        try:
            return self.tokenizer.encode(getattr(problem, part))
        except ValueError as error:
            where = problem.place or f"problem {problem.question!r}"
            raise ValueError(f"{where}, {part}: {error}") from None

    def demonstrations(self) -> Demonstrations:
        """Every problem with its written answer and EOS."""
        rows = torch.arange(len(self))
        end, width = self.tokenizer.eos_token, self.longest_answer
        tokens = torch.full((len(self), width), end)
        lengths = torch.empty(len(self), 1, dtype=torch.int64)
        for row, one in enumerate(self.problems):
            answer = [*self._encoded(one, "answer"), end]
            tokens[row, : len(answer)] = torch.tensor(answer)
            lengths[row] = len(answer)
        mask = torch.arange(width) < lengths
        return Demonstrations(
            self.prompts(rows), tokens.to(self.device), mask.to(self.device)
        )


@torch.no_grad()
def greedy_accuracy(
    policy: LanguagePolicy, source: PromptSource, length: int, *, batch_size: int = 512
) -> float:
    """The share of all problems whose likeliest response is right.

    Args:
        policy: answers with a token at a time, the likeliest of each.
        source: the problems, held out from training.
        length: the most tokens of a response.
        batch_size: responses at once.
    """
    right = 0
    for rows in torch.arange(len(source)).split(batch_size):
        seen = policy.generate(source.prompts(rows), length, None)
        for text, row in zip(
            source.texts(seen.tokens, seen.mask), rows.tolist(), strict=True
        ):
            right += verifier.is_right(text, source.problems[row].gold)
    return right / len(source)
