"""The map of the course: seven ideas, each one asked for by the one before it."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from course_lib.notebook.plots.lines import faint, ink, line_width, series_color
from course_lib.notebook.words import word

STATIONS = (
    *("mdp", "value", "policy_gradient", "actor_critic"),
    *("trust_region", "ppo", "rlhf"),
)
_IN_A_ROW = 4
_WIDE, _HIGH, _STEP, _ROW = 1.5, 1.02, 1.8, 1.5


def course_map(figure: Figure) -> str:
    """Draw the way from the problem to RLHF, with what each station answers."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 7.2), ylim=(0, 3.0))
    axes.axis("off")
    places = [_place(number) for number in range(len(STATIONS))]
    for station, (x, y) in zip(STATIONS, places, strict=True):
        _station(axes, station, x, y)
    for number in range(len(STATIONS) - 1):
        _way(axes, places[number], places[number + 1])
    return word("alt.course_map")


def _place(number: int) -> tuple[float, float]:
    """The first four stand above, the others below, half a step further in."""
    row, column = divmod(number, _IN_A_ROW)
    return 0.9 + _STEP * (column + 0.5 * row), 2.3 - _ROW * row


def _station(axes: Axes, station: str, x: float, y: float) -> None:
    corner = (x - _WIDE / 2 + 0.05, y - _HIGH / 2 + 0.05)
    box = FancyBboxPatch(corner, _WIDE - 0.1, _HIGH - 0.1, boxstyle="round,pad=0.05")
    box.set(facecolor=faint(), edgecolor=ink(), linewidth=line_width(1))
    axes.add_patch(box)
    lines = (
        ("name", 0.3, "medium"),
        ("asks", -0.04, "small"),
        ("where", -0.38, "small"),
    )
    for what, above, size in lines:
        text = axes.text(x, y + above, word(f"map.{station}.{what}"), fontsize=size)
        text.set(ha="center", va="center")


def _way(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """An arrow to the right, or from the end of the row above to the row below."""
    (x0, y0), (x1, y1) = start, end
    if y0 == y1:
        _arrow(axes, (x0 + _WIDE / 2, y0), (x1 - _WIDE / 2, y1))
        return
    between = (y0 + y1) / 2
    axes.plot(
        [x0, x0, x1, x1],
        [y0 - _HIGH / 2, between, between, between],
        color=series_color(0),
        linewidth=line_width(1.2),
        solid_joinstyle="round",
    )
    _arrow(axes, (x1, between), (x1, y1 + _HIGH / 2))


def _arrow(axes: Axes, tail: tuple[float, float], head: tuple[float, float]) -> None:
    arrow = FancyArrowPatch(
        tail, head, arrowstyle="-|>", mutation_scale=14, shrinkA=0, shrinkB=0
    )
    arrow.set(color=series_color(0), linewidth=line_width(1.2))
    axes.add_patch(arrow)
