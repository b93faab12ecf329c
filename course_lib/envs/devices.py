"""Where environments live when nobody says where."""

from __future__ import annotations

import torch


def best_device() -> torch.device:
    """CUDA where there is one, else Apple's MPS where there is one, else the CPU.

    Fastest for a batch of thousands; a handful of small environments is stepped
    faster on the CPU, whose operations start sooner.
    """
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def chosen_device(device: str | torch.device) -> torch.device:
    """The device of that name; for "auto", `best_device()`."""
    return best_device() if device == "auto" else torch.device(device)
