"""Several processes started by `torchrun`: who is who, and how they talk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist

from course_lib.algorithms import ranks
from course_lib.envs import chosen_device
from course_lib.train.interrupt import Interrupted


@contextlib.contextmanager
def joined_processes() -> Iterator[None]:
    """Join the others that torchrun has started, if it has; leave them at the end.

    They talk by nccl where each has a GPU, by gloo otherwise.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield
    except Interrupted:  # all of them, behind the same update
        dist.destroy_process_group()
        raise
    # Not where something went wrong: the others may be waiting for this process, and
    # torchrun ends them all when it is gone.
    dist.destroy_process_group()


def own_device(device: str) -> torch.device:
    """The device of that name; with several GPUs the one of this process."""
    chosen = chosen_device(device)
    if chosen.type == "cuda" and chosen.index is None:
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(chosen)
    return chosen


def refuse_several(program: str) -> None:
    """Refuse more than one process for a program that learns in one.

    Raises:
        ValueError: there are several.
    """
    if ranks.world_size() > 1:
        raise ValueError(
            f"{program} learns in one process, got {ranks.world_size()}; ppo-lm and "
            "grpo learn in several"
        )
