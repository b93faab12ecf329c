"""Pictures of chapter 08's objective: its curves, its surface, one sample's journey."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from torch import Tensor

from course_lib.kernels import clipped_policy_loss
from course_lib.notebook.plots.lines import (
    describe,
    estimate,
    faint,
    ground,
    ink,
    line_width,
    muted,
    panels,
    series_color,
    short_ticks,
)
from course_lib.notebook.words import word

LOWEST, HIGHEST = 0.4, 2.0  # of the ratios that are shown
LARGEST = 2.0  # of the advantages
GRID = 9  # squares of the surface along each side, beside its kinks

UPDATES, STEPS = 3, 30  # of the journey


def clip_curves(figure: Figure, eps: float) -> str:
    """The objective of one sample over its ratio, for a good and for a bad action."""
    axes = panels(figure, 2)
    for one, advantage, first in zip(axes, (1.0, -1.0), (1, 4), strict=True):
        _curve(one, advantage, eps)
        for number, ratio in enumerate((0.6, 1.12, 1.75), start=first):
            _numbered(one, number, ratio, objective(ratio, advantage, eps), advantage)
        sign = "+1" if advantage > 0 else "−1"
        describe(
            one,
            word("plot.clip_panel", advantage=sign),
            word("plot.ratio"),
            word("plot.objective") if advantage > 0 else "",
        )
    axes[0].set_ylim(0.0, 2.1)
    axes[1].set_ylim(-2.1, 0.0)
    axes[0].legend(loc="upper left")
    return word(
        "alt.clip_curves", eps=f"{eps:g}", above=f"{1 + eps:g}", below=f"{1 - eps:g}"
    )


def _curve(axes: Axes, advantage: float, eps: float) -> None:
    """L over rho at one advantage, rho A dashed beside it, the flat zone grey."""
    ratios = np.unique([LOWEST, 1 - eps, 1.0, 1 + eps, HIGHEST])
    straight: dict[str, Any] = {
        "color": muted(),
        "linestyle": "--",
        "linewidth": line_width(0.8),
    }
    label = word("plot.unclipped")
    axes.plot(ratios, ratios * advantage, label=label, **straight)
    zone = _flat_zone(advantage, eps)
    if zone is not None:
        axes.axvspan(*zone, color=faint(), label=word("plot.flat"))
    heights = [objective(ratio, advantage, eps) for ratio in ratios]
    look: dict[str, Any] = estimate() | {"marker": None}
    axes.plot(ratios, heights, label=word("plot.clipped"), **look)
    axes.plot([1.0], [advantage], marker="o", color=ink())
    axes.set_xlim(LOWEST, HIGHEST)


def _numbered(
    axes: Axes, number: int, ratio: float, height: float, advantage: float
) -> None:
    """The number of one of the six cases, on the outer side of the curve."""
    text = axes.text(ratio, height - 0.33 * advantage, str(number), color=ink())
    text.set(ha="center", va="center", fontsize="small")
    text.set_bbox(
        {
            "boxstyle": "circle,pad=0.25",
            "facecolor": ground(),
            "edgecolor": ink(),
            "linewidth": line_width(0.5),
        }
    )


def _flat_zone(advantage: float, eps: float) -> tuple[float, float] | None:
    """Where the objective is flat, among the ratios that are shown."""
    if advantage > 0:
        return 1 + eps, HIGHEST
    if advantage < 0:
        return LOWEST, 1 - eps
    return None


@functools.lru_cache(maxsize=8192)
def objective(ratio: float, advantage: float, eps: float) -> float:
    """L^CLIP of one sample, by the kernel that trains."""
    loss, _ = clipped_policy_loss(
        torch.tensor([ratio], dtype=torch.float64).log(),
        torch.zeros(1, dtype=torch.float64),
        torch.tensor([advantage], dtype=torch.float64),
        clip_eps=eps,
    )
    return -float(loss)


def gradients(ratios: Tensor, advantage: float, eps: float) -> Tensor:
    """dL / d log pi of samples with these ratios [N] and one advantage: [N]."""
    log_probs = ratios.log().requires_grad_()
    loss, _ = clipped_policy_loss(
        log_probs,
        torch.zeros_like(ratios),
        torch.full_like(ratios, advantage),
        clip_eps=eps,
        reduction="sequence_sum",
    )
    (-loss).backward()
    assert log_probs.grad is not None
    return log_probs.grad


def clip_surface(figure: Figure, eps: float, advantage: float, turn: int) -> str:
    """L over ratio and advantage in 3-D; beside it a slice of it, and its gradient."""
    solid: Any = figure.add_axes((0.0, 0.02, 0.56, 0.98), projection="3d")
    _surface(solid, eps)
    ratios = np.unique([LOWEST, 1 - eps, 1.0, 1 + eps, HIGHEST])
    heights = [objective(ratio, advantage, eps) for ratio in ratios]
    lift = 0.03  # so that the line does not sink into the surface
    solid.plot(
        ratios,
        np.full_like(ratios, advantage),
        np.array(heights) + lift,
        color=ink(),
        linewidth=line_width(1.6),
        zorder=10,
    )
    solid.view_init(elev=26, azim=-60 + turn)
    upper = figure.add_axes((0.67, 0.61, 0.31, 0.3))
    _curve(upper, advantage, eps)
    upper.set(ylim=(-4.3, 4.3), yticks=[-4, 0, 4])
    upper.set_xticklabels([])
    upper.set_title(word("plot.slice", advantage=_signed(advantage)))
    lower = figure.add_axes((0.67, 0.14, 0.31, 0.3))
    _slope(lower, advantage, eps)
    return word(
        "alt.clip_surface",
        eps=f"{eps:g}",
        above=f"{1 + eps:g}",
        below=f"{1 - eps:g}",
        advantage=_signed(advantage),
        turn=_signed(turn),
        slice=_slice_said(advantage, eps),
    )


def surface_squares(eps: float) -> tuple[np.ndarray, np.ndarray]:
    """The surface cut into squares along its kinks, and which of them are flat.

    Returns:
        corners: [N, 4, 3], each as ratio, advantage, L.
        flat: [N] bool, where L does not depend on the ratio.
    """
    # Rounded, so that an edge which the grid meets does not leave a sliver beside it.
    grid = [*np.linspace(LOWEST, HIGHEST, GRID), 1 - eps, 1 + eps]
    ratios = np.unique(np.round(grid, 9))
    advantages = np.unique([*np.linspace(-LARGEST, LARGEST, GRID), 0.0])
    points = np.array(
        [[(r, a, objective(r, a, eps)) for a in advantages] for r in ratios]
    )  # [R, A, 3]
    corners = np.stack(
        [points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]], 2
    ).reshape(-1, 4, 3)
    ratio, advantage = corners[:, :, 0].mean(1), corners[:, :, 1].mean(1)
    flat = ((advantage > 0) & (ratio > 1 + eps)) | ((advantage < 0) & (ratio < 1 - eps))
    return corners, flat


def _surface(axes: Any, eps: float) -> None:
    """The squares: a mesh where L slopes, solid where it is flat."""
    corners, flat = surface_squares(eps)
    faces = np.where(flat, series_color(1), ground())
    lines = np.where(flat, series_color(1), series_color(0))
    look = {"facecolors": faces, "edgecolors": lines, "linewidths": line_width(0.5)}
    axes.add_collection3d(Poly3DCollection(corners, **look))
    axes.set(xlim=(LOWEST, HIGHEST), ylim=(-LARGEST, LARGEST), zlim=(-4.0, 3.0))
    axes.set(xticks=[0.5, 1, 1.5, 2], yticks=[-2, 0, 2], zticks=[-4, -2, 0, 2])
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color(ground())
        short_ticks(axis)
    # Single letters, upright: a longer label would turn with its axis into the ticks.
    for axis, name in ((axes.xaxis, "ρ"), (axes.yaxis, "A")):
        axis.set_rotate_label(False)
        axis.set_label_text(name, rotation=0)
        axis.labelpad = 2
    axes.set_box_aspect(None, zoom=0.94)
    axes.text2D(0.04, 0.95, word("plot.surface"), transform=axes.transAxes)
    patch = Patch(color=series_color(1), label=word("plot.flat"))
    axes.legend(handles=[patch], loc="upper right")


def _slope(axes: Axes, advantage: float, eps: float) -> None:
    """dL / d log pi over the ratio, with its jump where the ground becomes flat."""
    look: dict[str, Any] = estimate() | {"marker": None}
    zone = _flat_zone(advantage, eps)
    ratios = torch.linspace(LOWEST, HIGHEST, 81, dtype=torch.float64)
    if zone is not None:
        axes.axvspan(*zone, color=faint())
    slopes = gradients(ratios, advantage, eps)
    alive = torch.where(slopes != 0, slopes, torch.nan)
    axes.plot(ratios, alive, **look)
    if bool((slopes == 0).any()):
        dead = torch.where(slopes == 0, slopes, torch.nan)
        axes.plot(ratios, dead, **(look | {"color": series_color(1)}))
    start = gradients(torch.ones(1, dtype=torch.float64), advantage, eps)
    axes.plot([1.0], start, marker="o", color=ink())
    axes.set(xlim=(LOWEST, HIGHEST), ylim=(-4.3, 4.3), yticks=[-4, 0, 4])
    describe(axes, word("plot.slope"), word("plot.ratio"), "")


def _signed(value: float) -> str:
    return f"{value:+g}".replace("-", "−") if value else "0"


def _slice_said(advantage: float, eps: float) -> str:
    zone = _flat_zone(advantage, eps)
    if zone is None:
        return word("alt.slice_zero")
    key = "alt.slice_good" if advantage > 0 else "alt.slice_bad"
    edge = zone[0] if advantage > 0 else zone[1]
    return word(key, edge=f"{edge:g}")


def ratio_journey(figure: Figure, eps: float, learning_rate: float) -> str:
    """One good action's ratio and probability over three updates of many steps."""
    ratios, probabilities, dead = _journey(eps, learning_rate)  # [U, N + 1] each
    left, right = panels(figure, 2)
    left.axhspan(1 - eps, 1 + eps, color=faint(), label=word("plot.band"))
    silent: dict[str, Any] = {
        "color": series_color(1),
        "marker": "x",
        "linestyle": "none",
    }
    silent["markersize"] = 3 * line_width()
    steps = np.arange(STEPS + 1)
    look: dict[str, Any] = estimate() | {"marker": None}
    for update in range(UPDATES):
        at = steps + update * (STEPS + 1)
        left.plot(at, ratios[update], **look)
        left.plot(at[dead[update]], ratios[update][dead[update]], **silent)
        right.plot(at, probabilities[update], **look)
        edge = [(1 + eps) * float(probabilities[update, 0])] * 2
        right.plot(at[[0, -1]], edge, color=muted(), linestyle=":")
    left.lines[1].set_label(word("plot.flat"))
    right.lines[1].set_label(word("plot.upper_edge"))
    left.legend(loc="upper right", ncols=2)
    right.legend(loc="upper left")
    left.set_yscale("log")
    left.set_ylim(0.45, 5.5)
    left.set_yticks([0.5, 1, 2, 4])
    left.minorticks_off()
    short_ticks(left.yaxis)
    right.set_ylim(0.0, 1.25)
    right.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0])
    describe(left, word("plot.ratio_title"), word("plot.gradient_steps"), "ρ")
    describe(right, word("plot.probability_title"), word("plot.gradient_steps"), "π")
    first = dead[0].nonzero()[:, 0]
    silent_from = (
        word("alt.journey_silent", step=int(first[0]))
        if len(first)
        else word("alt.journey_never")
    )
    return word(
        "alt.ratio_journey",
        eps=f"{eps:g}",
        learning_rate=f"{learning_rate:g}",
        ends=", ".join(f"{float(r[-1]):.2f}" for r in ratios),
        silent=silent_from,
        probability=f"{float(probabilities[-1, -1]):.2f}",
    )


@functools.lru_cache(maxsize=128)
def _journey(eps: float, learning_rate: float) -> tuple[Tensor, Tensor, Tensor]:
    """Ratio, probability, and whether the gradient is 0, before each step and at the
    end: [UPDATES, STEPS + 1] each.

    One state, four actions that start out equally likely; the first one was sampled
    and has advantage 1. Adam's averages go on from update to update, as in a run.
    """
    logits = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=learning_rate)
    shape = (UPDATES, STEPS + 1)
    ratios, probabilities = torch.zeros(shape), torch.zeros(shape)
    dead = torch.zeros(shape, dtype=torch.bool)
    gain = torch.ones(1, dtype=torch.float64)
    for update in range(UPDATES):
        old = logits.detach().log_softmax(-1)[:1]
        for step in range(STEPS + 1):
            log_prob = logits.log_softmax(-1)[:1]
            loss, seen = clipped_policy_loss(log_prob, old, gain, clip_eps=eps)
            ratios[update, step] = seen["ratio_max"]
            probabilities[update, step] = log_prob.detach().exp()
            dead[update, step] = seen["clip_frac_active"] > 0
            if step < STEPS:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return ratios, probabilities, dead
