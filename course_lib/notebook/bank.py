"""The quiz bank: questions from YAML, checked before anyone sees them.

One file per chapter in `course_lib/quizzes/`, each a mapping from question id to

* `kind`: `single` (one right option), `multiple` (any number), `numeric`, `ordering`
  (shuffled lines of an algorithm) or `predict` (a guess before a cell is run);
* `prompt`: the question;
* `options` (single, multiple): a list of `{text, feedback, right}`, `right` left out
  where it is false; every option has its own feedback;
* `answer`, `tolerance` (numeric), `computed_by`: the library expression that a test
  evaluates to compare with `answer`, and `feedback`: a list of `{value, text}` for
  wrong numbers that people give;
* `lines` (ordering) in the right order, `together`: lists of line numbers (from 1) that
  may stand in either order, and `feedback`: a list of `{earlier, later, text}` that is
  told when line `earlier` does not stand before line `later`;
* `hint` before an answer, `explain` after the right one.
"""

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Any

from course_lib.notebook.words import read_yaml

PACKAGE = "course_lib.quizzes"
_COMMON = {"kind", "prompt", "hint", "explain"}
_FIELDS = {
    "single": _COMMON | {"options"},
    "multiple": _COMMON | {"options"},
    "numeric": _COMMON | {"answer", "tolerance", "computed_by", "feedback"},
    "ordering": _COMMON | {"lines", "together", "feedback"},
    "predict": _COMMON,
}


@dataclass(frozen=True)
class Option:
    text: str
    feedback: str
    right: bool = False


@dataclass(frozen=True)
class Question:
    """One question; which of the later fields count depends on its kind."""

    id: str
    kind: str
    prompt: str
    hint: str
    explain: str
    options: tuple[Option, ...] = ()
    answer: float = float("nan")
    tolerance: float = 0.0
    computed_by: str = ""
    feedback: tuple[tuple[float, str], ...] = ()
    lines: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    """Ordering: lines of equal rank may stand in either order."""
    pairs: tuple[tuple[int, int, str], ...] = ()
    """Ordering: indices of two lines, and what is told when the first comes later."""


@functools.cache
def bank_files() -> tuple[str, ...]:
    """Return the names of the bank's files, in order."""
    names = (file.name for file in resources.files(PACKAGE).iterdir())
    return tuple(sorted(name for name in names if name.endswith(".yaml")))


@functools.cache
def read_bank() -> dict[str, Question]:
    """Return all questions by id.

    Raises `ValueError` with file and question for the first fault found.
    """
    bank: dict[str, Question] = {}
    for name in bank_files():
        entries = read_yaml(PACKAGE, name)
        if not isinstance(entries, dict):
            raise ValueError(f"{name}: expected a mapping from question id to question")
        for key, entry in entries.items():
            if key in bank:
                raise ValueError(f"{name}: {key}: this id is already taken")
            bank[key] = read_question(f"{name}: {key}", key, entry)
    return bank


def read_question(where: str, key: str, entry: Any) -> Question:
    """Return one question, or raise `ValueError` that starts with `where`."""
    if not isinstance(entry, dict) or entry.get("kind") not in _FIELDS:
        raise ValueError(f"{where}: kind must be one of {', '.join(_FIELDS)}")
    kind = entry["kind"]
    missing, unknown = _FIELDS[kind] - set(entry), set(entry) - _FIELDS[kind]
    if missing or unknown:
        what = (
            f"lacks {sorted(missing)}"
            if missing
            else f"does not know {sorted(unknown)}"
        )
        raise ValueError(f"{where}: a {kind} question {what}")
    for name in ("prompt", "hint", "explain"):
        if not isinstance(entry[name], str) or not entry[name].strip():
            raise ValueError(f"{where}: {name} must be a text")
    texts = {name: entry[name].strip() for name in ("prompt", "hint", "explain")}
    rest: dict[str, Any] = {}
    if kind == "numeric":
        rest = _numeric(where, entry)
    elif kind == "ordering":
        rest = _ordering(where, entry)
    elif kind != "predict":
        rest = {"options": _options(where, kind, entry)}
    return Question(id=key, kind=kind, **texts, **rest)


def _options(where: str, kind: str, entry: dict[str, Any]) -> tuple[Option, ...]:
    try:
        options = tuple(Option(**option) for option in entry["options"])
    except TypeError as error:
        raise ValueError(
            f"{where}: options must be a list of text, feedback and right ({error})"
        ) from error
    for number, option in enumerate(options, start=1):
        for name in ("text", "feedback"):
            if not isinstance(getattr(option, name), str) or not getattr(option, name):
                raise ValueError(f"{where}: option {number}: {name} must be a text")
        if not isinstance(option.right, bool):
            raise ValueError(f"{where}: option {number}: right must be true or false")
    rights = sum(option.right for option in options)
    if len(options) < 3 or rights < 1 or (kind == "single" and rights > 1):
        raise ValueError(
            f"{where}: {len(options)} options, {rights} of them right; expected three "
            f"or more, {'exactly one' if kind == 'single' else 'at least one'} right"
        )
    return options


def _numeric(where: str, entry: dict[str, Any]) -> dict[str, Any]:
    answer, tolerance = entry["answer"], entry["tolerance"]
    for name, value in (("answer", answer), ("tolerance", tolerance)):
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{where}: {name} must be a number, not {value!r}")
    try:
        feedback = tuple((float(f["value"]), str(f["text"])) for f in entry["feedback"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{where}: feedback must list value and text") from error
    for value, _ in feedback:
        if abs(value - answer) <= tolerance:
            raise ValueError(f"{where}: feedback for {value}, which counts as right")
    return {
        "answer": float(answer),
        "tolerance": float(tolerance),
        "computed_by": str(entry["computed_by"]),
        "feedback": feedback,
    }


def _ordering(where: str, entry: dict[str, Any]) -> dict[str, Any]:
    lines, together = entry["lines"], entry["together"]
    if not isinstance(lines, list) or not all(isinstance(one, str) for one in lines):
        raise ValueError(f"{where}: lines must be a list of texts")
    if len(lines) < 3 or len(set(lines)) < len(lines):
        raise ValueError(f"{where}: lines must be three or more, all different")
    ranks = list(range(len(lines)))
    numbers = range(1, len(lines) + 1)
    for group in together or []:
        if not isinstance(group, list) or not set(group) <= set(numbers):
            raise ValueError(f"{where}: together must list numbers of lines, from 1")
        for number in group:
            ranks[number - 1] = min(group) - 1
    pairs = []
    for one in entry["feedback"]:
        try:
            earlier, later, said = one["earlier"], one["later"], str(one["text"])
        except (TypeError, KeyError) as error:
            raise ValueError(
                f"{where}: feedback must list earlier, later and text"
            ) from error
        if earlier not in numbers or later not in numbers or earlier >= later:
            raise ValueError(
                f"{where}: feedback for lines {earlier} and {later}; expected two "
                f"numbers from 1 to {len(lines)}, the earlier line first"
            )
        pairs.append((earlier - 1, later - 1, said))
    return {"lines": tuple(lines), "ranks": tuple(ranks), "pairs": tuple(pairs)}
