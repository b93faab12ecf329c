"""What a policy says in each state: a distribution over actions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from course_lib.kernels import categorical_kl, entropy, token_log_probs


class Distribution(Protocol):
    """pi(. | s) for [S, N] states at once."""

    def sample(self, noise: Tensor) -> Tensor:
        """Actions, [S, N, ...], a function of the noise alone."""

    def log_probs(self, actions: Tensor) -> Tensor:
        """log pi(a | s), [S, N], differentiable."""

    def entropies(self) -> Tensor:
        """[S, N] in nats, differentiable."""

    def kl(self, other: Distribution) -> Tensor:
        """KL(self || other), [S, N] in nats, differentiable."""


@dataclass(frozen=True)
class Categorical:
    """A choice among A actions with probabilities softmax(logits).

    Args:
        logits: [S, N, A], real.
    """

    logits: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Actions [S, N] int64 from uniform noise [S, N]: the inverse of the CDF."""
        reached = self.logits.softmax(-1).cumsum(-1)  # [S, N, A]
        # The last sum may round to less than 1, and noise is below 1: it is left out.
        return (noise.unsqueeze(-1) >= reached[..., :-1]).sum(-1)

    def log_probs(self, actions: Tensor) -> Tensor:
        """log pi(a | s), [S, N]."""
        return token_log_probs(self.logits, actions)

    def entropies(self) -> Tensor:
        """[S, N] in nats."""
        return entropy(self.logits)

    def kl(self, other: Distribution) -> Tensor:
        """KL(self || other), [S, N] in nats."""
        assert isinstance(other, Categorical)
        return categorical_kl(self.logits, other.logits)

    def mode(self) -> Tensor:
        """The likeliest action of each state, [S, N] int64."""
        return self.logits.argmax(-1)


@dataclass(frozen=True)
class DiagonalGaussian:
    """D independent normal numbers with means of their own and common deviations.

    Args:
        mean: [S, N, D], in the units of the action.
        log_std: [S, 1, D], the natural logarithm of the standard deviations.
    """

    mean: Tensor
    log_std: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """Actions [S, N, D] from standard normal noise of that shape."""
        return self.mean + self.log_std.exp() * noise

    def log_probs(self, actions: Tensor) -> Tensor:
        """log of the density at the actions, [S, N]."""
        z = (actions - self.mean) * (-self.log_std).exp()
        constant = 0.5 * math.log(2 * math.pi)
        return (-0.5 * z * z - self.log_std - constant).sum(-1)

    def entropies(self) -> Tensor:
        """[S, N] in nats: the same for every state."""
        each = self.log_std + 0.5 * math.log(2 * math.pi * math.e)
        return each.sum(-1).expand(self.mean.shape[:-1])

    def kl(self, other: Distribution) -> Tensor:
        """KL(self || other), [S, N] in nats."""
        assert isinstance(other, DiagonalGaussian)
        ratio = (2 * (self.log_std - other.log_std)).exp()
        apart = ((self.mean - other.mean) * (-other.log_std).exp()).square()
        each = 0.5 * (ratio + apart - 1) + other.log_std - self.log_std
        return each.sum(-1)

    def mode(self) -> Tensor:
        """The mean, [S, N, D]."""
        return self.mean
