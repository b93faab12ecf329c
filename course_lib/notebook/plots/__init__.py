"""Draw functions: `draw(fig, **values) -> alt text`, for `scrub` and `picture`.

Chapters, slides and `figures/` use the same ones. How they look is chosen once, by
`use`; sizes are named here; `live_curves` follows a training loop.
"""

from course_lib.notebook.plots.clip import clip_curves, clip_surface, ratio_journey
from course_lib.notebook.plots.course_map import course_map
from course_lib.notebook.plots.curves import training_curves
from course_lib.notebook.plots.diagnostics import run_diagnostics
from course_lib.notebook.plots.diagrams import (
    DIAGRAMS,
    agent_environment_loop,
    cartpole,
    random_walk_chain,
)
from course_lib.notebook.plots.live import live_curves
from course_lib.notebook.plots.mdp import cartpole_episode, discount_weights
from course_lib.notebook.plots.own_run import band_verdict, run_over_band
from course_lib.notebook.plots.ppo_loop import ppo_loop
from course_lib.notebook.plots.runs import (
    bands_and_record,
    detail_effects,
    difference,
    learning_bands,
    run_name,
    seconds_a_step,
)
from course_lib.notebook.plots.sick_run import CASES, sick_run
from course_lib.notebook.plots.start import copying_drift, verdict_credit
from course_lib.notebook.plots.style import PANELS, SQUARE, STRIP, WIDE, use
from course_lib.notebook.plots.values import (
    monte_carlo_interval,
    td_learning,
    value_sweeps,
)

__all__ = [
    "CASES",
    "DIAGRAMS",
    "PANELS",
    "SQUARE",
    "STRIP",
    "WIDE",
    "agent_environment_loop",
    "band_verdict",
    "bands_and_record",
    "cartpole",
    "cartpole_episode",
    "clip_curves",
    "clip_surface",
    "copying_drift",
    "course_map",
    "detail_effects",
    "difference",
    "discount_weights",
    "learning_bands",
    "live_curves",
    "monte_carlo_interval",
    "ppo_loop",
    "random_walk_chain",
    "ratio_journey",
    "run_diagnostics",
    "run_name",
    "run_over_band",
    "seconds_a_step",
    "sick_run",
    "td_learning",
    "training_curves",
    "use",
    "value_sweeps",
    "verdict_credit",
]
