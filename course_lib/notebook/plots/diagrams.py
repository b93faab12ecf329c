"""Drawn figures: no data, only shapes. The build writes each as an SVG."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

from course_lib.notebook.plots.style import BLACK, BLUE, GREEN, GREY
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
        _arrow(axes, place, place + 1, BLUE)
        _arrow(axes, place, place - 1, GREY)
    axes.text(5.5, 0.72, "+1", color=GREEN, fontsize=14, weight="bold", ha="center")
    axes.text(3, -0.95, word("diagram.start"), fontsize=10, ha="center")
    start = FancyArrowPatch(
        (3, -0.78), (3, -0.36), arrowstyle="-|>", mutation_scale=12, color=BLACK
    )
    axes.add_patch(start)
    axes.text(0, -0.62, word("diagram.end"), fontsize=9, ha="center", color=GREY)
    axes.text(6, -0.62, word("diagram.end"), fontsize=9, ha="center", color=GREY)
    return word("alt.random_walk_chain")


def _state(axes: Axes, x: float, name: str) -> None:
    axes.add_patch(Circle((x, 0), 0.3, facecolor="white", edgecolor=BLACK, lw=1.6))
    axes.text(x, 0, name, fontsize=14, ha="center", va="center")


def _end(axes: Axes, x: float) -> None:
    box = Rectangle((x - 0.26, -0.26), 0.52, 0.52, facecolor="#e6e6e6", edgecolor=BLACK)
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
        lw=1.3,
    )
    axes.add_patch(arrow)
    height = 0.42 if right else -0.47
    axes.text((start + end) / 2, height, "½", fontsize=10, ha="center", va="center")


CHAIN_SIZE = (7.2, 2.2)  # inches
DIAGRAMS: dict[str, tuple[Callable[[Figure], str], tuple[float, float]]] = {
    "random-walk": (random_walk_chain, CHAIN_SIZE)
}
"""Each diagram's draw function and size, by the name of its SVG."""
