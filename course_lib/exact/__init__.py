"""Oracles: answers without sampling, for tests to compare with and chapters to show."""

from course_lib.exact.feedback import off_path_probabilities, right_in_the_better
from course_lib.exact.mdp import action_values, advantages, state_values, visitation

__all__ = [
    "action_values",
    "advantages",
    "off_path_probabilities",
    "right_in_the_better",
    "state_values",
    "visitation",
]
