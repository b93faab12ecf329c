"""Drawn figures: no data, only shapes. The build writes each as an SVG."""

import math
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from course_lib.notebook.plots.course_map import course_map
from course_lib.notebook.plots.lines import (
    faint,
    ground,
    ink,
    line_width,
    muted,
    series_color,
)
from course_lib.notebook.plots.ppo_loop import ppo_loop
from course_lib.notebook.plots.style import STRIP, WIDE, Size
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


def agent_environment_loop(figure: Figure) -> str:
    """The loop: an action one way; a reward and the next state the other way."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-3.6, 3.6), ylim=(-1.1, 1.1))
    axes.axis("off")
    _box(axes, -2.2, word("diagram.agent"), word("diagram.agent_rule"))
    _box(axes, 2.2, word("diagram.environment"), word("diagram.environment_rule"))
    _turn(axes, (-1.15, 0.35), (1.15, 0.35), series_color(0))
    _turn(axes, (1.15, -0.12), (-1.15, -0.12), series_color(1))
    _turn(axes, (1.15, -0.5), (-1.15, -0.5), ink())
    axes.text(0, 0.44, word("diagram.action"), ha="center", va="bottom")
    axes.text(0, -0.03, word("diagram.reward"), ha="center", va="bottom")
    axes.text(0, -0.59, word("diagram.next_state"), ha="center", va="top")
    return word("alt.agent_environment_loop")


def _box(axes: Axes, x: float, name: str, rule: str) -> None:
    box = FancyBboxPatch((x - 0.95, -0.75), 1.9, 1.4, boxstyle="round,pad=0.06")
    box.set(facecolor=faint(), edgecolor=ink(), linewidth=line_width())
    axes.add_patch(box)
    axes.text(x, 0.18, name, fontsize="x-large", ha="center", va="center_baseline")
    axes.text(x, -0.32, rule, ha="center", va="center_baseline", color=ink())


def _turn(
    axes: Axes, tail: tuple[float, float], head: tuple[float, float], color: str
) -> None:
    arrow = FancyArrowPatch(tail, head, arrowstyle="-|>", mutation_scale=16)
    arrow.set(color=color, linewidth=line_width(1.2))
    axes.add_patch(arrow)


def cartpole(figure: Figure) -> str:
    """CartPole: what is measured, what may be done, and where it is over."""
    axes = figure.add_axes((0, 0, 1, 1))
    lean = math.radians(9)
    x = -0.8
    draw_cart(axes, x, lean, push=1)
    axes.set(xlim=(-3.4, 3.4), ylim=(-0.75, 1.5))
    tip = (x + math.sin(lean), 0.3 + math.cos(lean))
    axes.plot([x, x], [0.3, 1.36], color=muted(), linestyle=":")
    axes.text(tip[0] + 0.12, tip[1] - 0.12, word("diagram.angle"), va="center")
    axes.text(x + 1.06, 0.15, word("diagram.push"), va="center")
    axes.plot([0, 0], [-0.06, -0.2], color=ink())
    axes.plot([x, 0], [-0.13, -0.13], color=ink(), linewidth=line_width(0.7))
    axes.text(x / 2, -0.22, word("diagram.position"), ha="center", va="top")
    for edge, said in ((-2.4, "−2.4 m"), (2.4, "+2.4 m")):
        axes.text(edge, -0.22, said, ha="center", va="top")
    axes.text(tip[0] + 0.12, tip[1] - 0.42, word("diagram.limits"), color=muted())
    return word("alt.cartpole")


def draw_cart(axes: Axes, x: float, angle: float, *, push: int) -> None:
    """Draw the cart at `x` metres, its pole at `angle` radians from upright, clockwise
    positive, and an arrow for the push (0 left, 1 right) on its track."""
    axes.set(xlim=(-2.7, 2.7), ylim=(-1.0, 1.5), aspect="equal")
    axes.axis("off")
    axes.plot([-2.4, 2.4], [0, 0], color=ink(), linewidth=line_width(0.7))
    for edge in (-2.4, 2.4):
        axes.plot([edge, edge], [-0.14, 0.14], color=series_color(1))
    cart = Rectangle((x - 0.25, 0.02), 0.5, 0.28)
    cart.set(facecolor=faint(), edgecolor=ink(), linewidth=line_width())
    axes.add_patch(cart)
    axes.plot(
        [x, x + math.sin(angle)],
        [0.3, 0.3 + math.cos(angle)],
        color=series_color(0),
        linewidth=line_width(3),
        solid_capstyle="round",
    )
    way = 1 if push else -1
    _turn(axes, (x + 0.3 * way, 0.15), (x + 0.95 * way, 0.15), series_color(2))


DIAGRAMS: dict[str, tuple[Callable[[Figure], str], Size]] = {
    "agent-environment": (agent_environment_loop, STRIP),
    "cartpole": (cartpole, STRIP),
    "course-map": (course_map, WIDE),
    "ppo-loop": (ppo_loop, WIDE),
    "random-walk": (random_walk_chain, STRIP),
}
"""Each diagram's draw function and size, by the name of its SVG."""
