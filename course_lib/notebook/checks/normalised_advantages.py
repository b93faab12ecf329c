"""Task: advantages with mean 0 and variance 1 over what is real."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.kernels import whiten
from course_lib.notebook.checks.task import Case, Task


def normalised_advantages(advantages: Tensor, mask: Tensor) -> Tensor:
    """Return [B, T]: (A - mean) / std over all real steps together, std that of the
    population, 0 where masked; equal advantages become 0."""
    return whiten(advantages, mask)


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    noise = 3.0 * torch.randn(2, 4, generator=generator, dtype=torch.float64) + 1.0
    holes = torch.tensor([[1, 1, 1, 0], [1, 0, 1, 0]]).bool()
    wide = 50.0 * torch.randn(3, 3, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([[3], [1], [2]])
    cases = [
        _case([[1, 3]], [[1, 1]]),  # CASES K32
        _case([[1, 2, 3, 0, 0, 0]], [[1, 1, 1, 0, 0, 0]]),  # CLAIMS, error 21
        _case([[1, 2, 6], [0, 4, 9]], [[1, 1, 1], [1, 1, 0]]),
        _case([[5, 9], [-2, -1]], [[1, 0], [1, 1]]),
        Case({"advantages": noise, "mask": holes}),
        Case({"advantages": wide, "mask": torch.arange(3) < lengths}),
    ]
    # Traps: nothing to scale, and padding that is not a number.
    alone, alike = _case([[3]], [[1]]), _case([[2, 2, 2, 7]], [[1, 1, 1, 0]])
    broken = _case([[1, 2, math.nan], [6, math.inf, 3]], [[1, 1, 0], [1, 0, 1]])
    return [*cases, *(replace(c, adversarial=True) for c in (alone, alike, broken))]


def _case(advantages: list[list[float]], mask: list[list[int]]) -> Case:
    return Case(
        {
            "advantages": torch.tensor(advantages, dtype=torch.float64),
            "mask": torch.tensor(mask).bool(),
        }
    )


TASK = Task(
    "normalised_advantages",
    normalised_advantages,
    _cases,
    results=("advantages",),
    tolerance=1e-4,  # how small a number it is, and where it stands, is taste
)


@TASK.right
def written_back(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.std(correction=0)
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)


@TASK.right
def by_sums(advantages: Tensor, mask: Tensor) -> Tensor:
    kept = advantages.masked_fill(~mask, 0.0)
    mean = kept.sum() / mask.sum()
    far = (kept - mean).masked_fill(~mask, 0.0)
    variance = (far**2).sum() / mask.sum()
    return far / torch.sqrt(variance + 1e-8**2)


@TASK.right
def into_zeros(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    result = torch.zeros_like(advantages)
    result[mask] = (real - real.mean()) / (real.std(unbiased=False) + 1e-8)
    return result


@TASK.wrong("padding-counted", source="CLAIMS, error 21: whitened before it is masked")
def padding_counted(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages
    mean = real.mean()
    std = real.std(correction=0)
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)


@TASK.variant("padding-counted")
def zeros_counted(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages.masked_fill(~mask, 0.0)
    mean = real.mean()
    std = real.std(correction=0)
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)


@TASK.wrong("padding-not-zero", source="the result not masked; CASES K34")
def padding_left(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.std(correction=0)
    scaled = (advantages - mean) / (std + 1e-8)
    return scaled


@TASK.wrong("padding-multiplied", source="radixark/miles PR 1363: NaN * 0; CASES K28")
def multiplied(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.std(correction=0)
    scaled = (advantages - mean) / (std + 1e-8)
    return scaled * mask


@TASK.wrong("one-less-in-the-denominator", source="torch's own std; CASES K33")
def unbiased(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.std()
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)


@TASK.variant("one-less-in-the-denominator")
def unbiased_unless_alone(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    std = real.std().nan_to_num(1.0)
    return torch.where(mask, (advantages - real.mean()) / (std + 1e-8), 0.0)


@TASK.wrong("unguarded", source="DLR-RM/stable-baselines3 #325, PR 1028; CASES K33")
def unguarded(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.std(correction=0)
    scaled = (advantages - mean) / std
    return torch.where(mask, scaled, 0.0)


@TASK.wrong("variance-for-deviation", source="the root forgotten")
def by_variance(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.var(correction=0)
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)


@TASK.wrong(
    "bracket", source="mean / std subtracted; Omegastick/pytorch-cpp-rl #14; K32"
)
def bracket(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.std(correction=0)
    scaled = advantages - mean / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)


@TASK.wrong("not-centred", source="scaled only, as rewards often are")
def not_centred(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    result = torch.zeros_like(advantages)
    result[mask] = real / (real.std(unbiased=False) + 1e-8)
    return result


@TASK.wrong("not-scaled", source="centred only, Dr. GRPO's way; understand-r1-zero")
def not_scaled(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    result = torch.zeros_like(advantages)
    result[mask] = real - real.mean()
    return result


@TASK.wrong("scaled-by-the-root-mean-square", source="the square before the mean goes")
def by_root_mean_square(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = (real**2).mean().sqrt()
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)


@TASK.wrong("row-by-row", source="one row's own scale, as GRPO's groups; K33")
def row_by_row(advantages: Tensor, mask: Tensor) -> Tensor:
    rows = [written_back(row, real) for row, real in zip(advantages, mask, strict=True)]
    return torch.stack(rows)


@TASK.variant("row-by-row")
def row_by_row_padded(advantages: Tensor, mask: Tensor) -> Tensor:
    mean = advantages.mean(-1, keepdim=True)
    std = advantages.std(-1, correction=0, keepdim=True)
    return torch.where(mask, (advantages - mean) / (std + 1e-8), 0.0)


@TASK.wrong("column-by-column", source="dim=0: a scale for each time step")
def column_by_column(advantages: Tensor, mask: Tensor) -> Tensor:
    return row_by_row(advantages.T, mask.T).T


@TASK.variant("column-by-column")
def column_by_column_padded(advantages: Tensor, mask: Tensor) -> Tensor:
    mean, std = advantages.mean(0), advantages.std(0, correction=0)
    return torch.where(mask, (advantages - mean) / (std + 1e-8), 0.0)


@TASK.wrong("into-a-range", source="min-max scaling for standardising")
def into_range(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    result = torch.zeros_like(advantages)
    result[mask] = (real - real.min()) / (real.max() - real.min() + 1e-8)
    return result


@TASK.wrong("by-the-largest", source="divided by the largest magnitude")
def by_largest(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.abs().max()
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)


@TASK.wrong("absolute-deviation", source="the mean distance for the deviation")
def absolute_deviation(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = (real - mean).abs().mean()
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)


@TASK.wrong("mask-turned-round", source="the padding normalised, the real steps lost")
def turned_round(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.std(correction=0)
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, 0.0, scaled)


@TASK.wrong("only-real-steps", source="x[mask] kept as the result")
def only_real(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.std(correction=0)
    return (real - mean) / (std + 1e-8)


@TASK.wrong("clipped-too", source="cut to ±1, from reward clipping")
def clipped_too(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = real.std(correction=0)
    scaled = ((advantages - mean) / (std + 1e-8)).clamp(-1.0, 1.0)
    return torch.where(mask, scaled, 0.0)


@TASK.variant("padding-counted")
def padding_in_the_deviation(advantages: Tensor, mask: Tensor) -> Tensor:
    mean, std = advantages[mask].mean(), advantages.std(correction=0)
    return torch.where(mask, (advantages - mean) / (std + 1e-8), 0.0)


@TASK.variant("padding-counted")
def padding_in_the_mean(advantages: Tensor, mask: Tensor) -> Tensor:
    mean, std = advantages.mean(), advantages[mask].std(correction=0)
    return torch.where(mask, (advantages - mean) / (std + 1e-8), 0.0)


@TASK.wrong("mask-ignored", source="natolambert/rlhf-book PR 216; CASES K34")
def mask_ignored(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages
    return (real - real.mean()) / (real.std() + 1e-8)


@TASK.variant("mask-ignored")
def mask_ignored_by_population(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages
    return (real - real.mean()) / (real.std(correction=0) + 1e-8)


@TASK.wrong("scaled-by-the-length", source="the norm, which grows with the batch")
def by_length(advantages: Tensor, mask: Tensor) -> Tensor:
    real = advantages[mask]
    mean = real.mean()
    std = (real - mean).norm()
    scaled = (advantages - mean) / (std + 1e-8)
    return torch.where(mask, scaled, 0.0)
