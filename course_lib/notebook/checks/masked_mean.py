"""Task: the mean over the real positions of a padded batch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from course_lib.notebook.checks.task import Case, Task


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Return []: the mean of x [B, T] where mask [B, T] is True, all rows together."""
    return x[mask].sum() / mask.sum()


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    broken = [[1.0, torch.nan, torch.inf], [2.0, 6.0, -torch.inf]]
    noise = 10.0 * torch.randn(4, 5, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([[5], [2], [0], [1]])
    holes = torch.rand(3, 4, generator=generator) < 0.5
    holes[:, 0], holes[:, -1] = torch.tensor([True, False, False]), True
    return [
        _case([[7]], [[1]]),
        _case([[2, 4, 100]], [[1, 1, 0]]),  # CASES K34
        _case([[1, 1, 1, 1], [4, 0, 0, 0]], [[1, 1, 1, 1], [1, 0, 0, 0]]),  # CASES K36
        _case([[0, 4], [2, 9]], [[1, 1], [1, 0]]),  # a real position may hold 0
        _case([[50, 1, 3], [2, 60, 6]], [[0, 1, 1], [1, 0, 1]]),
        _case([[1, 5], [8, 9]], [[1, 1], [0, 0]]),  # nothing real in the second row
        Case({"x": noise, "mask": torch.arange(5) < lengths}),
        Case({"x": noise[:3, :4].clone(), "mask": holes}),
        _case([[0.5, 1.5, 8.0]], [[1, 1, 0]], torch.float32),
        _case(broken, [[1, 0, 0], [1, 1, 0]]),
    ]


def _case(
    x: list[list[float]], mask: list[list[int]], dtype: torch.dtype = torch.float64
) -> Case:
    return Case({"x": torch.tensor(x, dtype=dtype), "mask": torch.tensor(mask).bool()})


# Looser than elsewhere: a 1e-8 in the denominator is a matter of taste here.
TASK = Task(
    "masked_mean",
    masked_mean,
    _cases,
    results=("mean",),
    tolerance=1e-6,
    gradients=("x",),
)


@TASK.right
def picked_out(x: Tensor, mask: Tensor) -> Tensor:
    kept = x[mask]
    return kept.mean()


@TASK.right
def filled(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return kept.sum() / mask.sum()


@TASK.right
def guarded(x: Tensor, mask: Tensor) -> Tensor:
    kept = x.masked_fill(~mask, 0.0)
    return kept.sum() / (mask.sum() + 1e-8)


@TASK.right
def one_by_one(x: Tensor, mask: Tensor) -> Tensor:
    total, count = x.new_zeros(()), 0
    for row, real in zip(x, mask, strict=True):
        for number, counts in zip(row, real, strict=True):
            if counts:
                total, count = total + number, count + 1
    return total / count


@TASK.wrong("divided-by-all", source="stable-baselines3-contrib #75; CASES K34")
def divided_by_all(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return kept.sum() / mask.numel()


@TASK.wrong(
    "product-averaged", source="mean(x * mask): areal-project/AReaL PR 1346; CASES K34"
)
def product_averaged(x: Tensor, mask: Tensor) -> Tensor:
    kept = x * mask
    return kept.mean()


@TASK.wrong("padding-multiplied", source="radixark/miles PR 1363: inf * 0; CASES K28")
def padding_multiplied(x: Tensor, mask: Tensor) -> Tensor:
    kept = x * mask
    return kept.sum() / mask.sum()


@TASK.wrong("mask-ignored", source="natolambert/rlhf-book PR 216; CASES K34")
def mask_ignored(x: Tensor, mask: Tensor) -> Tensor:
    kept = x
    return kept.mean()


@TASK.wrong("padding-in-the-sum", source="the mask used for the count only")
def padding_in_the_sum(x: Tensor, mask: Tensor) -> Tensor:
    kept = x
    return kept.sum() / mask.sum()


@TASK.wrong("padding-averaged", source="a mask that is True where others have False")
def padding_averaged(x: Tensor, mask: Tensor) -> Tensor:
    kept = x[~mask]
    return kept.mean()


@TASK.wrong("padding-summed", source="where's two branches exchanged")
def padding_summed(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, 0.0, x)
    return kept.sum() / mask.sum()


@TASK.wrong("rows-averaged", source="sail-sg/understand-r1-zero #10; CASES K36")
def rows_averaged(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return (kept.sum(-1) / mask.sum(-1).clamp(min=1)).mean()


@TASK.wrong("empty-row-divided", source="huggingface/trl PR 3138; CASES K36, K49")
def empty_row_divided(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return (kept.sum(-1) / mask.sum(-1)).mean()


@TASK.wrong("real-rows-averaged", source="sequence mean for token mean; CASES K36")
def real_rows_averaged(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return (kept.sum(-1) / mask.sum(-1)).nanmean()


@TASK.wrong("one-mean-per-row", source="dim=-1 kept from another loss")
def one_mean_per_row(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return kept.sum(-1) / mask.sum(-1)


@TASK.wrong("not-divided", source="walkinglabs/hands-on-modern-rl #75; CASES K36")
def not_divided(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return kept.sum()


@TASK.wrong("divided-by-rows", source="sum of a row, mean over rows; CASES K36")
def divided_by_rows(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return kept.sum() / len(mask)


@TASK.wrong("divided-by-length", source="a constant length without the rows; K36")
def divided_by_length(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return kept.sum() / mask.shape[-1]


@TASK.wrong("zeros-not-counted", source="the count taken from the masked numbers")
def zeros_not_counted(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return kept.sum() / (kept != 0).sum()


@TASK.wrong("filled-with-infinity", source="the fill of attention scores, taken over")
def filled_with_infinity(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, -torch.inf)
    return kept.sum() / mask.sum()


@TASK.wrong(
    "padding-taken-to-be-last", source="OpenRLHF/OpenRLHF #217: left padding; CASES K25"
)
def padding_taken_to_be_last(x: Tensor, mask: Tensor) -> Tensor:
    mask = torch.arange(x.shape[-1]) < mask.sum(-1, keepdim=True)
    kept = torch.where(mask, x, 0.0)
    return kept.sum() / mask.sum()


@TASK.variant("zeros-not-counted")
def zeros_dropped(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return kept[kept != 0].mean()


@TASK.wrong("detached", source="seungeunrho/minimalRL #33: detach on the way; L07")
def detached(x: Tensor, mask: Tensor) -> Tensor:
    kept = x.detach()[mask]
    return kept.mean()


@TASK.wrong("columns-averaged", source="dim=0 for dim=1, and a mean of means; K36")
def columns_averaged(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return (kept.sum(0) / mask.sum(0).clamp(min=1)).mean()


@TASK.variant("columns-averaged")
def empty_column_divided(x: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, x, 0.0)
    return (kept.sum(0) / mask.sum(0)).mean()
