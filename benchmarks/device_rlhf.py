"""RLHF on the toy wholly on a device: sampling, judging, advantages and update."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from benchmarks.timing import rounded
from course_lib.algorithms import RLHFConfig, rlhf_ppo
from course_lib.envs import TokenCount
from course_lib.models import GRULanguageModel

RLHF_SHAPES = ((256, 8), (4096, 8))


def time_rlhf(
    device: torch.device,
    shapes: tuple[tuple[int, int], ...] = RLHF_SHAPES,
    num_updates: int = 20,
) -> Iterator[dict[str, Any]]:
    """Train for some updates, [responses, tokens] each, by the host's clock.

    The record of an update is read from the device, so that each waits for the last.
    """
    for batch_size, length in shapes:
        task, ref = TokenCount(length=length), GRULanguageModel().to(device)
        config = RLHFConfig(
            num_updates=num_updates,
            batch_size=batch_size,
            minibatch_size=batch_size,
            length=length,
        )
        rlhf_ppo(ref, task.score, replace(config, num_updates=1))  # uncounted
        begun = time.perf_counter()
        rlhf_ppo(ref, task.score, config)
        spent = (time.perf_counter() - begun) / num_updates
        yield {
            "name": "RLHF on the toy",
            "shape": [batch_size, length],
            "microseconds": {"an update": rounded(1e6 * spent)},
        }
