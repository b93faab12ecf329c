"""Draw functions: `draw(fig, **values) -> alt text`, for `scrub` and `picture`.

Chapters, slides and `figures/` use the same ones.
"""

from course_lib.notebook.plots.diagrams import DIAGRAMS, random_walk_chain
from course_lib.notebook.plots.values import monte_carlo_interval, value_sweeps

__all__ = ["DIAGRAMS", "monte_carlo_interval", "random_walk_chain", "value_sweeps"]
