"""What the programs on language models have in common: problems, models, a start."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
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
    require_positive_int,
)
from course_lib.models import (
    PromptedPolicy,
    PromptedRewardModel,
    Sampling,
    Transformer,
    TransformerConfig,
)
from course_lib.models.sampling import UNCHANGED
from course_lib.train.checkpoint import CheckpointError, load_run
from course_lib.train.session import CHECKPOINT


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


@dataclass(frozen=True)
class PolicyConfig:
    """What stands on the trunk."""

    critic: Literal["shared", "detached", "separate"] = "shared"
    """Whether the critic's loss moves the trunk, or it has a trunk of its own."""
    value_hidden: int | None = None
    """A hidden layer of that size in the value head; None: none."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the trunk; log-probabilities, advantages and losses are in float32."""

    def __post_init__(self) -> None:
        if self.value_hidden is not None:
            require_positive_int("value_hidden", self.value_hidden)


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


def problems_digest(*sources: PromptSource) -> str:
    """Another one where a problem, or their order, is another."""
    problems = [
        [(one.question, one.answer, one.gold) for one in source.problems]
        for source in sources
    ]
    return hashlib.sha256(json.dumps(problems).encode()).hexdigest()


def weights_digest(model: torch.nn.Module) -> str:
    """Another one where a weight is another."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        plain = weight.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(name.encode() + plain.numpy().tobytes())
    return digest.hexdigest()


def make_policy(
    task: TaskConfig,
    model: TransformerConfig,
    policy: PolicyConfig,
    sampling: Sampling,
    *,
    seed: int,
    device: torch.device,
    start: str | None = None,
) -> PromptedPolicy:
    """A policy from its seed, or from the trunk of a run of SFT or RLHF.

    Raises:
        CheckpointError, ValueError: a start that cannot be read, or of another size.
    """
    tokenizer = make_tokenizer(task)
    trunk = Transformer(tokenizer.vocab_size, model, seed=seed)
    if start is not None:
        saved = saved_run(start, "sft", "ppo-lm", "grpo")
        refuse_another_model(saved, task, model, start)
        weights = saved["state"]["learner"]["model"]
        trunk.load_state_dict(_below(weights, "trunk."))
    return PromptedPolicy(
        trunk,
        eos_token=tokenizer.eos_token,
        sampling=sampling,
        critic=policy.critic,
        value_hidden=policy.value_hidden,
        precision=policy.precision,
    ).to(device)


def load_reward_model(
    path: str, task: TaskConfig, model: TransformerConfig, device: torch.device
) -> tuple[PromptedRewardModel, float]:
    """The model that a run of `reward-model` has fitted, frozen; and how many nats of
    log-odds its judge gave for one unit of the verifier's reward.

    Raises:
        CheckpointError, ValueError: it cannot be read, or is of another size.
    """
    saved = saved_run(path, "reward-model")
    refuse_another_model(saved, task, model, path)
    begin = make_policy(
        task, model, PolicyConfig(), UNCHANGED, seed=0, device=torch.device("cpu")
    )
    fitted = PromptedRewardModel(begin)
    fitted.load_state_dict(saved["state"]["learner"]["model"])
    scale = json.loads(saved["settings"])["pairs"]["scale"]
    return fitted.requires_grad_(False).to(device), float(scale)


def saved_run(path: str, *programs: str) -> dict[str, Any]:
    """The checkpoint of a run's folder, or of a file, made by one of the programs.

    Raises:
        CheckpointError: it cannot be read, or another program made it.
    """
    place = Path(path)
    place = place / CHECKPOINT if place.is_dir() else place
    saved = load_run(place)
    if saved.get("program") not in programs:
        raise CheckpointError(
            f"{place}: expected a run of {' or '.join(programs)}, got one of "
            f"{saved.get('program')}"
        )
    return saved


def refuse_another_model(
    saved: dict[str, Any], task: TaskConfig, model: TransformerConfig, path: str
) -> None:
    """Name what is another size there than here, or another alphabet."""
    made = json.loads(saved["settings"])
    its, there = task_of(made), made["model"]
    if its.letters != task.letters:
        raise ValueError(
            f"task.alphabet must be that of {path}, which was made with "
            f"task.problems={its.problems} and so the {its.letters} one, got "
            f"task.problems={task.problems} and so the {task.letters} one; make both "
            "with the same --task.alphabet"
        )
    for name, value in vars(model).items():
        if there[name] != value:
            raise ValueError(
                f"model.{name} must be {there[name]}, that of {path}, got {value}"
            )


def task_of(made: dict[str, Any]) -> TaskConfig:
    """The task of a run, from its settings as they were saved."""
    task = made["task"]
    return TaskConfig(**task | {"levels": tuple(task["levels"])})


def _below(weights: dict[str, Any], start: str) -> dict[str, Any]:
    return {k.removeprefix(start): v for k, v in weights.items() if k.startswith(start)}
