"""Task: the critic's loss with its value held back."""

from collections.abc import Sequence

import torch
from torch import Tensor

from course_lib.kernels import clipped_value_loss
from course_lib.notebook.checks.task import Case, Task


def clipped_critic_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, clip: float
) -> Tensor:
    """Return []: half the mean of the larger of two squared errors, of V and of V kept
    within `clip` of the rollout's V (eq-value-clip of the library)."""
    loss, _ = clipped_value_loss(values, old_values, returns, clip=clip)
    return loss


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([0.1], [0.0], [1.0], 0.2),  # inside: nothing is held back
        _case([0.5], [0.0], [0.4], 0.2),  # CLAIMS, error 14: overshot, and silent
        _case([-0.5], [0.0], [-0.4], 0.2),  # the same on the way down
        _case([0.5], [0.0], [-1.0], 0.2),
        _case([3.0, -1.0], [2.0, 1.5], [5.0, 2.5], 0.5),
        _case([1.0, 4.0, -2.0], [1.1, 2.0, -4.0], [2.0, 1.0, 3.0], 1.5),
    ]
    for clip in (0.2, 1.0):
        old, moved, ahead = torch.randn(3, 6, generator=generator)
        values, returns = old + 2.0 * moved, old + 3.0 * ahead
        cases.append(_case(values.tolist(), old.tolist(), returns.tolist(), clip))
    return cases


def _case(
    values: list[float], old: list[float], returns: list[float], clip: float
) -> Case:
    return Case(
        {
            "values": torch.tensor(values, dtype=torch.float64),
            "old_values": torch.tensor(old, dtype=torch.float64),
            "returns": torch.tensor(returns, dtype=torch.float64),
            "clip": clip,
        }
    )


TASK = Task(
    "clipped_critic_loss",
    clipped_critic_loss,
    _cases,
    results=("loss",),
    gradients=("values", "old_values"),
)


@TASK.right
def of_two_errors(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.right
def between_two_values(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = v.clamp(old - clip, old + clip)
    plain = (v - returns) ** 2
    clipped = (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("minimum-for-maximum", source="the objective's minimum kept for a loss")
def minimum(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.minimum(plain, clipped).mean()


@TASK.wrong("only-the-clipped", source="one of the two errors left out")
def only_clipped(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    clipped = (held - returns) ** 2
    return 0.5 * clipped.mean()


@TASK.wrong("clip-left-out", source="value clipping switched on and not computed")
def unclipped(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = v
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong(
    "around-the-return", source="the band laid around the target; CLAIMS, error 13"
)
def around_return(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    return 0.5 * ((v - returns).clamp(-clip, clip) ** 2).mean()


@TASK.wrong("around-zero", source="the move's band laid on the value itself")
def around_zero(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = v.clamp(-clip, clip)
    plain = (v - returns) ** 2
    clipped = (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("old-not-added", source="the clipped move taken for the clipped value")
def move_alone(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("band-as-a-ratio", source="1 ± clip, carried over from the policy")
def as_ratio(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old * (v / old).clamp(1 - clip, 1 + clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("move-upside-down", source="old - new in the clamp")
def backwards(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (old - v).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("added-to-the-new", source="V + clip(V - V_old): the start exchanged")
def from_new(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = v + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("half-left-out", source="CLAIMS, error 14: three factors in three codes")
def whole(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return torch.maximum(plain, clipped).mean()


@TASK.wrong("larger-of-two-means", source="the mean taken first; CASES K32")
def means_first(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain.mean(), clipped.mean())


@TASK.wrong("maximum-before-square", source="errors compared with their signs")
def signed(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = v - returns, held - returns
    return 0.5 * (torch.maximum(plain, clipped) ** 2).mean()


@TASK.wrong("old-not-detached", source="old values recomputed with a gradient; K30")
def live_old(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("values-detached", source="the critic cut off from its own loss; L07")
def dead_values(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    v, old = v.detach(), old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("clip-fixed", source="0.2 written out, the policy's epsilon")
def fixed(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-0.2, 0.2)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("half-a-band", source="clamp(max=clip), one of the two ends")
def upper_only(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(max=clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("summed", source="a sum, which grows with the minibatch; CASES K36")
def summed(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).sum()


@TASK.wrong("outside-dropped", source="outside the band taken for silent; trl #3032")
def dropped(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    plain = (v - returns) ** 2
    inside = (v - old).abs() <= clip
    return 0.5 * torch.where(inside, plain, plain.detach()).mean()


@TASK.variant("half-a-band")
def lower_only(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(min=-clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.variant("minimum-for-maximum")
def minimum_whole(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    held = old.detach() + (v - old.detach()).clamp(-clip, clip)
    return torch.minimum((v - returns) ** 2, (held - returns) ** 2).mean()


@TASK.variant("only-the-clipped")
def only_clipped_whole(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    held = old.detach() + (v - old.detach()).clamp(-clip, clip)
    return ((held - returns) ** 2).mean()


@TASK.variant("band-as-a-ratio")
def around_one(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    held = v.clamp(1 - clip, 1 + clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("not-averaged", source="one loss a step: the mean forgotten")
def not_averaged(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * torch.maximum(plain, clipped)


@TASK.wrong("not-squared", source="|error| for its square: trains the median")
def not_squared(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns).abs(), (held - returns).abs()
    return 0.5 * torch.maximum(plain, clipped).mean()


@TASK.wrong("errors-added", source="both errors kept, and no choice made")
def added(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    held = old + (v - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (held - returns) ** 2
    return 0.5 * (plain + clipped).mean()


@TASK.wrong("return-held-back", source="the target clipped in place of the value")
def return_held(v: Tensor, old: Tensor, returns: Tensor, clip: float) -> Tensor:
    old = old.detach()
    target = old + (returns - old).clamp(-clip, clip)
    plain, clipped = (v - returns) ** 2, (v - target) ** 2
    return 0.5 * torch.maximum(plain, clipped).mean()
