"""Random steps for the checks on a device, the same numbers wherever they lie."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course_lib.kernels import Engine

VOCABULARIES = (3, 40)
"""Few tokens and many go different ways in the softmax."""


class Inputs:
    """Steps [B, T] on a device in a dtype: the same numbers for the same seed."""

    def __init__(
        self,
        shape: tuple[int, int],
        device: torch.device,
        dtype: torch.dtype,
        engine: Engine = "auto",
    ):
        self.engine = engine
        self._generator = torch.Generator().manual_seed(11)
        self._place = device, dtype
        self.rewards, self.values, self.after, self.advantages = self.draw((4, *shape))
        # Policies that are near each other, as they are within an update: products
        # of ratios over a row stay numbers.
        self.log_probs = -self.draw(shape).abs()
        self.old_log_probs = self.log_probs + 0.3 * self.draw(shape) / shape[1] ** 0.5
        self.old_values = self.values + 0.3 * self.draw(shape)
        ends = torch.rand((3, *shape), generator=self._generator)
        self.terminated, self.truncated = (ends[:2] < 0.02).to(device)
        self.mask = (ends[2] < 0.8).to(device)
        # Nothing may come from where nothing is looked at.
        self.after[self.terminated] = math.nan

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        """Standard normal numbers, rounded to float32 in every dtype."""
        return torch.randn(shape, generator=self._generator).to(*self._place)

    def tokens(self, vocabulary: int) -> tuple[Tensor, Tensor]:
        """Logits [B, T, vocabulary] and tokens [B, T] for the steps."""
        shape = self.rewards.shape
        tokens = torch.randint(vocabulary, shape, generator=self._generator)
        return self.draw((*shape, vocabulary)), tokens.to(self._place[0])

    def hidden(self, x: Tensor) -> Tensor:
        """x with NaN where masked: a kernel that looks there is found out."""
        return torch.where(self.mask, x, math.nan)

    @property
    def steps(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.rewards, self.values, self.after

    @property
    def ends(self) -> dict[str, Tensor]:
        return {"terminated": self.terminated, "truncated": self.truncated}
