"""What a function did with one input, and whether that is what another one did."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from course_lib.notebook.checks.task import Case, Function

_FLOAT32_SLACK = 1e-5


@dataclass(frozen=True)
class Outcome:
    """What a function did with one input."""

    value: Any = None
    error: BaseException | None = None
    mutated: str = ""
    gradients: tuple[torch.Tensor | None, ...] = ()

    @property
    def results(self) -> tuple[Any, ...]:
        """What was returned, one by one."""
        several = isinstance(self.value, tuple | list)
        return tuple(self.value) if several else (self.value,)

    def holding(self, results: tuple[Any, ...]) -> "Outcome":
        """Return the same outcome with other results, as a list where it was one."""
        if isinstance(self.value, list):
            return replace(self, value=list(results))
        return replace(
            self, value=results if isinstance(self.value, tuple) else results[0]
        )


def run(function: Function, case: Case, gradients: Sequence[str] = ()) -> Outcome:
    """Call `function` on copies of the case's arguments, and differentiate the sum of
    its first result with respect to the arguments named in `gradients`."""
    arguments = {name: _copied(value) for name, value in case.arguments.items()}
    leaves = [arguments[name].requires_grad_() for name in gradients]
    # An answer that draws numbers of its own gets the same ones at each run, so that a
    # check says the same every time, and the zoo can know it.
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(0)
    try:
        value = function(*arguments.values())
        if isinstance(value, Iterator):  # a function with `yield` in it
            value = list(value)
        slopes = _slopes(Outcome(value).results, leaves)
    except Exception as error:  # a learner's function may raise anything
        return Outcome(error=error)
    finally:
        torch.default_generator.set_state(state)
    for name, before in case.arguments.items():
        if isinstance(before, torch.Tensor):
            after = arguments[name].detach()
            if not torch.equal(before, after) and not equal(before, after, 0.0):
                return Outcome(value, mutated=name)
    return Outcome(value, gradients=slopes)


def _copied(value: Any) -> Any:
    # Many times as fast as a deep copy, and a check makes hundreds.
    return value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)


def _slopes(
    results: tuple[Any, ...], leaves: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | None, ...]:
    first = results[0] if results else None
    if not isinstance(first, torch.Tensor) or not first.requires_grad or not leaves:
        return tuple(None for _ in leaves)
    return torch.autograd.grad(first.sum(), leaves, allow_unused=True)


def same(got: Outcome, expected: Outcome, tolerance: float) -> bool:
    """Are two outcomes the same: type of error, or number, shape, dtype and values?"""
    if got.error is not None or expected.error is not None:
        return type(got.error) is type(expected.error)
    if list_for_one(got, expected):
        return False
    mine = (*got.results, *got.gradients)
    right = (*expected.results, *expected.gradients)
    if len(mine) != len(right):
        return False
    return all(equal(a, b, tolerance) for a, b in zip(mine, right, strict=True))


def list_for_one(got: Outcome, expected: Outcome) -> bool:
    """Was a list returned where one thing is expected?"""
    return isinstance(got.value, list) and not isinstance(expected.value, tuple | list)


def differ(got: Outcome, expected: Outcome, tolerance: float) -> bool:
    """Do two outcomes differ in more than a dtype, or a number put in a tensor?"""
    slack = max(tolerance, float32_slack(got))
    return not same(plain(got, expected), plain(expected, expected), slack)


def plain(outcome: Outcome, like: Outcome) -> Outcome:
    """Return the outcome without faults that hide no other one: floating tensors in
    float64, and one number in a tensor or out of it as `like` holds it."""

    def bare(one: Any, right: Any) -> Any:
        if isinstance(one, int | float) and _holds_one_number(right):
            return torch.tensor(one, dtype=torch.float64)
        if not isinstance(one, torch.Tensor) or not one.is_floating_point():
            return one
        if isinstance(right, float) and one.dim() == 0:
            return float(one)
        return one.double()

    results = outcome.results
    if len(results) != len(like.results):
        return outcome
    bared = tuple(map(bare, results, like.results))
    slopes = tuple(None if one is None else one.double() for one in outcome.gradients)
    return replace(outcome.holding(bared), gradients=slopes)


def _holds_one_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0


def in_dtype_of(expected: Outcome, got: Outcome) -> Outcome:
    """Return `got` with its floating tensors in the dtype that is expected there."""
    if len(got.results) != len(expected.results):
        return got

    def cast(one: Any, right: Any) -> Any:
        both = isinstance(one, torch.Tensor) and isinstance(right, torch.Tensor)
        if not both or not one.is_floating_point() or not right.is_floating_point():
            return one
        return one.to(right.dtype)

    results = tuple(map(cast, got.results, expected.results))
    return got.holding(results)


def values_alone(outcome: Outcome) -> Outcome:
    """Return the outcome without its gradients and the graphs that lead to them."""

    def bare(one: Any) -> Any:
        return one.detach() if isinstance(one, torch.Tensor) else one

    results = tuple(map(bare, outcome.results))
    return replace(outcome.holding(results), gradients=())


def spoilt(outcome: Outcome) -> bool:
    """Does a result or a gradient hold NaN or infinity?"""
    parts = (*outcome.results, *outcome.gradients)
    tensors = (one for one in parts if isinstance(one, torch.Tensor))
    return any(not bool(one.isfinite().all()) for one in tensors)


def float32_slack(outcome: Outcome) -> float:
    """The tolerance that a result deserves for the dtype it was computed in."""
    single = any(
        getattr(one, "dtype", None) == torch.float32 for one in outcome.results
    )
    return _FLOAT32_SLACK if single else 0.0


def equal(a: Any, b: Any, tolerance: float) -> bool:
    """Are two results of one kind, and as near as `tolerance` allows?"""
    if isinstance(a, list) and isinstance(b, list):
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(equal(x, y, tolerance) for x, y in pairs)
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
