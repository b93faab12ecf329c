"""Pictures of chapter 01: what a discount weighs, and one episode of CartPole."""

import functools
import math

import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.envs.cartpole import CartPole
from course_lib.notebook.plots.diagrams import draw_cart
from course_lib.notebook.plots.lines import (
    baseline,
    describe,
    estimate,
    exact,
    faint,
    limit,
    panels,
    series_color,
)
from course_lib.notebook.words import word

SHOWN_STEPS = 100
LEAP_CHANCE, HOP_CHANCE = 0.6, 0.8
ANGLE_LIMIT = 12.0  # degrees
EPISODE_START = (0.0, 0.02, 0.05, 0.02)  # m, m/s, rad, rad/s
NAMES = ("left", "right")


def discount_weights(figure: Figure, gamma: float) -> str:
    """How much a reward k steps away counts, and which way over the stream it favours.

    The stream of the chapter: a leap lands with chance 0.6 and is paid at once; two
    hops land with chance 0.8 and are paid one step later.
    """
    weights = [gamma**k for k in range(SHOWN_STEPS + 1)]
    horizon = 1 / (1 - gamma) if gamma < 1 else math.inf
    left, right = panels(figure, 2)
    left.fill_between(range(SHOWN_STEPS + 1), weights, step="mid", color=faint())
    left.plot(weights, drawstyle="steps-mid", color=series_color(0))
    if horizon <= SHOWN_STEPS:
        left.axvline(horizon, label=word("plot.horizon"), **limit())
        left.legend(loc="upper right")
    left.set(xlim=(-2, SHOWN_STEPS + 2), ylim=(0, 1.05))
    describe(left, word("plot.weight"), word("plot.steps_away"), "")
    leap, hops = LEAP_CHANCE, gamma * HOP_CHANCE
    right.plot([0, 1], [leap, leap], label=word("plot.leap"), **exact())
    right.plot([0, 1], [0, HOP_CHANCE], label=word("plot.hops"), **baseline())
    right.plot([gamma], [max(leap, hops)], **(estimate() | {"linestyle": "none"}))
    right.set(xlim=(-0.03, 1.03), ylim=(0, 1.05))
    right.legend(loc="upper left")
    describe(right, word("plot.stream"), word("plot.discount"), "J")
    return word(
        "alt.discount_weights",
        gamma=f"{gamma:g}",
        ten=f"{gamma**10:.2g}",
        hundred=f"{gamma**100:.2g}",
        horizon=f"{horizon:.3g}" if gamma < 1 else word("plot.no_horizon"),
        leap=f"{leap:g}",
        hops=f"{hops:.3g}",
        better=_better(leap, hops),
    )


def _better(leap: float, hops: float) -> str:
    if math.isclose(leap, hops):
        return word("plot.alike")
    return word("plot.leap" if leap > hops else "plot.hops")


def cartpole_episode(figure: Figure, step: int) -> str:
    """Step `step` of one episode: the cart, what is done, what has been paid."""
    states, actions = stored_episode()
    last = len(actions) - 1
    step = min(step, last)
    x, speed, angle, turning = states[step].tolist()
    degrees = states[:, 2].rad2deg()
    action = word(f"plot.push_{NAMES[int(actions[step])]}")
    left, right = panels(figure, 2, width_ratios=(1.15, 1))
    draw_cart(left, x, angle, push=int(actions[step]))
    left.set_title(word("plot.cart_step", step=step, action=action, paid=step + 1))
    numbers = {
        "x": _signed(x, 2),
        "speed": _signed(speed, 2),
        "angle": _signed(math.degrees(angle), 1),
        "turning": _signed(math.degrees(turning), 0),
    }
    shown = left.text(0, -0.62, word("plot.cart_state", **numbers), ha="center")
    shown.set(va="top", fontsize="small")
    right.plot(range(len(degrees)), degrees.numpy(), **baseline())
    for edge in (-ANGLE_LIMIT, ANGLE_LIMIT):
        right.axhline(edge, **limit())
    right.plot([step], [float(degrees[step])], **estimate())
    right.set(xlim=(-1, len(degrees)), ylim=(-16, 16))
    describe(right, word("plot.pole_angle"), word("plot.step"), "")
    return word(
        "alt.cartpole_episode",
        step=step,
        last=last,
        **numbers,
        action=action,
        paid=step + 1,
        next_angle=_signed(float(degrees[step + 1]), 1),
        end=word("alt.cartpole_over") if step == last else "",
    )


@functools.cache
def stored_episode() -> tuple[Tensor, Tensor]:
    """One episode of the rule "push to the side to which the pole leans".

    Returns:
        states: [T + 1, 4] float64, the state after the last step included.
        actions: [T] int64, 0 left and 1 right.
    """
    env = CartPole(1, seeds=0, dtype=torch.float64)
    start = torch.tensor([EPISODE_START], dtype=torch.float64)
    observations = env.set_state(start)  # [1, 4]
    states, actions = [observations[0]], []
    over = False
    while not over:
        action = (observations[:, 2] > 0).long()  # [1]
        step = env.step(action)
        states.append(step.next_observations[0])
        actions.append(action[0])
        over = bool(step.terminated[0] | step.truncated[0])
        observations = step.observations
    return torch.stack(states), torch.stack(actions)


def _signed(value: float, digits: int) -> str:
    """A number with its sign, and no minus before a zero."""
    rounded = round(value, digits) + 0.0
    return f"{rounded:+.{digits}f}".replace("-", "−")
