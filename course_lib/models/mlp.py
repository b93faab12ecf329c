"""Small networks, several of them side by side: one for each random seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

HIDDEN_GAIN = math.sqrt(2.0)


class StackedLinear(nn.Module):
    """S linear layers side by side: y_s = x_s W_s + b_s.

    Training S agents as one costs far less than S times one: most of a small network's
    time is spent on calling operations, not on arithmetic.

    Args:
        generators: S random generators, one for each layer, so that layer s is the
            same whatever stands beside it.
        inputs, outputs: the sizes I and O.
        gain: the scale of orthogonal initial weights, and biases of 0. None: all of
            them uniform within 1 / sqrt(I) of 0, as in `torch.nn.Linear`.

    Shapes: weight [S, I, O], bias [S, 1, O], both float32.

    Source: Saxe, McClelland and Ganguli (2014) for orthogonal initial weights.
    """

    def __init__(
        self,
        generators: Sequence[torch.Generator],
        inputs: int,
        outputs: int,
        gain: float | None,
    ) -> None:
        super().__init__()
        weight = torch.empty(len(generators), inputs, outputs)
        bias = torch.zeros(len(generators), 1, outputs)
        for layer, offset, generator in zip(weight, bias, generators, strict=True):
            if gain is None:
                far = 1 / math.sqrt(inputs)
                layer.uniform_(-far, far, generator=generator)
                offset.uniform_(-far, far, generator=generator)
            else:
                nn.init.orthogonal_(layer, gain, generator=generator)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """[S, N, I] to [S, N, O]."""
        return torch.baddbmm(self.bias, x, self.weight)


def mlp(
    generators: Sequence[torch.Generator],
    sizes: Sequence[int],
    *,
    output_gain: float | None,
    hidden_gain: float | None = HIDDEN_GAIN,
) -> nn.Sequential:
    """Tanh layers of the given sizes and a linear one at the end, S side by side.

    Args:
        generators: one random generator for each of the S networks.
        sizes: input, hidden and output sizes; at least two.
        output_gain: the `gain` of the last layer (see `StackedLinear`). Near 0 a
            policy starts out uniform, whatever it sees.
        hidden_gain: the `gain` of the other layers.

    Returns:
        nn.Sequential: [S, N, sizes[0]] to [S, N, sizes[-1]].

    Raises:
        ValueError: fewer than two sizes, or one below 1.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"sizes must be two or more, all positive, got {[*sizes]}")
    layers: list[nn.Module] = []
    last = len(sizes) - 2
    for place, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        gain = output_gain if place == last else hidden_gain
        layers.append(StackedLinear(generators, inputs, outputs, gain))
        if place < last:
            layers.append(nn.Tanh())
    return nn.Sequential(*layers)
