"""Task: PPO's clipped objective, one number for each token."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.notebook.checks.task import Case, Task


def clipped_objective(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip_eps: float
) -> Tensor:
    """Return [N]: min(rho A, clip(rho, 1 - eps, 1 + eps) A), rho = exp(new - old).

    Which of the two the minimum picks is decided by the sign of A: a bound from above
    for A >= 0, from below for A < 0. The upper one is laid on log rho, so that a huge
    ratio is never formed where it is not paid for.
    """
    positive = advantages >= 0
    ceiling = torch.full_like(log_probs, math.log1p(clip_eps))
    ceiling[~positive] = math.inf
    ratio = torch.minimum(log_probs - old_log_probs, ceiling).exp()
    floored = ratio.clamp(min=1 - clip_eps)
    return torch.where(positive, ratio, floored) * advantages


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([-1.0], [-1.5], [1.0], 0.2),  # CASES K30
        _of_ratios([1.5, 0.5, 1.5], [-1.0, -1.0, 1.0], 0.2),  # CASES K31
        _of_ratios([10.0, 10.0, 0.5], [-1.0, 1.0, -1.0], 0.2),  # CASES L16
        _of_ratios([1.0, 1.0], [2.0, -0.5], 0.2),  # CASES K29
    ]
    for clip_eps in (0.1, 0.9):
        log_probs, old = (-torch.rand(2, 8, generator=generator) - 0.5).tolist()
        advantages = torch.randn(8, generator=generator).tolist()
        cases.append(_case(log_probs, old, advantages, clip_eps))
    # CASES K28: exp of this log ratio is infinite, and nothing pays for it.
    huge = _case([-1.0, -1.0], [-1001.0, -1001.0], [0.0, 1.0], 0.2)
    tiny = _case([-1001.0, -1001.0], [-1.0, -1.0], [-1.0, 1.0], 0.2)
    # Traps: each guard against them gives other numbers beside another mistake.
    return [*cases, *(replace(case, adversarial=True) for case in (huge, tiny))]


def _case(
    log_probs: list[float],
    old_log_probs: list[float],
    advantages: list[float],
    clip_eps: float,
) -> Case:
    return Case(
        {
            "log_probs": torch.tensor(log_probs, dtype=torch.float64),
            "old_log_probs": torch.tensor(old_log_probs, dtype=torch.float64),
            "advantages": torch.tensor(advantages, dtype=torch.float64),
            "clip_eps": clip_eps,
        }
    )


def _of_ratios(ratios: list[float], advantages: list[float], clip_eps: float) -> Case:
    old = [-3.0] * len(ratios)
    log_probs = [-3.0 + math.log(ratio) for ratio in ratios]
    listed = ", ".join(f"{ratio:g}" for ratio in ratios)
    signed = ", ".join(f"{advantage:g}" for advantage in advantages)
    shown = (
        f"log_probs = -3 + log([{listed}]), old_log_probs = -3 each, "
        f"advantages = [{signed}], clip_eps = {clip_eps:g}"
    )
    return Case(_case(log_probs, old, advantages, clip_eps).arguments, shown)


TASK = Task(
    "clipped_objective",
    clipped_objective,
    _cases,
    results=("objective",),
    tolerance=1e-8,  # a log ratio held above -20 is as good as one that is not
    gradients=("log_probs",),
)


@TASK.right
def of_two_ratios(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(ratio * advantages, clipped * advantages)


@TASK.right
def of_two_pays(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - eps, 1 + eps) * advantages
    return torch.minimum(unclipped, clipped)


@TASK.right
def by_sign(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    bounded = torch.where(
        advantages > 0, ratio.clamp(max=1 + eps), ratio.clamp(min=1 - eps)
    )
    return bounded * advantages


@TASK.wrong("clip-without-sign", source="openai/spinningup #255; CASES K31, L16")
def without_sign(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return clipped * advantages


@TASK.wrong("minimum-of-ratios", source="takuseno/ppo #3; CASES K31")
def of_ratios(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(ratio, clipped) * advantages


@TASK.wrong("maximum-for-minimum", source="openai/baselines #1156; CASES K31")
def maximum(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - eps, 1 + eps) * advantages
    return torch.maximum(unclipped, clipped)


@TASK.wrong("loss-for-objective", source="leggedrobotics/rsl_rl #46; CASES K31")
def loss(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - eps, 1 + eps) * advantages
    return -torch.minimum(unclipped, clipped)


@TASK.wrong("loss-with-minimum", source="openai/baselines #1156: -A, min kept; K31")
def loss_minimum(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(-ratio * advantages, -clipped * advantages)


@TASK.wrong("clip-left-out", source="the surrogate before it is clipped; CASES L09")
def unclipped_twice(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    unclipped = ratio * advantages
    clipped = ratio * advantages
    return torch.minimum(unclipped, clipped)


@TASK.wrong("only-the-upper-bound", source="ray-project/ray #37334; CASES L16")
def upper_only(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(max=1 + eps) * advantages
    return torch.minimum(unclipped, clipped)


@TASK.wrong("pay-clipped", source="tensorlayer/TensorLayer #1072; CASES L16")
def pay_clipped(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    unclipped = ratio * advantages
    clipped = unclipped.clamp(1 - eps, 1 + eps)
    return torch.minimum(unclipped, clipped)


@TASK.wrong("band-around-zero", source="a clip of ρ that was meant for ρ − 1")
def around_zero(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(-eps, eps) * advantages
    return torch.minimum(unclipped, clipped)


@TASK.wrong("log-ratio-clipped", source="the band of ρ laid on log ρ")
def log_clipped(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = log_ratio.clamp(-eps, eps).exp()
    return torch.minimum(ratio * advantages, clipped * advantages)


@TASK.wrong("exponential-left-out", source="the log ratio used as the ratio")
def no_exponential(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(ratio * advantages, clipped * advantages)


@TASK.wrong("log-probs-divided", source="a ratio of the logarithms")
def divided(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = new / old
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - eps, 1 + eps) * advantages
    return torch.minimum(unclipped, clipped)


@TASK.wrong("ratio-upside-down", source="old over new: the order of the two exchanged")
def upside_down(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (old - new).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(ratio * advantages, clipped * advantages)


@TASK.wrong("old-is-the-current", source="radixark/miles PR 1966; CASES K30, L08")
def refreshed(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - new.detach()).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(ratio * advantages, clipped * advantages)


@TASK.wrong("ratio-detached", source="nikhilbarhate99/PPO-PyTorch #18; CASES L07")
def detached(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio.exp().detach()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(ratio * advantages, clipped * advantages)


@TASK.wrong("averaged", source="Omegastick/pytorch-cpp-rl #14: a mean too early; K32")
def averaged(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - eps, 1 + eps) * advantages
    return torch.minimum(unclipped, clipped).mean()


@TASK.wrong("ratio-overflows", source="radixark/miles PR 1363; CASES K28")
def overflowing(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = new - old
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(ratio * advantages, clipped * advantages)


@TASK.variant("ratio-overflows")
def capped_too_late(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).exp().clamp(max=1e6)
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - eps, 1 + eps) * advantages
    return torch.minimum(unclipped, clipped)


@TASK.wrong("clip-without-advantage", source="the factor lost in the second term")
def unweighted(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    ratio = (new - old).clamp(max=20.0).exp()
    unclipped = ratio * advantages
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(unclipped, clipped)


@TASK.wrong("outside-dropped", source="huggingface/trl #3032: outside taken for silent")
def dropped(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.where(ratio == clipped, ratio * advantages, 0.0)


@TASK.wrong("clip-eps-fixed", source="0.2 written out, as in the paper's experiments")
def fixed(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(0.8, 1.2)
    return torch.minimum(ratio * advantages, clipped * advantages)


@TASK.wrong("advantages-standardised", source="done here instead of before")
def standardised(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    log_ratio = (new - old).clamp(max=20.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - eps, 1 + eps)
    return torch.minimum(ratio * advantages, clipped * advantages)


@TASK.variant("advantages-standardised")
def standardised_whole(
    new: Tensor, old: Tensor, advantages: Tensor, eps: float
) -> Tensor:
    spread = advantages.std(correction=0) + 1e-8
    return of_two_ratios(new, old, (advantages - advantages.mean()) / spread, eps)


@TASK.variant("averaged")
def averaged_loss(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    return -averaged(new, old, advantages, eps)


@TASK.variant("log-ratio-clipped")
def log_ratio_alone(new: Tensor, old: Tensor, advantages: Tensor, eps: float) -> Tensor:
    return (new - old).clamp(-eps, eps).exp() * advantages
