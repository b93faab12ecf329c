"""Adam for parameters that lie in one tensor."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from course_lib.models.parameters import FlatParameters


class Adam:
    """Adam's step, for each of S networks (eq-adam):

        m <- m + (1 - b1) (g - m),   v <- v + (1 - b2) (g^2 - v)
        theta <- theta - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    The numbers are those of `torch.optim.Adam`, whose step on a small network is
    mostly a walk through its options: here it is the six operations of the equation.

    Args:
        parameters: what is moved, along `parameters.gradients`.
        learning_rate: lr; may be set anew before any step.
        betas: b1 and b2, how much of the old averages is kept.
        eps: added to the root; PPO's codes take 1e-5 where torch's default is 1e-8.

    Raises:
        ValueError: a beta outside [0, 1), or eps or learning_rate below 0.

    Source: Kingma and Ba (2015), algorithm 1; 1e-5 after Huang et al. (2022), "The 37
    implementation details of proximal policy optimization", detail 3.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        learning_rate: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-5,
    ) -> None:
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas must lie in [0, 1), got {betas}")
        if not (eps >= 0.0 and learning_rate >= 0.0):
            raise ValueError(
                "eps and learning_rate must be at least 0, got "
                f"{eps} and {learning_rate}"
            )
        self.parameters = parameters
        self.learning_rate = learning_rate
        self.betas = betas
        self.eps = eps
        self.mean = torch.zeros_like(parameters.gradients)
        """m, [S, P], the running mean of the gradient."""
        self.square = torch.zeros_like(parameters.gradients)
        """v, [S, P], the running mean of its square."""
        self.steps = 0
        """t, how many steps were taken."""

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters once."""
        gradients: Tensor = self.parameters.gradients
        b1, b2 = self.betas
        self.steps += 1
        self.mean.lerp_(gradients, 1 - b1)
        self.square.mul_(b2).addcmul_(gradients, gradients, value=1 - b2)
        scale = self.square.sqrt().div_(math.sqrt(1 - b2**self.steps)).add_(self.eps)
        rate = self.learning_rate / (1 - b1**self.steps)
        self.parameters.values.addcdiv_(self.mean, scale, value=-rate)

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on, besides the gradient."""
        return {
            "mean": self.mean,
            "square": self.square,
            "steps": self.steps,
            "learning_rate": self.learning_rate,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` said.

        Raises:
            ValueError: averages of another shape.
        """
        for name in ("mean", "square"):
            own, given = getattr(self, name), state[name]
            if own.shape != given.shape:
                raise ValueError(
                    f"state['{name}'] must have shape {[*own.shape]}, got "
                    f"{[*given.shape]}"
                )
            own.copy_(given)
        self.steps = int(state["steps"])
        self.learning_rate = float(state["learning_rate"])
