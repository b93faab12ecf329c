"""Task: how far has the policy moved, and how much of the batch has gone silent?"""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.kernels import clipped_policy_loss
from course_lib.notebook.checks.task import Case, Task

Three = tuple[Tensor, Tensor, Tensor]


def policy_diagnostics(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip_eps: float
) -> Three:
    """Return three numbers, [] each, of the steps [N] of a minibatch.

    approx_kl: the mean of rho - 1 - log rho, which is never negative.
    clip_frac: the share with |rho - 1| > eps.
    clip_frac_active: the share whose gradient the clip has made 0.
    """
    _, told = clipped_policy_loss(
        log_probs, old_log_probs, advantages, clip_eps=clip_eps
    )
    return told["approx_kl"], told["clip_frac"], told["clip_frac_active"]


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([0.0, 0.0], [1.0, -1.0], 0.2),
        _case([0.5, -0.1], [1.0, -1.0], 0.2),  # CASES K45
        _case([0.5, 0.5], [1.0, -1.0], 0.2),  # CLAIMS row 16: one of two is silent
        _case([-0.5, -0.5], [1.0, -1.0], 0.2),
        _case([0.19, -0.21, 0.3], [1.0, 1.0, -1.0], 0.2),  # 1.209, 0.811, 1.350
        _case([0.6, -0.6, -0.6, 0.6], [2.0, -0.5, 0.5, -0.25], 0.1),
    ]
    for clip_eps in (0.2, 0.4):
        log_ratio, gains = torch.randn(2, 8, generator=generator)
        far = (0.5 * log_ratio).tolist()
        cases.append(_case(far, gains.tolist(), clip_eps))
    # A trap: nothing is asked for, so it is not the clip that makes the gradient 0.
    nothing = _case([0.7, -0.7, 0.7], [0.0, 0.0, 1.0], 0.2)
    return [*cases, replace(nothing, adversarial=True)]


def _case(log_ratio: list[float], advantages: list[float], clip_eps: float) -> Case:
    old = torch.tensor([-2.0 + 0.25 * i for i in range(len(log_ratio))])
    moved = torch.tensor(log_ratio, dtype=torch.float64)
    listed = ", ".join(f"{math.exp(x):.3g}" for x in log_ratio)
    signed = ", ".join(f"{advantage:.3g}" for advantage in advantages)
    return Case(
        {
            "log_probs": old.double() + moved,
            "old_log_probs": old.double(),
            "advantages": torch.tensor(advantages, dtype=torch.float64),
            "clip_eps": clip_eps,
        },
        f"log-probabilities with ratios [{listed}], advantages = [{signed}], "
        f"clip_eps = {clip_eps:g}",
    )


TASK = Task(
    "policy_diagnostics",
    policy_diagnostics,
    _cases,
    results=("approx_kl", "clip_frac", "clip_frac_active"),
    tolerance=1e-6,  # a share of few steps in float32
    any_float=True,
)


