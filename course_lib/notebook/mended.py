"""`mended`: a run of "Find the bug" trained anew, without its bug."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib import data
from course_lib.algorithms import History, PPOConfig, ppo
from course_lib.envs import CartPole
from course_lib.notebook.plots.live import LiveCurves, live_curves
from course_lib.notebook.plots.sick_run import stored_name
from course_lib.notebook.words import word


@dataclass(frozen=True)
class Mended:
    """A run without its bug; as the last line of a cell it says how it went."""

    case: str
    history: History

    def __repr__(self) -> str:
        stored = data.load(stored_name(self.case))["solved_at"]
        sick = sum(at is not None for at in stored)
        at = self.history.solved_at()
        kind = "mended.solved" if at is not None else "mended.unsolved"
        steps = self.history.env_steps[0]
        told = {"at": f"{at or 0:,}", "steps": f"{steps:,}"}
        return word(kind, sick=sick, count=len(stored), **told)


def mended(case: str, *, seed: int = 0, total_steps: int = 49_152) -> Mended:
    """Train the run behind a letter anew, without its bug, drawn over the old one.

    Args:
        case: its letter.
        seed: of the agent and of its environments.
        total_steps: half of the stored run's by default, which is enough to reach 475;
            the learning rate is annealed over them.

    Returns:
        Mended: its `history`, and how it went in words.

    Raises:
        ValueError: no such case.
    """
    name = stored_name(case)
    curves = live_curves("episode_return", x="env_steps")
    _draw_stored(curves, name, total_steps)
    history = ppo(
        CartPole(8, seeds=seed),
        PPOConfig(seeds=(seed,), total_steps=total_steps),
        callback=curves.series(word("mended.after")),
    )
    return Mended(case, history)


def _draw_stored(curves: LiveCurves, name: str, most: int) -> None:
    records = data.load(name)["records"]
    draw = curves.series(word("mended.before"))
    pairs = zip(records["env_steps"], records["episode_return"], strict=True)
    for update, (steps, mean) in enumerate(pairs):
        if steps <= most:
            draw(update, {"env_steps": steps, "episode_return": mean})
