"""The algorithms of the course, each a plain function whose steps can be replaced."""

from course_lib.algorithms.actor_critic import ActorCriticConfig, actor_critic
from course_lib.algorithms.evaluation import (
    SweepResult,
    expected_backup,
    policy_evaluation,
    sweeps,
)
from course_lib.algorithms.history import Episode, History
from course_lib.algorithms.monte_carlo import (
    MonteCarloEstimate,
    monte_carlo,
    monte_carlo_from_episodes,
)
from course_lib.algorithms.ppo import PPOConfig, ppo
from course_lib.algorithms.reinforce import ReinforceConfig, reinforce
from course_lib.algorithms.temporal_difference import TDResult, td_update, td_zero
from course_lib.algorithms.trpo import TRPOConfig, trpo

__all__ = [
    "ActorCriticConfig",
    "Episode",
    "History",
    "MonteCarloEstimate",
    "PPOConfig",
    "ReinforceConfig",
    "SweepResult",
    "TDResult",
    "TRPOConfig",
    "actor_critic",
    "expected_backup",
    "monte_carlo",
    "monte_carlo_from_episodes",
    "policy_evaluation",
    "ppo",
    "reinforce",
    "sweeps",
    "td_update",
    "td_zero",
    "trpo",
]
