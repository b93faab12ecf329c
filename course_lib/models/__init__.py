"""Networks: policies, value functions, and how their parameters lie in memory."""

from course_lib.models.actor_critic import ActorCritic
from course_lib.models.adam import Adam
from course_lib.models.distributions import Categorical, DiagonalGaussian, Distribution
from course_lib.models.mlp import StackedLinear, mlp
from course_lib.models.parameters import FlatParameters

__all__ = [
    "ActorCritic",
    "Adam",
    "Categorical",
    "DiagonalGaussian",
    "Distribution",
    "FlatParameters",
    "StackedLinear",
    "mlp",
]
