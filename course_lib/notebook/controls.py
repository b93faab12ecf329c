"""Controls of a scrub: what a slider's specification means.

=====================  ============================================================
`(low, high, step, start)`  a slider over low, low + step, …, high, starting at start
`[10, 100, 1000]`      a slider over these numbers, starting at the first
`["plain", "clipped"]` a choice, starting at the first
`([10, 100], 100)`     the same two, starting at the value that is named
`True`, `False`        a switch
`0.25`                 a field for any number, starting at this one
=====================  ============================================================
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from course_lib.notebook.words import label

Value = float | int | str | bool


@dataclass(frozen=True)
class Control:
    """One control: its values in order, and the index of the one it starts at."""

    name: str
    kind: Literal["slider", "choice", "switch", "number"]
    values: tuple[Value, ...]
    start: float
    """Index of the first value shown; for a number, that number itself."""

    def value(self, index: float) -> Value:
        """Return the value that the front end calls `index`."""
        if self.kind == "number":
            return type(self.values[0])(index)
        return self.values[int(index)]

    def indices(self) -> list[float]:
        """Return what can be moved to; of a number only the start is known."""
        return [self.start] if self.kind == "number" else list(range(len(self.values)))

    def state(self) -> dict[str, Any]:
        """Return what the front end needs: texts and an index, no numbers to format."""
        return {
            "name": self.name,
            "label": label(self.name),
            "kind": self.kind,
            "texts": [text(value) for value in self.values],
            "start": self.start,
        }


def text(value: Value) -> str:
    """Return a value as a reader sees it: 0.2, 10,000, on."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}".replace("-", "−")
    return value


def control(name: str, spec: object) -> Control:
    """Read the specification of the control called `name`.

    Raises `ValueError` or `TypeError` that names the control and what was expected.
    """
    if isinstance(spec, bool):
        return Control(name, "switch", (False, True), int(spec))
    if isinstance(spec, int | float):
        if not math.isfinite(spec):
            raise ValueError(f"{name}: {spec} is no number to start at")
        return Control(name, "number", (spec,), spec)
    if isinstance(spec, list) and spec:
        return _from_list(name, spec, spec[0])
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], list):
        return _from_list(name, *spec)
    if isinstance(spec, tuple) and len(spec) == 4:
        return _from_range(name, *spec)
    raise TypeError(
        f"{name}: {spec!r} is no control; expected (low, high, step, start), a list of "
        "numbers, a list of words, True, False or a number"
    )


def _from_list(name: str, spec: Sequence[Value], start: Value) -> Control:
    words = all(isinstance(value, str) for value in spec)
    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in spec
    )
    if len(spec) < 2 or not (words or numbers) or len(set(spec)) < len(spec):
        raise ValueError(
            f"{name}: {spec!r}; expected two or more different values, "
            "all numbers or all words"
        )
    if start not in spec:
        raise ValueError(f"{name}: start {start!r} is none of {spec!r}")
    return Control(
        name, "choice" if words else "slider", tuple(spec), spec.index(start)
    )


def _from_range(
    name: str, low: float, high: float, step: float, start: float
) -> Control:
    if not (step > 0 and high > low):
        raise ValueError(
            f"{name}: ({low}, {high}, {step}, {start}); "
            "expected low < high and step > 0"
        )
    # Decimal keeps 0.1 + 0.2 out of the labels, and the last value inside the range.
    first, width = Decimal(str(low)), Decimal(str(step))
    count = int((Decimal(str(high)) - first) / width) + 1
    number = int if all(float(x).is_integer() for x in (low, step, start)) else float
    values = tuple(number(first + width * index) for index in range(count))
    if start not in values:
        raise ValueError(f"{name}: start {start} is none of {values[0]} … {values[-1]}")
    return Control(name, "slider", values, values.index(number(start)))
