"""What is asked of a language model: problems, and how they are split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from course_lib.algorithms import PromptSource
from course_lib.envs import (
    ARITHMETIC,
    LEVELS,
    PRINTABLE,
    CharacterTokenizer,
    arithmetic_problems,
    read_problems,
    split,
    word_problems,
)
from course_lib.kernels.arguments import (
    require_choice,
    require_fraction,
)
from course_lib.models import TransformerConfig


@dataclass(frozen=True)
class TaskConfig:
    """What is asked."""

    problems: Literal["arithmetic", "words", "files"] = "arithmetic"
    """Sums of the `levels`, the course's own word problems, or two files."""
    levels: tuple[str, ...] = ("add-2-1",)
    """Of arithmetic, from easy to hard: add-1, add-sub-1, times-1, add-2-1, add-2-2."""
    held_out: float = 0.2
    """The share of arithmetic that is kept for testing."""
    split_seed: int = 0
    """Which problems these are. Choose settings with one split, and measure what they
    come to with another."""
    train_file: str | None = None
    """JSON lines in GSM8K's format, for problems=files."""
    test_file: str | None = None
    """The same, held out."""
    alphabet: Literal["auto", "arithmetic", "printable"] = "auto"
    """The characters that have a token: those of arithmetic, or all of ASCII. auto:
    arithmetic has its own, all others ASCII. A run goes on from one with the same."""
    curriculum: float = 0.0
    """The share of a run by which all levels are open; 0: from the start."""
    format_bonus: float = 0.0
    """Paid for an answer in one <answer> block, right or wrong."""

    def __post_init__(self) -> None:
        require_choice("problems", self.problems, ("arithmetic", "words", "files"))
        require_choice("alphabet", self.alphabet, ("auto", "arithmetic", "printable"))
        require_fraction("curriculum", self.curriculum)
        if not 0 < require_fraction("held_out", self.held_out) < 1:
            raise ValueError(
                "held_out must leave something to learn from and something to test "
                f"with, got {self.held_out}"
            )
        if not self.levels or len({*self.levels}) < len(self.levels):
            raise ValueError(
                f"levels must be some of {', '.join(LEVELS)}, each once, got "
                f"{[*self.levels]}"
            )
        for level in self.levels:
            require_choice("levels", level, LEVELS)
        if self.curriculum > 0 and self.num_levels < 2:
            raise ValueError(
                "curriculum opens one level after another: it must be 0 with one "
                f"level, got {self.curriculum}"
            )
        if self.problems == "files" and not (self.train_file and self.test_file):
            raise ValueError(
                "train_file and test_file must be given with problems=files, got "
                f"{self.train_file} and {self.test_file}"
            )

    @property
    def letters(self) -> Literal["arithmetic", "printable"]:
        """The alphabet."""
        if self.alphabet != "auto":
            return self.alphabet
        return "arithmetic" if self.problems == "arithmetic" else "printable"

    @property
    def num_levels(self) -> int:
        """Word problems and files are one level."""
        return len(self.levels) if self.problems == "arithmetic" else 1


def make_tokenizer(task: TaskConfig) -> CharacterTokenizer:
    """A token for each character of the task's alphabet."""
    return CharacterTokenizer(ARITHMETIC if task.letters == "arithmetic" else PRINTABLE)


def make_sources(
    task: TaskConfig, device: torch.device
) -> tuple[PromptSource, PromptSource]:
    """Problems to learn from, and held-out ones."""
    if task.problems == "files":
        assert task.train_file and task.test_file
        levels = [(read_problems(task.train_file), read_problems(task.test_file))]
    elif task.problems == "words":
        levels = [(word_problems("train"), word_problems("test"))]
    else:
        levels = [
            split(arithmetic_problems(level), task.held_out, task.split_seed)
            for level in task.levels
        ]
    tokenizer = make_tokenizer(task)
    train, test = zip(*levels, strict=True)
    if task.problems == "arithmetic":
        # The sums of add-1 are in add-sub-1 as well, and held out of both.
        asked = {one.question for level in test for one in level}
        train = tuple(
            [one for one in level if one.question not in asked] for level in train
        )
    source = PromptSource(
        train,
        tokenizer,
        curriculum=task.curriculum,
        format_bonus=task.format_bonus,
        device=device,
    )
    return source, PromptSource(test, tokenizer, device=device)


def answer_length(train: PromptSource, test: PromptSource) -> int:
    """Tokens of the longest written answer to learn from or to test with, and EOS."""
    return max(train.longest_answer, test.longest_answer)


def refuse_small_context(
    task: TaskConfig,
    model: TransformerConfig,
    train: PromptSource,
    test: PromptSource,
    length: int,
) -> None:
    """Name the task and the context where prompt and response do not fit into it.

    Raises:
        ValueError: they do not.
    """
    prompt = max(train.longest_prompt, test.longest_prompt)
    if prompt + length > model.context:
        raise ValueError(
            f"model.context must be at least {prompt + length} with "
            f"task.problems={task.problems}, whose longest question has {prompt} "
            f"tokens, and responses of up to {length}; got {model.context}"
        )


def response_length(
    say: Callable[[str], None],
    task: TaskConfig,
    model: TransformerConfig,
    sources: tuple[PromptSource, PromptSource],
    given: int | None,
) -> int:
    """The length that is given, or that of the longest written answer.

    Args:
        say: is told of one that is too short for it.
        task, model, sources: of the run.
        given: None: none is given.
    """
    longest = answer_length(*sources)
    length = longest if given is None else given
    refuse_small_context(task, model, *sources, length)
    if length < longest:
        say(
            f"a response may have {length} tokens, and the longest written answer has "
            f"{longest} with EOS: one that is cut off is right only by luck"
        )
    return length


def problems_digest(*sources: PromptSource) -> str:
    """Another one where a problem, or their order, is another."""
    problems = [
        [(one.question, one.answer, one.gold) for one in source.problems]
        for source in sources
    ]
    return hashlib.sha256(json.dumps(problems).encode()).hexdigest()


def task_of(made: dict[str, Any]) -> TaskConfig:
    """The task of a run, from its settings as they were saved."""
    task = made["task"]
    return TaskConfig(**task | {"levels": tuple(task["levels"])})
