"""The words for faults that are not one of numbers: kind, shape, dtype, gradient."""

import linecache
import traceback
from types import TracebackType
from typing import Any

import torch

from course_lib.notebook.checks.outcome import Outcome, equal, list_for_one
from course_lib.notebook.checks.task import Function, Task
from course_lib.notebook.words import word


def structure(
    task: Task, function: Function, got: Outcome, expected: Outcome
) -> str | None:
    """Return words for a fault that is not one of numbers, or None."""
    if got.error is not None:
        return _raised(function, got.error)
    if got.value is None:
        return word("check.none")
    if got.mutated:
        return word("check.mutated", argument=got.mutated)
    mine, right = got.results, expected.results
    if list_for_one(got, expected):
        return _attributes(got.value, expected.value)
    if isinstance(expected.value, list) and not isinstance(got.value, tuple | list):
        return word("check.type", got=_a(got.value), expected="a list")
    if len(mine) != len(right) and isinstance(expected.value, list):
        return word("check.count", got=len(mine), expected=len(right))
    if len(mine) != len(right):
        names = ", ".join(task.results)
        counts = {"got": len(mine), "expected": len(right), "names": names}
        return word("check.length", **counts)
    for a, b in zip(mine, right, strict=True):
        words = _attributes(a, b)
        if words:
            return words
    words = slope_fault(task, got, expected)
    if words:
        return words
    if all(equal(a, b, task.tolerance) for a, b in zip(mine, right, strict=True)):
        return word("check.gradients", arguments=", ".join(task.gradients))
    return None


def slope_fault(task: Task, got: Outcome, expected: Outcome) -> str:
    """Return words for an argument that no gradient reaches although it should, or else
    for one that a gradient reaches although it is a constant; "" without either."""
    lost = missing_gradient(task, got, expected)
    if lost or got.error is not None:
        return lost
    slopes = zip(task.gradients, got.gradients, expected.gradients, strict=True)
    for name, slope, right in slopes:
        if slope is not None and right is None:
            return word("check.unasked_gradient", argument=name)
    return ""


def missing_gradient(task: Task, got: Outcome, expected: Outcome) -> str:
    """Return words for the first argument that no gradient reaches although it should,
    or ""."""
    # An answer that raised, or changed its argument, was not differentiated.
    slopes = zip(task.gradients, got.gradients, expected.gradients, strict=False)
    for name, slope, right in slopes:
        if slope is None and right is not None:
            return word("check.no_gradient", argument=name)
    return ""


def _attributes(a: Any, b: Any) -> str | None:
    if not isinstance(b, torch.Tensor):
        if isinstance(a, int | float):
            return None
        if isinstance(a, torch.Tensor) and a.dim() == 0:
            return word("check.number")
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


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
