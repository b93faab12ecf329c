"""A policy and a value function, with separate networks or on one trunk."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from course_lib.models.distributions import Categorical, DiagonalGaussian
from course_lib.models.mlp import HIDDEN_GAIN, mlp


class ActorCritic(nn.Module):
    """pi(a | s) and V(s) for S agents side by side.

    Args:
        observation_size: O, how many numbers an observation holds.
        num_actions: A for a choice among A actions.
        action_size: D for D continuous actions; exactly one of the two is given.
        seeds: one for each of the S agents; each agent's weights are a function of its
            own seed.
        hidden: the sizes of the hidden layers.
        shared: let policy and value function share all layers but their last.
        orthogonal: start from orthogonal weights of gain sqrt(2), 1 in the value's
            last layer and `policy_gain` in the policy's; without, from PyTorch's own.
        policy_gain: near 0 every action starts out equally likely.

    Raises:
        ValueError: not exactly one kind of action, no seed, a size below 1.

    Source: Schulman et al. (2017), section 3; for the initial weights, Andrychowicz et
    al. (2021), section 3.2.
    """

    def __init__(
        self,
        observation_size: int,
        *,
        num_actions: int | None = None,
        action_size: int | None = None,
        seeds: Sequence[int] = (0,),
        hidden: Sequence[int] = (64, 64),
        shared: bool = False,
        orthogonal: bool = True,
        policy_gain: float = 0.01,
    ) -> None:
        super().__init__()
        if (num_actions is None) == (action_size is None):
            raise ValueError(
                "give num_actions or action_size, not both and not neither: got "
                f"{num_actions} and {action_size}"
            )
        if not len(seeds):
            raise ValueError("seeds must hold at least one seed, got none")
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        outputs = num_actions if num_actions is not None else action_size
        assert outputs is not None
        gains = (policy_gain, 1.0) if orthogonal else (None, None)
        inner = HIDDEN_GAIN if orthogonal else None
        trunk, head = [observation_size, *hidden], list(hidden)[-1:]
        self.trunk: nn.Module = nn.Identity()
        if shared:
            layers = mlp(generators, trunk, output_gain=inner, hidden_gain=inner)
            self.trunk = nn.Sequential(layers, nn.Tanh())
        own = head if shared else trunk
        self.policy_net = mlp(
            generators, [*own, outputs], output_gain=gains[0], hidden_gain=inner
        )
        self.value_net = mlp(
            generators, [*own, 1], output_gain=gains[1], hidden_gain=inner
        )
        self.log_std: nn.Parameter | None = None
        if action_size is not None:
            self.log_std = nn.Parameter(torch.zeros(len(seeds), 1, action_size))

    def policy(self, observations: Tensor) -> Categorical | DiagonalGaussian:
        """pi(. | s) for observations [S, N, O]."""
        return self._distribution(self.policy_net(self.trunk(observations)))

    def values(self, observations: Tensor) -> Tensor:
        """V(s), [S, N], for observations [S, N, O]."""
        values: Tensor = self.value_net(self.trunk(observations)).squeeze(-1)
        return values

    def policy_parameters(self) -> list[nn.Parameter]:
        """What the policy alone depends on, each [S, ...]; with separate networks."""
        own = [*self.policy_net.parameters()]
        return own if self.log_std is None else [*own, self.log_std]

    def policy_and_values(
        self, observations: Tensor
    ) -> tuple[Categorical | DiagonalGaussian, Tensor]:
        """Both at once; a shared trunk is then run only once."""
        features = self.trunk(observations)
        values: Tensor = self.value_net(features).squeeze(-1)
        return self._distribution(self.policy_net(features)), values

    def _distribution(self, outputs: Tensor) -> Categorical | DiagonalGaussian:
        if self.log_std is None:
            return Categorical(outputs)
        # A copy: what a policy said stays said when the parameter has moved.
        return DiagonalGaussian(outputs, self.log_std.clone())
