"""Steps that the kernels' tests are tried on: written by hand, or drawn."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.engines import DTYPE

# What is drawn for a discount, a weight, and the share of steps that end.
WEIGHTS = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
SEEDS = st.integers(0, 9999)
SHARES = st.sampled_from([0.0, 0.1, 0.5, 1.0])


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=DTYPE)


def flags(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def random_steps(
    seed: int,
    shape: tuple[int, ...],
    share: float,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, ...]:
    """Rewards, values, next values, terminated, truncated, the last two by `share`."""
    generator = torch.Generator().manual_seed(seed)
    reals = torch.randn((3, *shape), generator=generator, dtype=dtype)
    ends = torch.rand((2, *shape), generator=generator) < share
    return *reals, *ends
