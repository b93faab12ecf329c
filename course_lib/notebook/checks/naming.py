"""Which of a task's known mistakes does a wrong answer make?"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from course_lib.notebook.checks.outcome import (
    Outcome,
    differ,
    float32_slack,
    plain,
    run,
    same,
    spoilt,
    values_alone,
)
from course_lib.notebook.checks.task import Case, Function, Task


@dataclass(frozen=True)
class Mistake:
    """The zoo's name for a mistake, and what was overlooked to find it."""

    name: str
    detached: bool = False
    """Beside the mistake, no gradient is left."""


def name_mistake(
    task: Task,
    cases: Sequence[Case],
    got: Sequence[Outcome],
    expected: Sequence[Outcome],
) -> Mistake | None:
    """Return what the zoo knows about `got`, or None.

    Someone who makes a known mistake and also misses the trap of an adversarial case
    agrees with the zoo everywhere else, so where no member agrees on all cases, the
    ordinary ones decide. A mistake in the numbers is the same one whatever was cut off
    beside it or not: where nobody agrees in everything, the gradients into constants
    are overlooked, and then all gradients.
    """
    zoo = _Zoo(task, cases, expected)
    name = _seek(zoo, got, expected)
    if name is not None or not task.gradients:
        return None if name is None else Mistake(name)
    for view in (_constants_overlooked(expected), values_alone):
        name = _seek(zoo.seen_by(view), [*map(view, got)], [*map(view, expected)])
        if name is not None:
            lost = (one.error is None and not any(_reached(one)) for one in got)
            return Mistake(name, detached=all(lost))
    return None


def _reached(outcome: Outcome) -> list[bool]:
    return [slope is not None for slope in outcome.gradients]


def _constants_overlooked(expected: Sequence[Outcome]) -> Callable[[Outcome], Outcome]:
    """A view without the gradients of arguments that no gradient is to reach."""
    reached = [any(slopes) for slopes in zip(*map(_reached, expected), strict=True)]

    def view(outcome: Outcome) -> Outcome:
        pairs = zip(outcome.gradients, reached, strict=False)
        return replace(outcome, gradients=tuple(slope for slope, keep in pairs if keep))

    return view


class _Zoo:
    """A task's wrong answers and what they give on the cases, run when asked for."""

    def __init__(
        self,
        task: Task,
        cases: Sequence[Case],
        expected: Sequence[Outcome],
        view: Callable[[Outcome], Outcome] = lambda outcome: outcome,
    ) -> None:
        self.task, self._cases, self._view = task, cases, view
        self._expected = expected
        self._ran: dict[tuple[Function, int], Outcome] = {}
        self._seen: dict[tuple[Function, int], Outcome] = {}

    def seen_by(self, view: Callable[[Outcome], Outcome]) -> "_Zoo":
        """Return the same zoo through another view, without running it anew."""
        zoo = _Zoo(self.task, self._cases, self._expected, view)
        zoo._ran = self._ran
        return zoo

    def ordinary(self, index: int) -> bool:
        return not self._cases[index].adversarial

    def outcome(self, function: Function, index: int) -> Outcome:
        key = (function, index)
        if key not in self._ran:
            # What a wrong answer of ours is warned about, no learner has to read.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._ran[key] = run(function, self._cases[index], self.task.gradients)
        if key not in self._seen:
            seen = self._view(self._ran[key])
            self._seen[key] = plain(seen, self._expected[index])
        return self._seen[key]


def _seek(zoo: _Zoo, got: Sequence[Outcome], expected: Sequence[Outcome]) -> str | None:
    """Return the member that agrees with `got` on all cases, or else on the ordinary
    ones, if the mistake shows there."""
    tolerance = zoo.task.tolerance
    wrong = range(len(got))
    if not any(differ(got[i], expected[i], tolerance) for i in wrong):
        return None  # a dtype is a fault of its own, and no mistake of the zoo's
    name = _agreeing(zoo, list(wrong), got, expected)
    if name is not None:
        return name
    ordinary = [
        i
        for i in wrong
        if zoo.ordinary(i) and (not spoilt(got[i]) or spoilt(expected[i]))
    ]
    slips = (differ(got[i], expected[i], tolerance) for i in ordinary)
    if len(ordinary) == len(got) or not any(slips):
        return None
    return _agreeing(zoo, ordinary, got, expected)


def _agreeing(
    zoo: _Zoo,
    indices: Sequence[int],
    got: Sequence[Outcome],
    expected: Sequence[Outcome],
) -> str | None:
    slack = max(zoo.task.tolerance, *(float32_slack(got[i]) for i in indices))
    mine = {i: plain(got[i], expected[i]) for i in indices}
    for wrong in zoo.task.wrongs.values():
        for function in wrong.functions:
            if all(same(zoo.outcome(function, i), mine[i], slack) for i in indices):
                return wrong.name
    return None
