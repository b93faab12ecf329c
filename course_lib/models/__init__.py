"""Networks: policies, value functions, and how their parameters lie in memory."""

from course_lib.models.actor_critic import ActorCritic
from course_lib.models.adam import Adam
from course_lib.models.distributions import Categorical, DiagonalGaussian, Distribution
from course_lib.models.gru import TokenGRU
from course_lib.models.gru_lm import GRULanguageModel, Sampled
from course_lib.models.mlp import StackedLinear, mlp
from course_lib.models.parameters import FlatParameters
from course_lib.models.reward_model import RewardModel

__all__ = [
    "ActorCritic",
    "Adam",
    "Categorical",
    "DiagonalGaussian",
    "Distribution",
    "FlatParameters",
    "GRULanguageModel",
    "RewardModel",
    "Sampled",
    "StackedLinear",
    "TokenGRU",
    "mlp",
]
