"""Everything about a tiny language model, by backward induction over its prefixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.exact.token_tree import ROWS, Table, TokenTree
from course_lib.kernels.arguments import require_not_negative


@dataclass(frozen=True)
class LanguageValues:
    """What a policy is worth, exactly."""

    score: float
    """E[score], in the score's unit."""
    kl: float
    """KL(pi, ref) of whole responses, nats."""
    objective: float
    """J = score - beta * kl."""
    values: list[Tensor]
    """V(prefix), [A^t] float64 for each level: what is still to come, the score less
    beta times the divergence of the tokens from here on."""


def evaluate(
    tree: TokenTree, policy: Table, ref: Table, scores: Table, beta: float
) -> LanguageValues:
    """Judge a policy by backward induction over all prefixes (eq-language-value):

        V(s) = sum_a pi(a | s) (score or V(s a)  -  beta (log pi - log ref)(a | s))

    Args:
        tree: the responses.
        policy, ref: log-probabilities; `ref` the frozen reference's.
        scores: as `end_scores` makes them.
        beta: the price of a nat, at least 0.

    Raises:
        TypeError, ValueError: a beta that is no number of at least 0, or a policy that
            allows what the reference forbids, at a price above 0.

    Source: Ziegler et al. (2019), equation 2, taken exactly.
    """
    beta = require_not_negative("beta", beta)
    sums = torch.zeros(0)  # [A^(t + 1), 3]: score, KL and V of the level below
    values: list[Tensor] = []
    for level in reversed(range(tree.length)):
        here = torch.empty(tree.num_prefixes(level), 3, dtype=torch.float64)
        for start in range(0, len(here), ROWS):
            rows = slice(start, min(start + ROWS, len(here)))
            log_pi = policy[level][rows].double()  # [N, V]
            pi = log_pi.exp()
            gap = torch.where(pi > 0, log_pi - ref[level][rows].double(), 0.0)
            if beta > 0 and (gap == math.inf).any():
                raise ValueError("policy must not allow what ref forbids, at beta > 0")
            score = scores[level][rows].double()
            ahead = torch.stack((score, torch.zeros_like(score), score), -1)
            if level + 1 < tree.length:
                below = sums[rows.start * tree.branching : rows.stop * tree.branching]
                ahead[:, : tree.branching] = below.view(-1, tree.branching, 3)
            ahead[..., 1] += gap
            ahead[..., 2] -= beta * gap if beta > 0 else 0.0
            here[rows] = (pi.unsqueeze(-1) * ahead).sum(1)
        sums = here
        values.insert(0, sums[:, 2].clone())
    score, kl, objective = sums[0].tolist()
    return LanguageValues(score, kl, objective, values)


def optimum(
    tree: TokenTree, ref: Table, scores: Table, beta: float
) -> tuple[Table, LanguageValues]:
    """The best policy there is, pi* = ref exp(score / beta) / Z (eq-optimum).

    Token by token, by backward induction:

        V*(s) = beta log sum_a ref(a | s) exp(next / beta),
        log pi*(a | s) = log ref(a | s) + (next - V*(s)) / beta,

    where next is the score of a response that ends with a, and V*(s a) otherwise.

    Args:
        tree, ref, scores: as for `evaluate`.
        beta: the price of a nat, above 0.

    Returns:
        The policy's table, float64, and what it is worth: J* = V* of the empty prefix.

    Raises:
        TypeError, ValueError: a beta that is no number above 0.

    Source: Ziegler et al. (2019), section 2; Rafailov et al. (2023), equation 4.
    """
    if require_not_negative("beta", beta) == 0.0:
        raise ValueError("beta must be above 0: without a price the best policy is")
    table: Table = []
    value = torch.zeros(0)  # [A^(t + 1)]
    for level in reversed(range(tree.length)):
        ahead = scores[level].to(torch.float64, copy=True)  # [A^t, V]
        if level + 1 < tree.length:
            ahead[:, : tree.branching] = value.view(-1, tree.branching)
        tilted = ahead.div_(beta).add_(ref[level])
        normaliser = tilted.logsumexp(-1, keepdim=True)
        value = beta * normaliser.squeeze(-1)
        table.insert(0, tilted.sub_(normaliser))
    return table, evaluate(tree, table, ref, scores, beta)


def response_log_probs(tree: TokenTree, table: Table) -> Table:
    """log pi of each whole response, at the token that ends it; -inf where none ends.

    So each response stands once, and the exponentials of all entries sum to 1.
    """
    responses = []
    before = torch.zeros(1, dtype=torch.float64)  # log pi of each prefix
    for level in range(tree.length):
        joint = before.unsqueeze(-1) + table[level].double()  # [A^t, V]
        ended = torch.full_like(joint, -math.inf)
        ended[:, tree.ending(level)] = joint[:, tree.ending(level)]
        responses.append(ended)
        before = joint[:, : tree.branching].flatten()
    return responses


def next_values(
    tree: TokenTree, values: Sequence[Tensor], scores: Table, prefix: Sequence[int]
) -> Tensor:
    """What each next token of a prefix leads to, [V] float64: V of the longer prefix,
    or the score where the response is over. Without a price on KL this is Q.

    Args:
        tree: the responses.
        values: as `evaluate` gives them.
        scores: as `end_scores` makes them.
        prefix: fewer than T tokens.

    Raises:
        ValueError: a prefix that no response goes on from.
    """
    level, node = len(prefix), tree.node(prefix)
    if level >= tree.length:
        raise ValueError(
            f"prefix must have fewer than {tree.length} tokens, got {level}"
        )
    ahead = scores[level][node].to(torch.float64, copy=True)
    if level + 1 < tree.length:
        start = node * tree.branching
        ahead[: tree.branching] = values[level + 1][start : start + tree.branching]
    return ahead
