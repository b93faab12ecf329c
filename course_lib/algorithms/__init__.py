"""The algorithms of the course, each a plain function whose steps can be replaced."""

from course_lib.algorithms.actor_critic import ActorCriticConfig, actor_critic
from course_lib.algorithms.agent_run import AgentRun
from course_lib.algorithms.evaluation import (
    SweepResult,
    expected_backup,
    policy_evaluation,
    sweeps,
)
from course_lib.algorithms.group import METHODS, GroupConfig, rlhf_group
from course_lib.algorithms.history import Episode, History
from course_lib.algorithms.language_run import LanguageRun
from course_lib.algorithms.monte_carlo import (
    MonteCarloEstimate,
    monte_carlo,
    monte_carlo_from_episodes,
)
from course_lib.algorithms.ppo import PPOConfig, ppo
from course_lib.algorithms.preference import (
    DPOConfig,
    PreferencePairs,
    RewardModelConfig,
    dpo,
    learned_score,
    preference_accuracy,
    sample_pairs,
    train_reward_model,
)
from course_lib.algorithms.prompts import PromptSource, greedy_accuracy
from course_lib.algorithms.reinforce import ReinforceConfig, reinforce
from course_lib.algorithms.responses import LanguageHistory
from course_lib.algorithms.rlhf import RLHFConfig, adapted_beta, rlhf_ppo
from course_lib.algorithms.sft import Demonstrations, SFTConfig, sft
from course_lib.algorithms.supervised import SupervisedRun
from course_lib.algorithms.temporal_difference import TDResult, td_update, td_zero
from course_lib.algorithms.trpo import TRPOConfig, trpo

__all__ = [
    "METHODS",
    "ActorCriticConfig",
    "AgentRun",
    "DPOConfig",
    "Demonstrations",
    "Episode",
    "GroupConfig",
    "History",
    "LanguageHistory",
    "LanguageRun",
    "MonteCarloEstimate",
    "PPOConfig",
    "PreferencePairs",
    "PromptSource",
    "RLHFConfig",
    "ReinforceConfig",
    "RewardModelConfig",
    "SFTConfig",
    "SupervisedRun",
    "SweepResult",
    "TDResult",
    "TRPOConfig",
    "actor_critic",
    "adapted_beta",
    "dpo",
    "expected_backup",
    "greedy_accuracy",
    "learned_score",
    "monte_carlo",
    "monte_carlo_from_episodes",
    "policy_evaluation",
    "ppo",
    "preference_accuracy",
    "reinforce",
    "rlhf_group",
    "rlhf_ppo",
    "sample_pairs",
    "sft",
    "sweeps",
    "td_update",
    "td_zero",
    "train_reward_model",
    "trpo",
]
