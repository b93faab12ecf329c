"""How the next token is drawn: temperature, top-k and top-p."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_fraction,
    require_positive,
    require_positive_int,
)

# .4 + .3 + .2 is not .9 in floating point, and a nucleus of .9 has these three.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Sampling:
    """What stands between a model's logits and the distribution that acts."""

    temperature: float = 1.0
    """The logits are divided by it."""
    top_k: int | None = None
    """Only so many of the likeliest tokens may be drawn; None: any."""
    top_p: float = 1.0
    """Only the likeliest tokens that together have this probability may be drawn, the
    one that crosses it among them."""
    same_temperature: bool = True
    """Score, and so learn, at the temperature that samples. Otherwise what learns is
    the distribution at temperature 1, and what samples is another one."""

    def __post_init__(self) -> None:
        require_positive("temperature", self.temperature)
        if self.top_k is not None:
            require_positive_int("top_k", self.top_k)
        if not require_fraction("top_p", self.top_p):
            raise ValueError(f"top_p must be above 0, got {self.top_p}")

    @property
    def score_temperature(self) -> float:
        """What the logits are divided by where tokens are scored."""
        return self.temperature if self.same_temperature else 1.0

    @property
    def truncates(self) -> bool:
        """Whether some tokens may not be drawn."""
        return self.top_k is not None or self.top_p < 1.0


UNCHANGED = Sampling()
"""Temperature 1 and nothing cut off: the model as it is."""


def kept_tokens(logits: Tensor, sampling: Sampling) -> Tensor:
    """Which tokens top-k and then top-p leave (eq-nucleus):

        q(a) = p(a) [a kept] / sum of p over the kept

    is the behaviour policy, whose log-probabilities belong into the ratio; with those
    of p itself the ratio of the first step is not 1 but that sum.

    Args:
        logits: [..., V] float.
        sampling: its temperature is applied before its top-p.

    Returns:
        [..., V] bool, one or more True in each row.

    Source: Fan et al. (2018), section 5.1, for top-k; Holtzman et al. (2020), section
    3.1, for top-p.
    """
    order = logits.argsort(dim=-1, descending=True, stable=True)
    probs = (
        (at_least_float32(logits) / sampling.temperature).softmax(-1).gather(-1, order)
    )
    kept = torch.ones_like(probs, dtype=torch.bool)
    if sampling.top_k is not None:
        kept[..., sampling.top_k :] = False
        probs = probs * kept
        probs = probs / probs.sum(-1, keepdim=True)
    if sampling.top_p < 1.0:
        before = probs.cumsum(-1) - probs
        kept &= before < sampling.top_p - _ROUNDING
        kept[..., 0] = True
    return torch.zeros_like(kept).scatter(-1, order, kept)


def acting_logits(
    logits: Tensor, temperature: float, kept: Tensor | None = None
) -> Tensor:
    """Logits of the distribution that acts, [..., V]: softmax of them is q."""
    scaled = at_least_float32(logits) / temperature
    return scaled if kept is None else scaled.masked_fill(~kept, -math.inf)


def at_least_float32(x: Tensor) -> Tensor:
    """The same numbers in float32; float64 stays what it is."""
    return x if x.dtype == torch.float64 else x.float()
