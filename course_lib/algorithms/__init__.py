"""The algorithms of the course, each a plain function whose steps can be replaced."""

from course_lib.algorithms.evaluation import (
    MonteCarloEstimate,
    SweepResult,
    TDResult,
    expected_backup,
    monte_carlo,
    monte_carlo_from_episodes,
    policy_evaluation,
    sweeps,
    td_update,
    td_zero,
)

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
