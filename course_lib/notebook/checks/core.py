"""The engine of `check`: run, compare, and say what is wrong in words.

The expected values come from the task's reference, never from the learner's function.
Whatever differs is first looked for in the task's zoo: a wrong answer that agrees with
the learner's on every input names the mistake. Anything else gets the smallest input
where it shows.
"""

import copy
import importlib
import linecache
import pkgutil
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch
from IPython.display import display

from course_lib.notebook.checks.report import Report
from course_lib.notebook.checks.task import Case, Function, Task
from course_lib.notebook.words import word

SEED = 0


class CheckFailed(AssertionError):
    """A check that did not pass. Its text is the whole report; a notebook, which has
    shown the report already, shows one line of it and no traceback."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.text)
        self.report = report

    def _render_traceback_(self) -> list[str]:
        return [word("check.stopped")]


@dataclass(frozen=True)
class Outcome:
    """What a function did with one input."""

    value: Any = None
    error: BaseException | None = None
    mutated: str = ""
    gradients: tuple[torch.Tensor | None, ...] = ()


def tasks() -> list[str]:
    """Return the names of all tasks."""
    package = importlib.import_module(__package__)
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name for name in names if name not in ("core", "report", "task"))


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
        got.append(run(function, case, task.gradients))
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
    first = next((i for i in different if got[i].mutated), different[0])
    words = structure(task, function, got[first], expected[first])
    wrong = None if got[first].mutated else name_mistake(task, cases, got, expected)
    numbers = wrong is not None or not words
    unanswered = got[first].error is not None or got[first].value is None
    return Report(
        task.title,
        words or ("" if wrong else word("check.values")),
        inputs=show_case(cases[first]),
        got=show(got[first].value) if numbers and not unanswered else "",
        expected=show(expected[first].value) if numbers else "",
        diagnosis=task.diagnosis(wrong) if wrong else "",
        read=task.read,
        wrong=wrong,
    )


def run(function: Function, case: Case, gradients: Sequence[str] = ()) -> Outcome:
    """Call `function` on copies of the case's arguments, and differentiate the sum of
    its first result with respect to the arguments named in `gradients`."""
    arguments = copy.deepcopy(case.arguments)
    leaves = [arguments[name].requires_grad_() for name in gradients]
    try:
        value = function(*arguments.values())
        slopes = _slopes(_results(value)[0], leaves)
    except Exception as error:  # a learner's function may raise anything
        return Outcome(error=error)
    for name, before in case.arguments.items():
        if isinstance(before, torch.Tensor):
            after = arguments[name].detach()
            if not _equal(before, after, 0.0):
                return Outcome(value, mutated=name)
    return Outcome(value, gradients=slopes)


def _slopes(
    result: Any, leaves: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | None, ...]:
    if not isinstance(result, torch.Tensor) or not result.requires_grad or not leaves:
        return tuple(None for _ in leaves)
    return torch.autograd.grad(result.sum(), leaves, allow_unused=True)


def same(got: Outcome, expected: Outcome, tolerance: float) -> bool:
    """Are two outcomes the same: type of error, or number, shape, dtype and values?"""
    if got.error is not None or expected.error is not None:
        return type(got.error) is type(expected.error)
    mine = (*_results(got.value), *got.gradients)
    right = (*_results(expected.value), *expected.gradients)
    if len(mine) != len(right):
        return False
    return all(_equal(a, b, tolerance) for a, b in zip(mine, right, strict=True))


def name_mistake(
    task: Task,
    cases: Sequence[Case],
    got: Sequence[Outcome],
    expected: Sequence[Outcome],
) -> str | None:
    """Return the zoo's name for what `got` shows.

    Someone who makes a known mistake and also misses the trap of an adversarial case
    agrees with the zoo everywhere else, so where no member agrees on all cases, the
    ordinary ones decide.
    """
    wrong = find_wrong(task, cases, got)
    if wrong is not None:
        return wrong
    ordinary = [
        index
        for index, case in enumerate(cases)
        if not case.adversarial
        and (not _spoilt(got[index]) or _spoilt(expected[index]))
    ]
    slips = (not same(got[i], expected[i], task.tolerance) for i in ordinary)
    if len(ordinary) == len(cases) or not any(slips):
        return None
    return find_wrong(task, [cases[i] for i in ordinary], [got[i] for i in ordinary])


def find_wrong(task: Task, cases: Sequence[Case], got: Sequence[Outcome]) -> str | None:
    """Return the name of the zoo's member that agrees with `got` on every case.

    A dtype is a fault of its own and hides no other, so here it does not count.
    """
    slack = max(task.tolerance, *(_float32_slack(one) for one in got))
    for wrong in task.wrongs.values():
        pairs = zip(cases, map(_widened, got), strict=True)
        if all(
            same(_widened(run(wrong.function, case, task.gradients)), mine, slack)
            for case, mine in pairs
        ):
            return wrong.name
    return None


def _spoilt(outcome: Outcome) -> bool:
    """Does a result or a gradient hold NaN or infinity?"""
    parts = (*_results(outcome.value), *outcome.gradients)
    tensors = (one for one in parts if isinstance(one, torch.Tensor))
    return any(not bool(one.isfinite().all()) for one in tensors)


def _float32_slack(outcome: Outcome) -> float:
    parts = _results(outcome.value)
    single = any(getattr(one, "dtype", None) == torch.float32 for one in parts)
    return 1e-5 if single else 0.0


def _widened(outcome: Outcome) -> Outcome:
    """The outcome with its floating tensors in float64."""

    def wide(one: Any) -> Any:
        floating = isinstance(one, torch.Tensor) and one.is_floating_point()
        return one.double() if floating else one

    value = outcome.value
    value = tuple(map(wide, value)) if isinstance(value, tuple) else wide(value)
    return replace(outcome, value=value)


def structure(
    task: Task, function: Function, got: Outcome, expected: Outcome
) -> str | None:
    """Return words for a fault that is not one of numbers."""
    if got.error is not None:
        return _raised(function, got.error)
    if got.value is None:
        return word("check.none")
    if got.mutated:
        return word("check.mutated", argument=got.mutated)
    mine, right = _results(got.value), _results(expected.value)
    names = task.results
    if len(mine) != len(right):
        counts = {"got": len(mine), "expected": len(right), "names": ", ".join(names)}
        return word("check.length", **counts)
    for a, b in zip(mine, right, strict=True):
        words = _attributes(a, b)
        if words:
            return words
    for name, slope in zip(task.gradients, got.gradients, strict=True):
        if slope is None:
            return word("check.no_gradient", argument=name)
    if all(_equal(a, b, task.tolerance) for a, b in zip(mine, right, strict=True)):
        return word("check.gradients", arguments=", ".join(task.gradients))
    return None


def _attributes(a: Any, b: Any) -> str | None:
    if not isinstance(b, torch.Tensor):
        if isinstance(a, int | float):
            return None
        return word("check.type", got=_a(a), expected="a number")
    if not isinstance(a, torch.Tensor):
        return word("check.type", got=_a(a), expected="a torch.Tensor")
    if a.shape != b.shape:
        return word("check.shape", got=list(a.shape), expected=list(b.shape))
    if a.dtype != b.dtype:
        return word("check.dtype", got=a.dtype, expected=b.dtype)
    if a.device != b.device:
        return word("check.device", got=a.device, expected=b.device)
    if a.requires_grad and not b.requires_grad:
        return word("check.gradient")
    if bool((b.isfinite() & ~a.isfinite()).any()):
        return word("check.nan")
    return None


def _raised(function: Function, error: BaseException) -> str:
    line, code = 0, ""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    trace: TracebackType | None = error.__traceback__
    for frame, number in traceback.walk_tb(trace):
        if frame.f_code.co_filename == file:
            line, code = number, linecache.getline(file, number).strip()
    name = type(error).__name__
    if not code:
        return word("check.called", error=name, message=error)
    return word("check.raised", error=name, line=line, code=code, message=error)


def _results(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,)


def _equal(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= tolerance * max(1.0, abs(b))
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and bool(a == b)
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    if a.requires_grad != b.requires_grad:
        return False
    if not a.is_floating_point():
        return torch.equal(a, b)
    finite = b.detach()[b.isfinite()].abs()
    scale = max(1.0, float(finite.max()) if finite.numel() else 0.0)
    return torch.allclose(a, b, rtol=0.0, atol=tolerance * scale, equal_nan=True)


def show_case(case: Case) -> str:
    """Return a case's arguments as a reader would write them."""
    if case.shown:
        return case.shown
    return ", ".join(
        f"{name} = {show(value)}" for name, value in case.arguments.items()
    )


def show(value: Any) -> str:
    """Return a value in a few characters: four digits, large tensors by shape."""
    if isinstance(value, tuple):
        return "(" + ", ".join(show(part) for part in value) + ")"
    if isinstance(value, torch.Tensor):
        if value.numel() > 24:
            return f"tensor of shape {list(value.shape)}"
        return _listing(value.detach().tolist())
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


def _listing(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_listing(part) for part in value) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
