"""One iteration of PPO as a drawn loop."""

from collections.abc import Sequence
from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from course_lib.notebook.plots.lines import (
    faint,
    ground,
    ink,
    line_width,
    muted,
    series_color,
)
from course_lib.notebook.words import word

_LOW, _HIGH = 1.12, 1.3  # where the boxes stand, and how tall they are
_BOXES = {"collect": 0.08, "estimate": 1.6, "shuffle": 3.2, "loss": 4.58, "step": 5.9}
_WIDE = {"collect": 1.32, "estimate": 1.2, "shuffle": 1.16, "loss": 1.1, "step": 1.0}


def ppo_loop(figure: Figure) -> str:
    """Collect, estimate, then epochs of minibatches; and the policy is the old one."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 7.2), ylim=(0, 3.0))
    axes.axis("off")
    frame = FancyBboxPatch((3.1, 0.75), 3.92, 2.08, boxstyle="round,pad=0.05")
    frame.set(facecolor=ground(), edgecolor=muted(), linestyle="--")
    axes.add_patch(frame)
    said = axes.text(5.06, 2.65, word("loop.epochs"), color=muted(), fontsize="small")
    said.set(ha="center", va="center")
    for name in _BOXES:
        _box(axes, name)
    middle = _LOW + _HIGH / 2
    for one, other in pairwise(_BOXES):
        ends = (_BOXES[one] + _WIDE[one], middle), (_BOXES[other], middle)
        _way(axes, ends, series_color(0))
    from_step, to_shuffle = _BOXES["step"] + 0.5, _BOXES["shuffle"] + 0.58
    around = ((from_step, _LOW), (from_step, 0.88), (to_shuffle, 0.88))
    _way(axes, (*around, (to_shuffle, _LOW)), series_color(1))
    back = ((6.4, 0.7), (6.4, 0.25), (0.74, 0.25), (0.74, _LOW))
    _way(axes, back, series_color(0))
    again = axes.text(3.57, 0.42, word("loop.again"), fontsize="small", color=ink())
    again.set(ha="center", va="center")
    return word("alt.ppo_loop")


def _box(axes: Axes, name: str) -> None:
    x, wide = _BOXES[name], _WIDE[name]
    box = FancyBboxPatch((x + 0.05, _LOW + 0.05), wide - 0.1, _HIGH - 0.1)
    box.set_boxstyle("round,pad=0.05")
    box.set(facecolor=faint(), edgecolor=ink(), linewidth=line_width())
    axes.add_patch(box)
    head = axes.text(x + wide / 2, _LOW + 1.0, word(f"loop.{name}.name"))
    rest = axes.text(x + wide / 2, _LOW + 0.46, word(f"loop.{name}.what"))
    rest.set(fontsize="small", linespacing=1.5)
    for text in (head, rest):
        text.set(ha="center", va="center", color=ink())


def _way(axes: Axes, places: Sequence[tuple[float, float]], color: str) -> None:
    """A line through these places with an arrow's head at its end."""
    if len(places) > 2:
        xs, ys = zip(*places[:-1], strict=True)
        axes.plot(xs, ys, color=color, linewidth=line_width(1.2))
    arrow = FancyArrowPatch(
        *places[-2:], arrowstyle="-|>", mutation_scale=13, shrinkA=0, shrinkB=0
    )
    arrow.set(color=color, linewidth=line_width(1.2))
    axes.add_patch(arrow)
