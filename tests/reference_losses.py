"""Losses and their parts from their definitions: plain loops over Python floats.

Every function takes nested lists (rows of steps), reads a masked entry never, and
shares nothing with `course_lib.kernels`.
"""

from __future__ import annotations

import math

Rows = list[list[float]]
Mask = list[list[bool]]


def real_entries(x: Rows, mask: Mask) -> list[float]:
    return [
        value
        for row, real in zip(x, mask, strict=True)
        for value, counts in zip(row, real, strict=True)
        if counts
    ]


def mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


def variance(numbers: list[float], unbiased: bool = False) -> float:
    if len(numbers) < 2:
        return 0.0
    middle = mean(numbers)
    squares = math.fsum((value - middle) ** 2 for value in numbers)
    return squares / (len(numbers) - 1 if unbiased else len(numbers))


def whitened(x: Rows, mask: Mask, unbiased: bool, eps: float) -> Rows:
    numbers = real_entries(x, mask)
    middle, spread = mean(numbers), math.sqrt(variance(numbers, unbiased) + eps)
    return [
        [
            (value - middle) / spread if counts else 0.0
            for value, counts in zip(row, real, strict=True)
        ]
        for row, real in zip(x, mask, strict=True)
    ]


def reduced(terms: Rows, mask: Mask, reduction: str, length: int | None) -> float:
    per_row = []
    for row, real in zip(terms, mask, strict=True):
        kept = [value for value, counts in zip(row, real, strict=True) if counts]
        if not kept:
            continue
        total = math.fsum(kept)
        if reduction == "sequence_mean":
            total /= len(kept)
        if reduction == "constant":
            total /= length
        per_row.append(total)
    if reduction == "token_mean":
        return mean(real_entries(terms, mask))
    return mean(per_row)


def log_sum_exp(logits: list[float]) -> float:
    top = max(logits)
    return top + math.log(math.fsum(math.exp(z - top) for z in logits))


def log_prob(logits: list[float], token: int, temperature: float) -> float:
    scaled = [z / temperature for z in logits]
    return scaled[token] - log_sum_exp(scaled)


def probabilities(logits: list[float]) -> list[float]:
    normaliser = log_sum_exp(logits)
    return [math.exp(z - normaliser) for z in logits]


def entropy(logits: list[float], temperature: float) -> float:
    p = probabilities([z / temperature for z in logits])
    return -math.fsum(x * math.log(x) for x in p if x > 0)


def kl(p_logits: list[float], q_logits: list[float]) -> float:
    p, q = probabilities(p_logits), probabilities(q_logits)
    return math.fsum(
        x * (math.log(x) - math.log(y)) for x, y in zip(p, q, strict=True) if x > 0
    )


def kl_estimate(log_p: float, log_ref: float, kind: str) -> float:
    k1 = log_p - log_ref
    if kind == "k1":
        return k1
    if kind == "k2":
        return k1**2 / 2
    return math.exp(-k1) - 1 + k1


def shaped_rewards(
    log_p: list[float], ref: list[float], score: float, beta: float, real: list[bool]
) -> list[float]:
    rewards = [
        -beta * (a - b) if counts else 0.0
        for a, b, counts in zip(log_p, ref, real, strict=True)
    ]
    places = [t for t, counts in enumerate(real) if counts]
    if places:
        rewards[places[-1]] += score
    return rewards


def weights(log_p: list[float], b: list[float], real: list[bool], kind: str):
    ratios = [
        math.exp(x - y) if counts else 1.0
        for x, y, counts in zip(log_p, b, real, strict=True)
    ]
    if kind == "trajectory":
        return math.prod(ratios)
    if kind == "per_decision":
        ratios = [math.prod(ratios[: t + 1]) for t in range(len(ratios))]
    return [
        ratio if counts else 0.0 for ratio, counts in zip(ratios, real, strict=True)
    ]


def leave_one_out(scores: list[float], groups: list[int], valid: list[bool]):
    advantages = []
    for i, score in enumerate(scores):
        others = [
            scores[j]
            for j in range(len(scores))
            if j != i and groups[j] == groups[i] and valid[j]
        ]
        counts = valid[i] and others
        advantages.append(score - mean(others) if counts else 0.0)
    return advantages


def group_relative(
    scores: list[float], groups: list[int], scale: bool, unbiased: bool, eps: float
) -> list[float]:
    advantages = []
    for score, group in zip(scores, groups, strict=True):
        same = [s for s, g in zip(scores, groups, strict=True) if g == group]
        if len(same) == 1:
            advantages.append(0.0)
            continue
        far = score - mean(same)
        if scale:
            far /= math.sqrt(variance(same, unbiased)) + eps
        advantages.append(far)
    return advantages


def policy_gradient_term(log_p: float, weight: float) -> float:
    return -log_p * weight


def clipped_term(log_p: float, old: float, advantage: float, eps: float) -> float:
    ratio = math.exp(log_p - old)
    inside = min(max(ratio, 1 - eps), 1 + eps)
    return -min(ratio * advantage, inside * advantage)


def clipped_slope(log_p: float, old: float, advantage: float, eps: float) -> float:
    """d term / d log pi, the six cases written out."""
    ratio = math.exp(log_p - old)
    if advantage > 0 and ratio > 1 + eps:
        return 0.0
    if advantage < 0 and ratio < 1 - eps:
        return 0.0
    return -ratio * advantage


def kl_penalty_term(
    log_p: float, old: float, advantage: float, kl_here: float, beta: float
) -> float:
    return -(math.exp(log_p - old) * advantage - beta * kl_here)


def value_term(value: float, target: float) -> float:
    return 0.5 * (value - target) ** 2


def clipped_value_term(value: float, old: float, target: float, clip: float) -> float:
    held = min(max(value, old - clip), old + clip)
    return 0.5 * max((value - target) ** 2, (held - target) ** 2)


def bradley_terry(chosen: list[float], rejected: list[float]) -> float:
    return mean(
        [
            -math.log(1 / (1 + math.exp(-(a - b))))
            for a, b in zip(chosen, rejected, strict=True)
        ]
    )
