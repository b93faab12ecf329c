"""Environments: finite MDPs that can be written down whole, and batched ones."""

from course_lib.envs.cartpole import CartPole, Transition
from course_lib.envs.characters import ARITHMETIC, PRINTABLE, CharacterTokenizer
from course_lib.envs.devices import best_device, chosen_device
from course_lib.envs.finite import (
    Episodes,
    FiniteMDP,
    random_walk,
    require_policy,
    sample_episodes,
    uniform_policy,
)
from course_lib.envs.gymnasium_adapter import GymnasiumVector
from course_lib.envs.problems import (
    LEVELS,
    Problem,
    arithmetic_problems,
    read_problems,
    split,
    word_problems,
)
from course_lib.envs.tabular import Tabular
from course_lib.envs.token_count import TokenCount

__all__ = [
    "ARITHMETIC",
    "LEVELS",
    "PRINTABLE",
    "CartPole",
    "CharacterTokenizer",
    "Episodes",
    "FiniteMDP",
    "GymnasiumVector",
    "Problem",
    "Tabular",
    "TokenCount",
    "Transition",
    "arithmetic_problems",
    "best_device",
    "chosen_device",
    "random_walk",
    "read_problems",
    "require_policy",
    "sample_episodes",
    "split",
    "uniform_policy",
    "word_problems",
]
