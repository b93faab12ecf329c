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
    """The device of that name; for "auto", `best_device()`.

    Raises:
        ValueError: no name of a device, or one that this machine does not have.
    """
    if device == "auto":
        return best_device()
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ValueError(
            f"device must be auto, cpu, cuda or mps, got {device!r}"
        ) from None
    backend = {"cuda": torch.cuda, "mps": torch.backends.mps}.get(chosen.type)
    count = 1 if backend is torch.backends.mps else torch.cuda.device_count()
    there = backend is None or (backend.is_available() and (chosen.index or 0) < count)
    if not there:
        raise ValueError(
            f"device must be one that this machine has, got {device!r}; auto and cpu "
            "are there"
        )
    return chosen
