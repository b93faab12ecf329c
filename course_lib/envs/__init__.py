"""Environments: finite MDPs that can be written down whole, and batched ones."""

from course_lib.envs.finite import (
    Episodes,
    FiniteMDP,
    random_walk,
    require_policy,
    sample_episodes,
    uniform_policy,
)

__all__ = [
    "Episodes",
    "FiniteMDP",
    "random_walk",
    "require_policy",
    "sample_episodes",
    "uniform_policy",
]
