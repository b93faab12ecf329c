"""Draw functions: `draw(fig, **values) -> alt text`, for `scrub` and `picture`.

Chapters, slides and `figures/` use the same ones. How they look is chosen once, by
`use`; sizes are named here; `live_curves` follows a training loop.
"""

from course_lib.notebook.plots.course_map import course_map
from course_lib.notebook.plots.curves import training_curves
from course_lib.notebook.plots.diagrams import (
    DIAGRAMS,
    agent_environment_loop,
    cartpole,
    random_walk_chain,
)
from course_lib.notebook.plots.live import live_curves
from course_lib.notebook.plots.mdp import cartpole_episode, discount_weights
from course_lib.notebook.plots.start import copying_drift, verdict_credit
from course_lib.notebook.plots.style import PANELS, SQUARE, STRIP, WIDE, use
from course_lib.notebook.plots.values import (
    monte_carlo_interval,
    td_learning,
    value_sweeps,
)

__all__ = [
    "DIAGRAMS",
    "PANELS",
    "SQUARE",
    "STRIP",
    "WIDE",
    "agent_environment_loop",
    "cartpole",
    "cartpole_episode",
    "copying_drift",
    "course_map",
    "discount_weights",
    "live_curves",
    "monte_carlo_interval",
    "random_walk_chain",
    "td_learning",
    "training_curves",
    "use",
    "value_sweeps",
    "verdict_credit",
]
