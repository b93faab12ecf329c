"""Questions with one number for an answer: arithmetic, and JSON lines from a file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from course_lib.envs.verifier import parse_number
from course_lib.kernels.arguments import require_choice, require_fraction

MARK = "####"
"""Stands before the final answer, as in GSM8K (Cobbe et al., 2021)."""


@dataclass(frozen=True)
class Problem:
    """A question, how it is answered, and the number that counts."""

    question: str
    """As it is put to the model."""
    answer: str
    """As a model may learn to write it."""
    gold: str
    """The number that a right answer comes to."""
    place: str = field(default="", compare=False)
    """The file and the line that it was read from, if it was."""


def _sums(lefts: range, signs: str, rights: range) -> list[Problem]:
    results = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
    }
    return [
        Problem(f"{a}{sign}{b}=", str(results[sign](a, b)), str(results[sign](a, b)))
        for sign in signs
        for a in lefts
        for b in rights
    ]


LEVELS = ("add-1", "add-sub-1", "times-1", "add-2-1", "add-2-2")
"""From easy to hard: one digit plus one; plus or minus; times; two digits plus one;
two plus two."""


def arithmetic_problems(level: str) -> list[Problem]:
    """All problems of one of the `LEVELS`, such as "3+4=", in a fixed order.

    Raises:
        ValueError: another level.
    """
    require_choice("level", level, LEVELS)
    one, two = range(10), range(10, 100)
    lefts, signs, rights = {
        "add-1": (one, "+", one),
        "add-sub-1": (one, "+-", one),
        "times-1": (one, "*", one),
        "add-2-1": (two, "+", one),
        "add-2-2": (two, "+", two),
    }[level]
    return _sums(lefts, signs, rights)


def split(
    problems: Sequence[Problem], held_out: float = 0.2, seed: int = 0
) -> tuple[list[Problem], list[Problem]]:
    """Problems to learn from and problems to test with, in a new order.

    Args:
        problems: all of them.
        held_out: the share that is kept for testing, in [0, 1].
        seed: of the order.

    Raises:
        ValueError: a share outside [0, 1].
    """
    count = round(len(problems) * require_fraction("held_out", held_out))
    order = list(problems)
    random.Random(seed).shuffle(order)
    return order[count:], order[:count]


def read_problems(path: str | Path) -> list[Problem]:
    """Problems from a file of JSON lines in GSM8K's format:

        {"question": "...", "answer": "a way to the answer\\n#### 12"}

    Args:
        path: a file in UTF-8; empty lines are passed over.

    Raises:
        ValueError: with the file and the line in which something is amiss.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: not UTF-8") from None
    problems = list(_parsed(text, str(path)))
    if not problems:
        raise ValueError(f"{path}: no problem in it")
    return problems


def word_problems(part: str = "train") -> list[Problem]:
    """The course's own word problems: 200 to learn from, or 40 others to test with.

    Args:
        part: "train" or "test".

    Raises:
        ValueError: another part.
    """
    require_choice("part", part, ("train", "test"))
    name = f"word-problems-{part}.jsonl"
    file = resources.files("course_lib.data").joinpath(name)
    return list(_parsed(file.read_text(encoding="utf-8"), name))


def _parsed(text: str, name: str) -> Iterator[Problem]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not JSON: {error.msg}") from None
        if not isinstance(found, dict):
            raise ValueError(f"{where}: expected an object, got {line.strip()[:40]}")
        for key in ("question", "answer"):
            value = found.get(key)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f"{where}: {key!r} must be a text, got {value!r}")
        _, mark, gold = found["answer"].rpartition(MARK)
        if not mark or parse_number(gold) is None:
            raise ValueError(
                f"{where}: 'answer' must end with '{MARK} ' and a number, got "
                f"{found['answer'][-40:]!r}"
            )
        yield Problem(found["question"], found["answer"], gold.strip(), where)
