"""Colours and axes shared by all plots.

Colours are Okabe and Ito's, which people with any common form of colour blindness can
tell apart; no plot relies on colour alone, so each series also has its own line style
and marker.
"""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
BLACK, GREY = "#000000", "#8a8a8a"

# What stands for what, in every chapter.
EXACT: dict[str, Any] = {"color": BLACK, "linestyle": "--", "linewidth": 1.3}
ESTIMATE: dict[str, Any] = {"color": BLUE, "linestyle": "-", "marker": "o"}
LIMIT: dict[str, Any] = {"color": ORANGE, "linestyle": "-.", "linewidth": 1.6}


def panels(figure: Figure, count: int, **options: Any) -> list[Axes]:
    """Return `count` axes side by side, without top and right spines."""
    axes = figure.subplots(1, count, squeeze=False, **options)[0]
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=9)
        one.grid(alpha=0.25, linewidth=0.6)
    return list(axes)


def describe(axes: Axes, title: str, x: str, y: str) -> None:
    """Set the three texts of one panel."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