@TASK.right
def by_sides(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    kl = (ratio - 1 - (new - old)).mean()
    above, below = ratio > 1 + eps, ratio < 1 - eps
    outside = above | below
    silent = (above & (advantages > 0)) | (below & (advantages < 0))
    return kl, outside.float().mean(), silent.float().mean()


@TASK.right
def by_push(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = (torch.expm1(log_ratio) - log_ratio).mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.right
def by_objective(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    kl = (ratio - 1 - ratio.log()).mean()
    outside = clipped != ratio
    silent = clipped * advantages < ratio * advantages
    return kl, outside.float().mean(), silent.float().mean()


@TASK.wrong("signed-estimate", source="openai/spinningup #137; CASES K45")
def signed(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = -log_ratio.mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.variant("signed-estimate")
def signed_forwards(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    _, outside, silent = by_push(new, old, advantages, eps)
    return (new - old).mean(), outside, silent


@TASK.variant("signed-estimate")
def magnitude(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    _, outside, silent = by_push(new, old, advantages, eps)
    return (new - old).mean().abs(), outside, silent


@TASK.wrong("estimate-turned-round", source="natolambert/rlhf-book #489")
def turned(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = (torch.expm1(-log_ratio) + log_ratio).mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.wrong("new-policy-weighted", source="KL(new, old) from the old policy's samples")
def reverse(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = (log_ratio.exp() * log_ratio - torch.expm1(log_ratio)).mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.variant("new-policy-weighted")
def reverse_plain(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    _, outside, silent = by_push(new, old, advantages, eps)
    return ((new - old).exp() * (new - old)).mean(), outside, silent


@TASK.wrong("estimate-negated", source="a sign lost: KL is never negative")
def negated(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = (log_ratio - torch.expm1(log_ratio)).mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.wrong("square", source="k2 for k3: another estimate, a biased one")
def half_square(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = (log_ratio**2).mean() / 2
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.wrong("log-left-out", source="the mean of rho - 1, which is 0 on average")
def log_left_out(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    kl = (ratio - 1).mean()
    above, below = ratio > 1 + eps, ratio < 1 - eps
    outside = above | below
    silent = (above & (advantages > 0)) | (below & (advantages < 0))
    return kl, outside.float().mean(), silent.float().mean()


@TASK.wrong("one-left-out", source="exp for expm1: 1 too many")
def one_left_out(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    kl = (ratio - (new - old)).mean()
    above, below = ratio > 1 + eps, ratio < 1 - eps
    outside = above | below
    silent = (above & (advantages > 0)) | (below & (advantages < 0))
    return kl, outside.float().mean(), silent.float().mean()


@TASK.wrong("estimate-summed", source="a sum for a mean; CASES K36")
def summed(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    kl = (ratio - 1 - (new - old)).sum()
    above, below = ratio > 1 + eps, ratio < 1 - eps
    outside = above | below
    silent = (above & (advantages > 0)) | (below & (advantages < 0))
    return kl, outside.float().mean(), silent.float().mean()


@TASK.wrong("all-outside-silent", source="huggingface/trl #3032; CLAIMS, error 19")
def all_silent(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = (torch.expm1(log_ratio) - log_ratio).mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside
    return kl, outside.double().mean(), silent.double().mean()


@TASK.wrong("wrong-side-silent", source="openai/spinningup #255; CASES L16")
def wrong_side(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = (torch.expm1(log_ratio) - log_ratio).mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages < 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.wrong("half-of-the-silent", source="ray-project/ray #37334; CASES L16")
def upper_silent(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    kl = (ratio - 1 - (new - old)).mean()
    above, below = ratio > 1 + eps, ratio < 1 - eps
    outside = above | below
    silent = above & (advantages > 0)
    return kl, outside.float().mean(), silent.float().mean()


@TASK.wrong("share-of-the-clipped", source="divided by what is outside, not by all")
def of_clipped(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    kl = (ratio - 1 - (new - old)).mean()
    above, below = ratio > 1 + eps, ratio < 1 - eps
    outside = above | below
    silent = (above & (advantages > 0)) | (below & (advantages < 0))
    return kl, outside.float().mean(), silent.sum() / outside.sum().clamp(min=1)


@TASK.wrong("only-above", source="ratio > 1 + eps alone: half of the band")
def only_above(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    kl = (ratio - 1 - (new - old)).mean()
    above, below = ratio > 1 + eps, ratio < 1 - eps
    outside = above
    silent = (above & (advantages > 0)) | (below & (advantages < 0))
    return kl, outside.float().mean(), silent.float().mean()


@TASK.wrong(
    "band-on-the-log", source="|log rho| > eps: the band of the ratio on its log"
)
def on_log(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = (torch.expm1(log_ratio) - log_ratio).mean()
    far = log_ratio
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.wrong("counted", source="how many, for what share")
def counted(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = (torch.expm1(log_ratio) - log_ratio).mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().sum(), silent.double().sum()


@TASK.wrong("ratio-upside-down", source="old - new in the exponent")
def upside_down(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = old - new
    kl = (torch.expm1(log_ratio) - log_ratio).mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.wrong("no-advantage-silent", source="A >= 0 for A > 0: nothing was asked for")
def zero_silent(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    kl = (ratio - 1 - (new - old)).mean()
    above, below = ratio > 1 + eps, ratio < 1 - eps
    outside = above | below
    silent = (above & (advantages >= 0)) | (below & (advantages <= 0))
    return kl, outside.float().mean(), silent.float().mean()


@TASK.variant("no-advantage-silent")
def zero_silent_above(
    new: Tensor, old: Tensor, advantages: Tensor, eps: float
) -> Three:
    ratio = (new - old).exp()
    kl, outside, _ = by_sides(new, old, advantages, eps)
    bounded = torch.where(advantages >= 0, ratio > 1 + eps, ratio < 1 - eps)
    return kl, outside, bounded.float().mean()


@TASK.variant("half-of-the-silent")
def lower_silent(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    kl, outside, _ = by_sides(new, old, advantages, eps)
    silent = ((new - old).exp() < 1 - eps) & (advantages < 0)
    return kl, outside, silent.float().mean()


@TASK.variant("square")
def whole_square(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    _, outside, silent = by_push(new, old, advantages, eps)
    return (new - old).square().mean(), outside, silent


@TASK.wrong("distance-of-the-logarithms", source="the mean of |log rho|")
def distance(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    log_ratio = new - old
    kl = log_ratio.abs().mean()
    far = log_ratio.exp() - 1
    outside = far.abs() > eps
    silent = outside & (far * advantages > 0)
    return kl, outside.double().mean(), silent.double().mean()


@TASK.wrong("inside-counted", source="<= for >: what is not clipped")
def inside(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Three:
    ratio = (new - old).exp()
    kl = (ratio - 1 - (new - old)).mean()
    above, below = ratio > 1 + eps, ratio < 1 - eps
    outside = ~(above | below)
    silent = (above & (advantages > 0)) | (below & (advantages < 0))
    return kl, outside.float().mean(), silent.float().mean()
