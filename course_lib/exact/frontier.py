"""How much score a nat of KL can buy: the frontier of all policies, exactly.

The best policy weighs each response by exp(score / beta), so all that matters about a
response is its score: a distribution over the scores is enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.exact.language import response_log_probs
from course_lib.exact.token_tree import Table, TokenTree
from course_lib.kernels.arguments import (
    require_like,
    require_not_negative,
    require_positive_int,
    require_tensor,
)


@dataclass(frozen=True)
class UniformOptimum:
    """The optimum of n / T, n counting one token, against a uniform reference."""

    score: float
    """E[n / T]: the chance of the target, the same in each place."""
    kl: float
    """KL(pi*, ref) of whole responses, nats."""
    objective: float
    """J* = score - beta * kl = beta log Z."""


def uniform_optimum(vocab_size: int, length: int, beta: float) -> UniformOptimum:
    """pi* for `TokenCount` without EOS, where the reference is uniform (eq-toy):

        p = e / (e + V - 1)  with  e = exp(1 / (T beta)),    J* = beta T log((e+V-1)/V)

    A uniform reference has independent places and the score is a sum over places, so
    pi* has independent places too.

        >>> round(uniform_optimum(8, 8, 0.1).score, 5)
        0.33272

    Args:
        vocab_size: V.
        length: T.
        beta: the price of a nat, above 0.

    Raises:
        TypeError, ValueError: a size below 1, or a beta that is not above 0.

    Source: the closed form of Ziegler et al. (2019), section 2, for this task.
    """
    size = require_positive_int("vocab_size", vocab_size)
    length = require_positive_int("length", length)
    if require_not_negative("beta", beta) == 0.0:
        raise ValueError("beta must be above 0, got 0")
    gain = 1 / (length * beta)
    # log Z of one place, without exp(1 / (T beta)), which overflows for a small beta.
    log_z = gain + math.log1p((size - 1) * math.exp(-gain)) - math.log(size)
    score = math.exp(gain - math.log(size) - log_z)
    objective = beta * length * log_z
    return UniformOptimum(score, (score - objective) / beta, objective)


def score_distribution(
    tree: TokenTree, table: Table, scores: Table
) -> tuple[Tensor, Tensor]:
    """The scores that responses can have, and how likely a policy is to get each.

    Args:
        tree: the responses.
        table: the policy.
        scores: as `end_scores` makes them.

    Returns:
        values [K] float64, ascending; probabilities [K] float64.
    """
    found: dict[float, float] = {}
    for log_probs, on_level in zip(
        response_log_probs(tree, table), scores, strict=True
    ):
        ended = log_probs > -math.inf
        values, place = on_level[ended].unique(return_inverse=True)
        sums = torch.zeros(len(values), dtype=torch.float64)
        sums.index_add_(0, place, log_probs[ended].exp())
        for value, chance in zip(values.tolist(), sums.tolist(), strict=True):
            found[value] = found.get(value, 0.0) + chance
    ordered = sorted(found)
    return (
        torch.tensor(ordered, dtype=torch.float64),
        torch.tensor([found[value] for value in ordered], dtype=torch.float64),
    )


def tilted(probabilities: Tensor, scores: Tensor, beta: float) -> Tensor:
    """The chance of each score under pi* = ref exp(score / beta) / Z.

    Args:
        probabilities: [K], the chance of each score under the reference.
        scores: [K].
        beta: the price of a nat, above 0.

    Returns:
        [K] float64.

    Raises:
        TypeError: no tensors.
        ValueError: shapes that differ, or a beta that is not above 0.
    """
    require_tensor("probabilities", probabilities, min_dims=1)
    require_like("scores", scores, probabilities.shape, probabilities)
    if require_not_negative("beta", beta) == 0.0:
        raise ValueError("beta must be above 0, got 0")
    return (probabilities.double().log() + scores.double() / beta).softmax(-1)


def divergence(p: Tensor, q: Tensor) -> float:
    """KL(p, q) in nats of two distributions [K]; 0 log 0 counts as 0."""
    both = p.double() * (p.double() / q.double()).log()
    return float(torch.where(p > 0, both, 0.0).sum())


def preference_ceiling(scores: Tensor, probabilities: Tensor, scale: float) -> float:
    """How often the best judge agrees with a noisy label (eq-preference-ceiling):

        E[ max(q, 1 - q) ],    q = sigma(scale * (s - s'))

    over pairs of independent responses: whoever knows all scores picks the likelier
    label. A pair of equal scores is a coin's toss, and counts one half.

    Args:
        scores: [K].
        probabilities: [K], the chance of each.
        scale: nats of log-odds for one unit of score, at least 0.

    Raises:
        TypeError, ValueError: shapes that differ, a scale below 0.

    Source: Bradley and Terry (1952) for the labels.
    """
    require_tensor("scores", scores, min_dims=1)
    require_like("probabilities", probabilities, scores.shape, scores)
    scale = require_not_negative("scale", scale)
    gap = scores.double().unsqueeze(0) - scores.double().unsqueeze(1)  # [K, K]
    chance = probabilities.double()
    return float(chance @ (scale * gap.abs()).sigmoid() @ chance)
