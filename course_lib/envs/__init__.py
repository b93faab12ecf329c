"""Environments: finite MDPs that can be written down whole, and batched ones."""

from course_lib.envs.cartpole import CartPole, Transition
from course_lib.envs.devices import best_device
from course_lib.envs.finite import (
    Episodes,
    FiniteMDP,
    random_walk,
    require_policy,
    sample_episodes,
    uniform_policy,
)
from course_lib.envs.gymnasium_adapter import GymnasiumVector
from course_lib.envs.tabular import Tabular
from course_lib.envs.token_count import TokenCount

__all__ = [
    "CartPole",
    "Episodes",
    "FiniteMDP",
    "GymnasiumVector",
    "Tabular",
    "TokenCount",
    "Transition",
    "best_device",
    "random_walk",
    "require_policy",
    "sample_episodes",
    "uniform_policy",
]
