"""A run of an algorithm on environments that can be put down and taken up again."""

from __future__ import annotations

from typing import Any, Protocol, cast

from torch import Tensor

from course_lib.algorithms.history import History, Record
from course_lib.algorithms.learner import Learner, LearnerConfig
from course_lib.algorithms.rollout import Environment

AGENT_OPTIONS = ("shared", "orthogonal", "policy_gain")
"""What a config may say of the networks, besides their sizes."""


class KeepsState(Protocol):
    """An environment that can be put down too, as `CartPole` can."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class AgentRun:
    """A run as far as it has come: all that is needed to go on from there.

    Args:
        env: E = S * B environments for S seeds.
        config: of the algorithm.

    Raises:
        ValueError: environments that cannot be shared out evenly.
    """

    def __init__(self, env: Environment, config: LearnerConfig) -> None:
        said = {
            one: getattr(config, one) for one in AGENT_OPTIONS if hasattr(config, one)
        }
        self.env = env
        self.learner = Learner(env, config, **said)
        self.history = History(config.seeds)
        self.penalty: float | None = getattr(config, "penalty", None)
        """The price of a nat for the next update, where there is one."""
        self._observations: Tensor | None = None

    @property
    def observations(self) -> Tensor:
        """Where the environments stand, [E, ...]; a new run resets them."""
        if self._observations is None:
            self._observations = self.env.reset()
        return self._observations

    @observations.setter
    def observations(self, reached: Tensor) -> None:
        self._observations = reached

    @property
    def done(self) -> int:
        """How many updates were made."""
        return len(self.history.records)

    @property
    def records(self) -> list[Record]:
        """One for each update."""
        return self.history.records

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers and names only, to be written to a file.

        Raises:
            TypeError: environments that cannot say where they stand.
        """
        return {
            "learner": self.learner.state_dict(),
            "env": self._keeper().state_dict(),
            "observations": self._observations,
            "penalty": self.penalty,
            "history": self.history.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` said, in a run of the same config.

        Raises:
            TypeError: environments that cannot say where they stand.
        """
        self.learner.load_state_dict(state["learner"])
        self._keeper().load_state_dict(state["env"])
        self._observations = state["observations"]
        self.penalty = state["penalty"]
        self.history.load_state_dict(state["history"])

    def _keeper(self) -> KeepsState:
        for name in ("state_dict", "load_state_dict"):
            if not hasattr(self.env, name):
                raise TypeError(
                    f"env must have {name}() in a run that is kept, and "
                    f"{type(self.env).__name__} has none"
                )
        return cast(KeepsState, self.env)
