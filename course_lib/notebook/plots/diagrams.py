"""Drawn figures: no data, only shapes. The build writes each as an SVG."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from course_lib.notebook.plots.lines import (
    faint,
    ground,
    ink,
    line_width,
    muted,
    series_color,
)
from course_lib.notebook.plots.style import STRIP, Size
from course_lib.notebook.words import word


def random_walk_chain(figure: Figure) -> str:
    """The walk: five states between two ends, half a chance for either neighbour."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.7, 6.7), ylim=(-1.1, 1.2), aspect="equal")
    axes.axis("off")
    for place in range(1, 6):
        _state(axes, place, "ABCDE"[place - 1])
    _end(axes, 0)
    _end(axes, 6)
    for place in range(1, 6):
        _arrow(axes, place, place + 1, series_color(0))
        _arrow(axes, place, place - 1, muted())
    axes.text(5.5, 0.72, "+1", fontsize="x-large", weight="bold", ha="center")
    axes.text(3, -0.98, word("diagram.start"), ha="center")
    start = FancyArrowPatch(
        (3, -0.76), (3, -0.36), arrowstyle="-|>", mutation_scale=12, color=ink()
    )
    axes.add_patch(start)
    for place in (0, 6):
        axes.text(place, -0.64, word("diagram.end"), ha="center", color=muted())
    return word("alt.random_walk_chain")


def _state(axes: Axes, x: float, name: str) -> None:
    ring = Circle((x, 0), 0.3)
    ring.set(facecolor=ground(), edgecolor=ink(), linewidth=line_width())
    axes.add_patch(ring)
    axes.text(x, 0, name, fontsize="x-large", ha="center", va="center_baseline")


def _end(axes: Axes, x: float) -> None:
    box = Rectangle((x - 0.26, -0.26), 0.52, 0.52)
    box.set(facecolor=faint(), edgecolor=ink(), linewidth=line_width(0.7))
    axes.add_patch(box)


def _arrow(axes: Axes, start: float, end: float, color: str) -> None:
    """An arrow on the upper arc when it goes right, on the lower one when left."""
    right = end > start
    side, lift = (0.24, 0.2) if right else (-0.24, -0.2)
    tail, head = (start + side, lift), (end - side, lift)
    arrow = FancyArrowPatch(
        tail,
        head,
        connectionstyle="arc3,rad=-0.35",
        arrowstyle="-|>",
        mutation_scale=11,
        color=color,
        linewidth=line_width(0.9),
    )
    axes.add_patch(arrow)
    height = 0.42 if right else -0.47
    axes.text((start + end) / 2, height, "½", ha="center", va="center")


DIAGRAMS: dict[str, tuple[Callable[[Figure], str], Size]] = {
    "random-walk": (random_walk_chain, STRIP)
}
"""Each diagram's draw function and size, by the name of its SVG."""
