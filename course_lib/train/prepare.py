"""`prepare-prompts`: the problems of a task as files."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from course_lib.envs import Problem
from course_lib.envs.problems import MARK
from course_lib.kernels.arguments import require_text
from course_lib.train.files import replace_file
from course_lib.train.tasks import TaskConfig, make_sources


@dataclass(frozen=True)
class PrepareConfig:
    """Where prepared problems go."""

    out: str = "prompts"
    """The folder for train.jsonl and test.jsonl."""
    fresh: bool = False
    """Write over files that hold something else."""

    def __post_init__(self) -> None:
        require_text("out", self.out)


def prepare_prompts_program(
    settings: dict[str, Any], *, task: TaskConfig, prepare: PrepareConfig
) -> None:
    """Write the problems of a task as JSON lines, to read, change and train on."""
    folder = Path(prepare.out)
    sources = make_sources(task, torch.device("cpu"))
    paths = [folder / "train.jsonl", folder / "test.jsonl"]
    problems = [[_marked(one) for one in source.problems] for source in sources]
    contents = ["".join(map(_json_line, some)) for some in problems]
    for path, content in zip(paths, contents, strict=True):
        if path.exists() and not prepare.fresh:
            refuse_another_file(path, content)
    for path, content, some in zip(paths, contents, problems, strict=True):
        replace_file(path, content.encode())
        print(f"{path}: {len(some)} problems, answers such as {some[0].answer!r}")
    prompt = max(len(one.question) for some in problems for one in some)
    answer = max(len(one.answer) for some in problems for one in some) + 1
    print(
        f"to train on them: --task.problems files --task.train_file {paths[0]} "
        f"--task.test_file {paths[1]}\n"
        f"questions have up to {prompt} tokens and answers, with EOS, up to {answer}: "
        f"model.context must be at least {prompt + answer}, and the alphabet is "
        "printable, for '#'"
    )


def refuse_another_file(path: Path, content: str) -> None:
    """Do not write over what a person may have changed.

    Raises:
        ValueError: the file holds something else.
    """
    if path.read_bytes().replace(b"\r\n", b"\n") != content.encode():
        raise ValueError(
            f"{path} holds something else than would be written; give another folder "
            "by --prepare.out, or --prepare.fresh true to write over it"
        )


def _marked(problem: Problem) -> Problem:
    """With the mark before its answer that a file must have."""
    marked = MARK in problem.answer
    return problem if marked else replace(problem, answer=f"{MARK} {problem.gold}")


def _json_line(problem: Problem) -> str:
    made = {"question": problem.question, "answer": problem.answer}
    return json.dumps(made, ensure_ascii=False) + "\n"
