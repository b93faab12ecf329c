"""What stands for what in every plot: roles, series, and the axes they are drawn on.

Colours are those of the style that is drawn in. No plot relies on colour alone: every
role and every series has its own line or marker too.
"""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from course_lib.notebook.plots.style import current


def exact() -> dict[str, Any]:
    """Return the line of what is known exactly."""
    return {"color": ink(), "linestyle": "--"}


def estimate() -> dict[str, Any]:
    """Return the line of what an algorithm estimates."""
    return series(0)


def limit() -> dict[str, Any]:
    """Return the line of what theory promises: a bound, a rate."""
    return {"color": series_color(1), "linestyle": "-."}


def baseline() -> dict[str, Any]:
    """Return the line of what others are compared with: a history, a peer."""
    return {"color": muted(), "linestyle": "-", "linewidth": line_width(0.8)}


_LINES: tuple[Any, ...] = (
    *("-", "--", "-.", ":"),
    *((0, (7, 1.5, 1, 1.5, 1, 1.5)), (0, (2.5, 1))),
)
_MARKERS = "os^DvX"
MAX_SERIES = len(_MARKERS)


def series(index: int) -> dict[str, Any]:
    """Return colour, line and marker of one of several like things, such as seeds."""
    color = series_color(index)
    return {"color": color, "linestyle": _LINES[index], "marker": _MARKERS[index]}


def series_color(index: int) -> str:
    """Return a series' colour: blue, orange, green, pink, purple, teal.

    Raises `ValueError` outside 0 … 5: more cannot be told apart.
    """
    if not 0 <= index < MAX_SERIES:
        raise ValueError(f"index: {index}; expected 0 to {MAX_SERIES - 1}")
    return current().theme.series[index]


def ink() -> str:
    """Return the colour of text and axes."""
    return current().theme.ink


def muted() -> str:
    """Return the colour of what stays in the background."""
    return current().theme.muted


def faint() -> str:
    """Return the colour of fillings."""
    return current().theme.faint


def ground() -> str:
    """Return the colour that a picture stands on."""
    return current().theme.ground


def line_width(share: float = 1.0) -> float:
    """Return this share of an ordinary line's width, in points."""
    return share * current().medium.line


def panels(figure: Figure, count: int, **options: Any) -> list[Axes]:
    """Return `count` axes side by side."""
    return list(figure.subplots(1, count, squeeze=False, **options)[0])


def describe(axes: Axes, title: str, x: str, y: str) -> None:
    """Set the three texts of one panel; a symbol at the y axis stands upright."""
    axes.set_title(title)
    axes.set_xlabel(x)
    text = axes.set_ylabel(y)
    if len(y) <= 2:
        text.set(rotation=0, ha="right", va="center")


def short_ticks(axis: Axis) -> None:
    """Label an axis in at most seven characters, none of them smaller than the rest.

    The exponents of matplotlib's own labels cannot be read from the last row.
    """
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}".replace("-", "−")
    return f"{value:.3g}".replace("e-0", "e-").replace("-", "−")
