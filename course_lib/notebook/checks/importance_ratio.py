"""Task: the probability ratio of every step, new policy over the one that sampled."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.notebook.checks.task import Case, Task


def importance_ratio(log_probs: Tensor, old_log_probs: Tensor, mask: Tensor) -> Tensor:
    """Return [B, T]: rho = exp(new - old) at real steps, 1 where masked; a function of
    the new log-probabilities alone, since the old ones are constants of the rollout."""
    log_ratio = log_probs - old_log_probs.detach()
    return log_ratio.masked_fill(~mask, 0.0).exp()


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([[-1.0]], [[-1.5]], [[1]]),  # CASES K30
        _case([[-1.0, -2.0]], [[-1.0, -1.5]], [[1, 1]]),
        _case([[-1.0, -2.0, -3.0]], [[-2.0, -1.0, -2.5]], [[1, 1, 0]]),
        _case([[-1.0, -0.5], [-3.0, -2.0]], [[-0.5, -1.0], [-1.0, -2.5]], [[0, 1]] * 2),
    ]
    for shape in ((2, 4), (3, 3)):
        log_probs, old = (-3.0 * torch.rand(2, *shape, generator=generator)).tolist()
        mask = torch.rand(shape, generator=generator) < 0.7
        mask[:, 0], mask[0, -1], mask[1, 1:] = True, False, True
        cases.append(_case(log_probs, old, mask.tolist()))
    # Traps. The probability of a long or unlikely action is 0 in floating point, and
    # what lies in the padding is anything.
    tiny = _case([[-800.0, -799.0]], [[-800.5, -800.0]], [[1, 1]])
    broken = _case(
        [[-1.0, math.nan, -math.inf]], [[-1.5, math.inf, -math.inf]], [[1, 0, 0]]
    )
    return [*cases, *(replace(case, adversarial=True) for case in (tiny, broken))]


def _case(
    log_probs: list[list[float]], old: list[list[float]], mask: list[list[int]]
) -> Case:
    return Case(
        {
            "log_probs": torch.tensor(log_probs, dtype=torch.float64),
            "old_log_probs": torch.tensor(old, dtype=torch.float64),
            "mask": torch.tensor(mask).bool(),
        }
    )


TASK = Task(
    "importance_ratio",
    importance_ratio,
    _cases,
    results=("ratio",),
    gradients=("log_probs", "old_log_probs"),
)


@TASK.right
def selected(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.exp()


@TASK.right
def filled_before(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    new = torch.where(mask, new, 0.0)
    old = torch.where(mask, old, 0.0).detach()
    ratio = (new - old).exp()
    return ratio


@TASK.right
def written_into_ones(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    ratio = torch.ones_like(new)
    with torch.no_grad():
        old = old[mask]
    ratio[mask] = (new[mask] - old).exp()
    return ratio


@TASK.wrong("exponential-left-out", source="the log ratio used as the ratio")
def no_exponential(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio


@TASK.wrong("upside-down", source="old over new: the order of the two exchanged")
def upside_down(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, old - new, 0.0)
    return log_ratio.exp()


@TASK.wrong("old-not-detached", source="tensorforce/tensorforce #312; CASES K30")
def old_with_gradient(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.exp()


@TASK.wrong("ratio-detached", source="nikhilbarhate99/PPO-PyTorch #18; CASES L07")
def ratio_detached(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.exp().detach()


@TASK.wrong("both-are-the-current", source="radixark/miles PR 1966; CASES K30, L08")
def refreshed(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = new.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.exp()


@TASK.wrong("log-probs-divided", source="a ratio of the logarithms")
def divided(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    new = torch.where(mask, new, 0.0)
    old = torch.where(mask, old, 0.0).detach()
    ratio = (new / old).masked_fill(~mask, 1.0)
    return ratio


@TASK.variant("log-probs-divided")
def divided_and_raised(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new / old, 0.0)
    return log_ratio.exp()


@TASK.wrong("probabilities-subtracted", source="a difference for a quotient")
def subtracted(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    new = torch.where(mask, new, 0.0)
    old = torch.where(mask, old, 0.0).detach()
    ratio = new.exp() - old.exp()
    return ratio


@TASK.wrong("exponentials-first", source="exp(new) / exp(old): 0 / 0 for unlikely ones")
def exponentials_first(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    new = torch.where(mask, new, 0.0)
    old = torch.where(mask, old, 0.0).detach()
    ratio = new.exp() / old.exp()
    return ratio


@TASK.wrong("mask-ignored", source="natolambert/rlhf-book PR 216; CASES K34")
def mask_ignored(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = new - old
    return log_ratio.exp()


@TASK.wrong("padding-multiplied", source="radixark/miles PR 1363: inf * 0; CASES K28")
def multiplied(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = (new - old) * mask
    return log_ratio.exp()


@TASK.wrong("mask-turned-round", source="where's two branches exchanged")
def turned_round(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, 0.0, new - old)
    return log_ratio.exp()


@TASK.wrong(
    "padding-is-zero", source="the mask laid on the ratio, not on its logarithm"
)
def zero_padding(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.exp() * mask


@TASK.variant("padding-is-zero")
def zeros_selected(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    return torch.where(mask, (new - old).exp(), 0.0)


@TASK.wrong("selected-too-late", source="pytorch/pytorch #68425: where after exp, NaN")
def selected_too_late(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    ratio = torch.where(mask, (new - old).exp(), 1.0)
    return ratio


@TASK.wrong("ratio-of-the-sequence", source="CLAIMS, error 42: one ratio for an answer")
def of_sequence(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.sum(-1).exp()


@TASK.variant("ratio-of-the-sequence")
def of_sequence_everywhere(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.sum(-1, keepdim=True).exp().expand_as(new)


@TASK.wrong("ratio-up-to-here", source="the weight of a whole path, from chapter 06")
def cumulative(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.cumsum(-1).exp()


@TASK.wrong("averaged", source="Omegastick/pytorch-cpp-rl #14: a mean too early; K32")
def averaged(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.exp().mean()


@TASK.variant("averaged")
def averaged_over_real(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    return (new - old.detach())[mask].exp().mean()


@TASK.wrong("neighbour's-old", source="rows rolled by one: CASES K20, in the old ones")
def neighbours(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.roll(1, -1).detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.exp()


@TASK.wrong("first-order", source="exp(x) taken for 1 + x, as near the old policy")
def first_order(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return 1 + log_ratio


@TASK.wrong("clipped-here", source="the clip put into the ratio; CASES K31, L16")
def clipped(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.exp().clamp(0.8, 1.2)


@TASK.wrong("only-real-steps", source="x[mask] kept as the result")
def only_real(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = (new - old)[mask]
    return log_ratio.exp()


@TASK.variant("mask-ignored")
def mask_and_detach_forgotten(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    return (new - old).exp()


@TASK.variant("ratio-of-the-sequence")
def mean_of_sequence(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    log_ratio = torch.where(mask, new - old.detach(), 0.0)
    return (log_ratio.sum(-1) / mask.sum(-1)).exp()


@TASK.variant("ratio-of-the-sequence")
def mean_of_sequence_everywhere(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    log_ratio = torch.where(mask, new - old.detach(), 0.0)
    mean = log_ratio.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    return mean.exp().expand_as(new)


@TASK.variant("clipped-here")
def log_clipped(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    log_ratio = torch.where(mask, new - old.detach(), 0.0)
    return log_ratio.clamp(-0.2, 0.2).exp()


@TASK.wrong("one-subtracted", source="expm1 for exp: the distance from 1")
def one_subtracted(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    old = old.detach()
    log_ratio = torch.where(mask, new - old, 0.0)
    return log_ratio.expm1()


@TASK.wrong("old-left-out", source="the new probability taken for the ratio")
def old_left_out(new: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    log_ratio = new
    return log_ratio.masked_fill(~mask, 0.0).exp()
