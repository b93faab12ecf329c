"""The algorithms of the course, each a plain function whose steps can be replaced."""

from course_lib.algorithms.evaluation import (
    SweepResult,
    expected_backup,
    policy_evaluation,
    sweeps,
)
from course_lib.algorithms.monte_carlo import (
    MonteCarloEstimate,
    monte_carlo,
    monte_carlo_from_episodes,
)
from course_lib.algorithms.temporal_difference import TDResult, td_update, td_zero

__all__ = [
    "MonteCarloEstimate",
    "SweepResult",
    "TDResult",
    "expected_backup",
    "monte_carlo",
    "monte_carlo_from_episodes",
    "policy_evaluation",
    "sweeps",
    "td_update",
    "td_zero",
]
