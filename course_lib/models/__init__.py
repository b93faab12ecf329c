"""Networks: policies, value functions, and how their parameters lie in memory."""

from course_lib.models.actor_critic import ActorCritic
from course_lib.models.adam import Adam
from course_lib.models.distributions import Categorical, DiagonalGaussian, Distribution
from course_lib.models.gru import TokenGRU
from course_lib.models.gru_lm import GRULanguageModel
from course_lib.models.hugging_face import HuggingFaceTrunk
from course_lib.models.language_policy import LanguagePolicy, Prompts, Sampled
from course_lib.models.mlp import StackedLinear, mlp
from course_lib.models.parameters import FlatParameters
from course_lib.models.prompted import PromptedPolicy, PromptedRewardModel, ScalarHead
from course_lib.models.reward_model import RewardModel
from course_lib.models.sampling import Sampling, kept_tokens
from course_lib.models.transformer import (
    Transformer,
    TransformerConfig,
    num_parameters,
)

__all__ = [
    "ActorCritic",
    "Adam",
    "Categorical",
    "DiagonalGaussian",
    "Distribution",
    "FlatParameters",
    "GRULanguageModel",
    "HuggingFaceTrunk",
    "LanguagePolicy",
    "PromptedPolicy",
    "PromptedRewardModel",
    "Prompts",
    "RewardModel",
    "Sampled",
    "Sampling",
    "ScalarHead",
    "StackedLinear",
    "TokenGRU",
    "Transformer",
    "TransformerConfig",
    "kept_tokens",
    "mlp",
    "num_parameters",
]
