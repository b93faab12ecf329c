"""The engines that a run of the kernels' tests goes through.

Triton runs here only under its interpreter, which has to be chosen before triton is
loaded: `test_kernels_triton.py` starts the kernels' tests anew with it switched on.
It takes about 50 microseconds for each number, so that run is a smaller one.
"""

from __future__ import annotations

import os
from typing import Any

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ENGINES = ["triton"] if INTERPRETED else ["numba", "torch"]

# What known results are asked in: triton has a kernel of its own for float32.
DTYPE = torch.float32 if INTERPRETED else torch.float64

# Each engine as it has to be called so that it looks for NaN.
LOOKING_FOR_NAN: list[dict[str, Any]] = [
    {"engine": name} | ({} if name == "numba" else {"validate": True})
    for name in ENGINES
]

# More rows than the torch engine takes by doubling.
MANY_ROWS = 40 if INTERPRETED else 600


def examples(number: int) -> int:
    """How many examples a property is tried on."""
    return number // 8 if INTERPRETED else number
