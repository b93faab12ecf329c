"""Whitening, group advantages and losses beside how others write them.

The peers are written here from what the libraries do: TRL whitens and averages with
products of a boolean mask, RLOO and GRPO are explained as loops over groups, and the
losses are CleanRL's few lines, which report what they clipped as ours do. Inputs are
finite, since a product with a mask lets an inf through.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.timing import OURS, Case, compare
from course_lib.kernels import (
    clipped_policy_loss,
    clipped_value_loss,
    group_relative_advantages,
    leave_one_out_advantages,
    whiten,
)

WHITEN, RLOO, GRPO = "whiten", "leave_one_out_advantages", "group_relative_advantages"
POLICY, VALUE = "clipped_policy_loss", "clipped_value_loss"
BOOLEAN, LOOP, BY_ROW = "products of a boolean mask", "loop", "ours, a group a row"
PLAIN = "plain form"
CLIP = 0.2
GROUPS = (1024, 4)
PACKAGES = ("torch",)
Runs = dict[str, Callable[[], Tensor]]


def cases() -> list[Case]:
    """Every case of this file."""
    found = [Case(WHITEN, (256, 1024), functools.partial(whitenings, (256, 1024)))]
    for name in (RLOO, GRPO):
        make = functools.partial(group_advantages, name, *GROUPS)
        found.append(Case(name, GROUPS, make))
    for name in (POLICY, VALUE):
        for shape in ((256,), (64, 512)):
            found.append(Case(name, shape, functools.partial(losses, name, shape)))
    return found


def whitenings(shape: tuple[int, ...]) -> Runs:
    """Seven in ten entries are real; theirs leaves something in the others."""
    x, _, _, mask = _draw(shape)
    runs: Runs = {
        OURS: lambda: whiten(x, mask, unbiased=True),
        BOOLEAN: lambda: boolean_whiten(x, mask),
    }
    compare({name: lambda run=run: run()[mask] for name, run in runs.items()})
    return runs


def group_advantages(name: str, groups: int, size: int) -> Runs:
    """Scores in any order with the number of their group; ours also as rows."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(groups * size, generator=generator)
    numbers = torch.arange(groups).repeat_interleave(size)
    numbers = numbers[torch.randperm(len(numbers), generator=generator)]
    rows = scores[numbers.argsort()].view(groups, size)
    kernel = leave_one_out_advantages if name == RLOO else group_relative_advantages
    runs: Runs = {
        OURS: lambda: kernel(scores, numbers),
        LOOP: lambda: group_by_group(name, scores, numbers),
    }
    compare(runs)
    return runs | {BY_ROW: lambda: kernel(rows)}


def losses(name: str, shape: tuple[int, ...]) -> Runs:
    """Loss and gradient; a batch of rows has a mask, a flat minibatch has none."""
    x, before, goal, real = _draw(shape)
    x.requires_grad_()
    mask = real if len(shape) > 1 else None
    kernel: Callable[[], tuple[Tensor, object]]
    plain: Callable[[], tuple[Tensor, object]]
    if name == POLICY:
        kernel = functools.partial(
            clipped_policy_loss, x, before, goal, clip_eps=CLIP, mask=mask
        )
        plain = functools.partial(plain_policy_loss, x, before, goal, mask)
    else:
        kernel = functools.partial(
            clipped_value_loss, x, before, goal, clip=CLIP, mask=mask
        )
        plain = functools.partial(plain_value_loss, x, before, goal, mask)
    runs: Runs = {
        OURS: lambda: torch.autograd.grad(kernel()[0], x)[0],
        PLAIN: lambda: torch.autograd.grad(plain()[0], x)[0],
    }
    scale = goal.numel()  # gradients of a mean are too small to differ visibly
    compare({name: lambda run=run: scale * run() for name, run in runs.items()})
    return runs


def boolean_mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """As in TRL, a product with the mask."""
    return x.mean() if mask is None else (x * mask).sum() / mask.sum()


def boolean_whiten(x: Tensor, mask: Tensor) -> Tensor:
    """Products with a boolean mask and three masked means of it, as in TRL."""
    middle = boolean_mean(x, mask)
    var = boolean_mean((x - boolean_mean(x, mask)) ** 2, mask)
    count = mask.sum()
    var = var * (count / (count - 1))
    return (x - middle) * torch.rsqrt(var + 1e-8)


def group_by_group(name: str, scores: Tensor, groups: Tensor) -> Tensor:
    """RLOO or GRPO, one group after the other."""
    advantages = torch.empty_like(scores)
    for group in groups.unique():
        mine = groups == group
        same = scores[mine]
        if name == RLOO:
            others = (same.sum() - same) / (len(same) - 1)
            advantages[mine] = same - others
        else:
            advantages[mine] = (same - same.mean()) / (same.std() + 1e-4)
    return advantages


def plain_policy_loss(
    log_probs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor | None
) -> tuple[Tensor, object]:
    """CleanRL's lines, with TRL's mean where there is a mask."""
    log_ratio = log_probs - old
    ratio = log_ratio.exp()
    with torch.no_grad():
        seen = (
            boolean_mean(ratio - 1 - log_ratio, mask),
            boolean_mean(((ratio - 1).abs() > CLIP).float(), mask),
        )
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    terms = torch.max(-advantages * ratio, -advantages * clipped)
    return boolean_mean(terms, mask), seen


def plain_value_loss(
    values: Tensor, old: Tensor, returns: Tensor, mask: Tensor | None
) -> tuple[Tensor, object]:
    """CleanRL's lines, with TRL's mean and its clip fraction where there is a mask."""
    held = old + (values - old).clamp(-CLIP, CLIP)
    plain, clipped = (values - returns).square(), (held - returns).square()
    with torch.no_grad():
        seen = boolean_mean((clipped > plain).float(), mask)
    return 0.5 * boolean_mean(torch.max(plain, clipped), mask), seen


def _draw(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Numbers, others a little way from them, unrelated ones, and a mask."""
    generator = torch.Generator().manual_seed(0)
    x, step, goal = torch.randn((3, *shape), generator=generator)
    mask = torch.rand(shape, generator=generator) < 0.7
    return x, x + 0.2 * step, goal, mask
