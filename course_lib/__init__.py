"""A course on PPO, from Markov decision processes to RLHF: the library behind it.

The rooms, lowest floor first: `kernels` (pure functions of tensors), `envs` and
`models`, `exact` (oracles), `algorithms`, and on top `notebook` and `train`.
A room imports from lower floors only.
"""

from __future__ import annotations

__version__: str


def __getattr__(name: str) -> str:
    # Looked up only when somebody asks, so that the import itself reads no file.
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ppo-course")
    except PackageNotFoundError:
        return "not installed"
