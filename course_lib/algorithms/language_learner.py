"""A language model with its optimizer and random numbers, and the older one beside."""

from __future__ import annotations

from collections import deque
from copy import deepcopy
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from course_lib.algorithms import ranks
from course_lib.models import Adam, FlatParameters, LanguagePolicy


class LearnerConfig(Protocol):
    """What the config of everything that is trained here holds."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def max_grad_norm(self) -> float: ...
    @property
    def seed(self) -> int: ...


class LanguageConfig(LearnerConfig, Protocol):
    """What the config of every algorithm that samples responses holds."""

    @property
    def num_updates(self) -> int: ...
    @property
    def anneal_learning_rate(self) -> bool: ...
    @property
    def length(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def num_epochs(self) -> int: ...
    @property
    def minibatch_size(self) -> int: ...
    @property
    def missing_eos_penalty(self) -> float: ...
    @property
    def staleness(self) -> int: ...
    @property
    def beta(self) -> float: ...


class ModelLearner:
    """A model with its optimizer and random numbers.

    Args:
        model: is trained in place.
        config: the numbers of the optimizer, and the seed.
    """

    def __init__(self, model: nn.Module, config: LearnerConfig) -> None:
        self.model = model
        self.parameters = FlatParameters(model, stacked=False)
        self.optimizer = Adam(self.parameters, config.learning_rate)
        self.max_grad_norm = config.max_grad_norm
        # Not the numbers that the first weights were drawn from, and other ones in each
        # of several processes; torch reads 32 bits.
        self.generator = torch.Generator(self.parameters.values.device)
        self.generator.manual_seed(config.seed + 2**31 + 2**20 * ranks.rank())

    def step(self, loss: Tensor) -> Tensor:
        """Move the parameters down the gradient; return its norm, [], unclipped."""
        self.parameters.zero_gradients()
        loss.backward()
        ranks.average_gradients(self.parameters.gradients)
        norm = self.parameters.clip_gradients(self.max_grad_norm)[0]
        self.optimizer.step()
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Weights, the optimizer's averages and the random numbers' state.

        To be asked on all processes at once, where there are several.
        """
        device = self.parameters.values.device
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            # Of each process, for each goes on with its own.
            "random": ranks.gathered(self.generator.get_state().to(device)).cpu(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` said."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        random = state["random"].cpu()
        if len(random) != ranks.world_size():
            raise ValueError(
                f"state must be of {ranks.world_size()} processes, got one of "
                f"{len(random)}"
            )
        # A copy: torch reads the state from where its storage begins.
        self.generator.set_state(random[ranks.rank()].clone())


class LanguageLearner(ModelLearner):
    """A policy with its critic that learns, and the older one that samples.

    Args:
        reference: what the policy is before it learns; it is copied.
        config: the numbers of the optimizer, and the seed.
        staleness: how many updates old the sampling policy is.
    """

    def __init__(
        self,
        reference: LanguagePolicy,
        config: LearnerConfig,
        *,
        staleness: int = 0,
    ) -> None:
        self.policy = deepcopy(reference).requires_grad_(True)
        super().__init__(self.policy, config)
        self._past: deque[Tensor] = deque(maxlen=staleness + 1)
        self._behind = self.policy
        if staleness:
            self._behind = deepcopy(self.policy)
            self._old_parameters = FlatParameters(self._behind, stacked=False)

    def anneal(self, done: int, config: LanguageConfig) -> float:
        """Set the step size for the update after `done` others, and return it."""
        rate = config.learning_rate
        if config.anneal_learning_rate:
            rate *= 1 - done / config.num_updates
        self.optimizer.learning_rate = rate
        return rate

    @torch.no_grad()
    def sampling_policy(self) -> LanguagePolicy:
        """The policy as it was `staleness` updates ago, or at the start before that.

        To be asked once for each update.
        """
        if self._behind is not self.policy:
            self._past.append(self.parameters.values.detach().clone())
            self._old_parameters.values.copy_(self._past[0])
        return self._behind

    def state_dict(self) -> dict[str, Any]:
        """As any learner's, with the older policies that are still to sample."""
        return super().state_dict() | {"past": list(self._past)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` said."""
        super().load_state_dict(state)
        self._past.extend(state["past"])
