"""Oracles: answers without sampling, for tests to compare with and chapters to show."""

from course_lib.exact.feedback import off_path_probabilities, right_in_the_better
from course_lib.exact.frontier import (
    preference_ceiling,
    score_distribution,
    tilted,
    uniform_optimum,
)
from course_lib.exact.kl_estimators import estimator_gradient, estimator_moments
from course_lib.exact.language import evaluate, optimum
from course_lib.exact.mdp import action_values, advantages, state_values, visitation
from course_lib.exact.token_tree import (
    TokenTree,
    end_scores,
    policy_table,
    reward_scores,
    uniform_table,
)

__all__ = [
    "TokenTree",
    "action_values",
    "advantages",
    "end_scores",
    "estimator_gradient",
    "estimator_moments",
    "evaluate",
    "off_path_probabilities",
    "optimum",
    "policy_table",
    "preference_ceiling",
    "reward_scores",
    "right_in_the_better",
    "score_distribution",
    "state_values",
    "tilted",
    "uniform_optimum",
    "uniform_table",
    "visitation",
]
