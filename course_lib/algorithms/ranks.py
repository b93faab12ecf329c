"""Several processes that learn as one: what has to be the same on all of them.

With one process, or without torch.distributed, each function gives its input back.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from course_lib.kernels import whiten


def world_size() -> int:
    """How many processes learn together."""
    return dist.get_world_size() if _together() else 1


def rank() -> int:
    """Which of them this one is, from 0."""
    return dist.get_rank() if _together() else 0


def sum_over_ranks(x: Tensor) -> Tensor:
    """The sum of a tensor of one shape over all processes, on each of them."""
    if not _together():
        return x
    total = x.clone()
    dist.all_reduce(total)
    return total


def average_gradients(gradients: Tensor) -> None:
    """Put the mean over all processes in the place of each one's own gradients."""
    if _together():
        dist.all_reduce(gradients)
        gradients /= world_size()


def share_of_tokens(mask: Tensor) -> Tensor | float:
    """What a mean over this process's real tokens counts in that over all (eq-share):

        weight = processes * own tokens / all tokens

    With it the mean of the processes' losses is the loss of one process that has all
    of the tokens; without, a token counts more where responses are short.

    Args:
        mask: [B, T] bool, the real tokens here.
    """
    if not _together():
        return 1.0
    own = mask.sum().float()
    return own * world_size() / sum_over_ranks(own).clamp(min=1.0)


def whiten_over_ranks(x: Tensor, mask: Tensor) -> Tensor:
    """`whiten` over the real steps of all processes; gives back this one's part.

    Whitened rank by rank, an advantage would depend on what stands beside it, and the
    number of processes would change the algorithm.

    Args:
        x: [B, T], the same B on each process.
        mask: [B, T] bool, the real steps.
    """
    if not _together():
        return whiten(x, mask)
    whole = whiten(*gathered_rows(x, mask=mask))
    start = rank() * len(x)
    return whole[start : start + len(x), : x.shape[1]]


def gathered_rows(*tensors: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """The rows of all processes, and their mask, padded to the longest.

    Args:
        tensors: [B, T] each, the same B on each process.
        mask: [B, T] bool, the real steps.

    Returns:
        Each tensor and the mask, [processes * B, T of the longest].
    """
    if not _together():
        return *tensors, mask
    width = torch.tensor(mask.shape[1], device=mask.device)
    dist.all_reduce(width, dist.ReduceOp.MAX)
    more = (0, int(width) - mask.shape[1])
    every = [
        gathered(torch.nn.functional.pad(one, more)).flatten(0, 1)
        for one in (*tensors, mask.to(tensors[0]))
    ]
    return *every[:-1], every[-1].bool()


def average_numbers(
    numbers: dict[str, float], device: torch.device
) -> dict[str, float]:
    """The mean over all processes of each number, of a `_max` the maximum.

    Args:
        numbers: by the same names on each process.
        device: where the processes talk.
    """
    if not _together():
        return numbers
    values = torch.tensor(list(numbers.values()), dtype=torch.float64)
    every = gathered(values.to(device))
    mean, largest = every.mean(0).tolist(), every.max(0).values.tolist()
    return {
        name: largest[i] if name.endswith("_max") else mean[i]
        for i, name in enumerate(numbers)
    }


def gathered(x: Tensor) -> Tensor:
    """The tensors of all processes, [world, ...], in their order."""
    if not _together():
        return x.unsqueeze(0)
    parts = [torch.empty_like(x) for _ in range(world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.stack(parts)


def wait_for_all() -> None:
    """Come back when every process has come here."""
    if _together():
        dist.barrier()


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()
