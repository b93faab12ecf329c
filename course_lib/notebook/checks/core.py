"""The engine of `check`: run, compare, and say what is wrong in words.

The expected values come from the task's reference, never from the learner's function.
Whatever differs is first looked for in the task's zoo: a wrong answer that agrees with
the learner's on every input names the mistake. Anything else gets the smallest input
where it shows.
"""

import importlib
import pkgutil
from collections.abc import Sequence
from typing import Any

import torch
from IPython.display import display

from course_lib.notebook.checks.faults import (
    missing_gradient,
    slope_fault,
    structure,
)
from course_lib.notebook.checks.naming import Mistake, name_mistake
from course_lib.notebook.checks.outcome import (
    Outcome,
    differ,
    equal,
    float32_slack,
    in_dtype_of,
    run,
    same,
    spoilt,
    values_alone,
)
from course_lib.notebook.checks.report import Report
from course_lib.notebook.checks.task import Case, Function, Task
from course_lib.notebook.words import word

SEED = 0

_ENGINE = ("core", "faults", "naming", "outcome", "report", "task")
"""The modules of this package that hold no task."""


class CheckFailed(AssertionError):
    """A check that did not pass. Its text is the whole report; a notebook, which has
    shown the report already, shows one line of it and no traceback."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.text)
        self.report = report

    def _render_traceback_(self) -> list[str]:
        return [word("check.stopped")]


def tasks() -> list[str]:
    """Return the names of all tasks."""
    package = importlib.import_module(__package__)
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name for name in names if name not in _ENGINE)


def load_task(name: str) -> Task:
    """Return the task called `name`; raises `ValueError` with the names there are."""
    if name not in tasks():
        known = ", ".join(tasks())
        raise ValueError(word("check.unknown", name=name, names=known))
    task: Task = importlib.import_module(f"{__package__}.{name}").TASK
    return task


def check(name: str, function: Function) -> Report:
    """Check `function` against the task called `name`.

    Returns:
        Words of praise, if every input gives the expected result.

    Raises:
        CheckFailed: with the likely mistake or the smallest input that shows one; the
            report has been displayed by then.
        ValueError: no such task.
        TypeError: `function` is not a function.
    """
    task = load_task(name)
    if not callable(function):
        kind = type(function).__name__
        raise TypeError(word("check.not_callable", got=f"a {kind}", name=name))
    cases = task.cases(SEED)
    report = examine(task, function, cases)
    if report is not None:
        display(report)
        raise CheckFailed(report)
    return Report(task.title, word("check.inputs", count=len(cases)), passed=True)


def examine(task: Task, function: Function, cases: Sequence[Case]) -> Report | None:
    """Return why `function` is refused on `cases`, or None where it is right."""
    expected = [run(task.reference, case, task.gradients) for case in cases]
    got: list[Outcome] = []
    for case in cases:
        outcome = run(function, case, task.gradients)
        got.append(
            in_dtype_of(expected[len(got)], outcome) if task.any_float else outcome
        )
        if isinstance(got[-1].error, NotImplementedError):
            return Report(task.title, word("check.stub"), read=task.read)
    different = [
        index
        for index, (mine, right) in enumerate(zip(got, expected, strict=True))
        if mine.mutated or not same(mine, right, task.tolerance)
    ]
    if not different:
        return None
    # A changed argument explains later numbers, so it is told first.
    first = next((i for i in different if got[i].mutated), None)
    mistake = None
    if first is None:
        mistake = name_mistake(task, cases, got, expected)
        first = _telling(different, got, expected, task.tolerance)
    return _report(task, function, cases[first], got[first], expected[first], mistake)


def _telling(
    different: Sequence[int],
    got: Sequence[Outcome],
    expected: Sequence[Outcome],
    tolerance: float,
) -> int:
    """Return the smallest case where the values differ, or else the gradients, or else
    the dtype, which shows everywhere and tells least."""
    for view in (values_alone, lambda outcome: outcome):
        for i in different:
            if differ(view(got[i]), view(expected[i]), tolerance):
                return i
    return different[0]


def _report(
    task: Task,
    function: Function,
    case: Case,
    got: Outcome,
    expected: Outcome,
    mistake: Mistake | None,
) -> Report:
    words = structure(task, function, got, expected) or ""
    numbers = _numbers_too(task, got, expected)
    if numbers and words == slope_fault(task, got, expected):
        # Numbers come first. A gradient too many is told once they are right; one that
        # is missing spoils whatever else is mended, so it is told at once.
        words = f"{word('check.values')} {missing_gradient(task, got, expected)}"
    elif mistake is None and (not words or numbers):
        words = f"{words} {word('check.values')}"
    if mistake is not None and mistake.detached:
        lost = missing_gradient(task, got, expected)
        words = words if lost in words else f"{words} {lost}"
    words = words.strip()
    unanswered = got.error is not None or got.value is None
    slopes = task.gradients if _slopes_matter(task, got, expected) else ()
    return Report(
        task.title,
        words,
        inputs=show_case(case),
        got="" if unanswered or got.mutated else show_outcome(got, slopes),
        expected="" if got.mutated else show_outcome(expected, slopes),
        diagnosis=task.diagnosis(mistake.name) if mistake else "",
        read=task.read,
        wrong=mistake.name if mistake else None,
    )


def _numbers_too(task: Task, got: Outcome, expected: Outcome) -> bool:
    """Beside a fault of dtype, of a number in a tensor or of a gradient: do the
    numbers differ as well?"""
    if got.error is not None or got.value is None or got.mutated:
        return False
    mine, right = values_alone(got), values_alone(expected)
    if spoilt(mine):
        return False
    alike = [
        getattr(a, "shape", ()) == getattr(b, "shape", ())
        for a, b in zip(mine.results, right.results, strict=False)
    ]
    kinds = all(isinstance(one, float | torch.Tensor) for one in mine.results)
    if not kinds or len(mine.results) != len(right.results) or not all(alike):
        return False
    return differ(mine, right, task.tolerance)


def _slopes_matter(task: Task, got: Outcome, expected: Outcome) -> bool:
    """Is a gradient missing, or wrong under right values?"""
    if got.error is not None or not task.gradients:
        return False
    slack = max(task.tolerance, float32_slack(got))
    if missing_gradient(task, got, expected):
        return True
    pairs = list(zip(got.gradients, expected.gradients, strict=False))
    mine, right = values_alone(got), values_alone(expected)
    return not differ(mine, right, slack) and any(
        not equal(a, b, slack) for a, b in pairs
    )


def show_case(case: Case) -> str:
    """Return a case's arguments as a reader would write them."""
    if case.shown:
        return case.shown
    return ", ".join(
        f"{name} = {show(value)}" for name, value in case.arguments.items()
    )


def show_outcome(outcome: Outcome, slopes: Sequence[str] = ()) -> str:
    """Return what came out, with the gradients for the arguments named in `slopes`."""
    parts = [show(outcome.value)]
    for name, slope in zip(slopes, outcome.gradients, strict=False):
        kind = "check.no_slope" if slope is None else "check.slope"
        parts.append(word(kind, argument=name, gradient=show(slope)))
    return ", ".join(parts)


def show(value: Any) -> str:
    """Return a value in a few characters: four digits, large tensors by shape."""
    if isinstance(value, tuple):
        return "(" + ", ".join(show(part) for part in value) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(show(part) for part in value) + "]"
    if isinstance(value, torch.Tensor):
        if value.numel() > 24:
            return f"tensor of shape {list(value.shape)}"
        return _listing(value.detach().tolist())
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def _listing(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_listing(part) for part in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
