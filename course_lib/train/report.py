"""What a run of RLHF costs: bytes of each model, and where an iteration's time goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.algorithms import LanguageRun


def memory_table(
    run: LanguageRun, others: dict[str, nn.Module]
) -> list[tuple[str, int, int, int]]:
    """Name and bytes of weights, gradients and optimizer state, of each model.

    Args:
        run: its policy learns; its reference does not.
        others: further models, frozen, by name.
    """
    learner = run.learner
    state = [learner.optimizer.mean, learner.optimizer.square]
    rows = [
        (
            "policy and critic",
            _bytes(learner.policy.parameters()),
            _bytes([learner.parameters.gradients]),
            _bytes(state),
        )
    ]
    for name, model in {"reference": run.ref, **others}.items():
        rows.append((name, _bytes(model.parameters()), 0, 0))
    return rows


@dataclass
class Phases:
    """Seconds of each part of an iteration, taken where its functions are called."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By name, summed over the run, in the order in which they were first over."""
    _since: float = field(default_factory=time.perf_counter)

    def over(self, name: str) -> None:
        """What went on until now is to be counted to `name`."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # or the next phase would wait for this one
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    def before(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with `name` over where it is called."""

        def called(*arguments: Any, **options: Any) -> Any:
            self.over(name)
            return function(*arguments, **options)

        return called

    def after(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with `name` over where it returns."""

        def called(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            self.over(name)
            return result

        return called


def cost_report(run: LanguageRun, others: dict[str, nn.Module], phases: Phases) -> str:
    """Both tables as text."""
    lines = ["KiB                 weights  gradients  optimizer"]
    for name, *sizes in memory_table(run, others):
        columns = (f"{size / 1024:10,.0f}" for size in sizes)
        lines.append(f"{name:17}" + "".join(columns))
    total = sum(phases.seconds.values())
    if total > 0:
        lines.append("share of the time")
        for name, seconds in phases.seconds.items():
            lines.append(f"{name:17}{100 * seconds / total:9.1f} %")
    return "\n".join(lines)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def last(records: list[dict[str, float]], name: str = "accuracy") -> str:
    """The last value of a number that was measured now and then, in words."""
    seen = [one[name] for one in records if name in one]
    return f"{seen[-1]:.3f}" if seen else "not measured"
