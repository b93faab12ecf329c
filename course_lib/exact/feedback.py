"""What copying costs and what a verdict tells, in closed form (chapter 00)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course_lib.kernels.arguments import require_fraction, require_positive_int


def off_path_probabilities(
    error: float, num_steps: int, recovery: float = 0.0
) -> Tensor:
    """Chance that a copying learner is off the path after each step.

        d_t = error / (error + recovery) * (1 - (1 - error - recovery)^t),
        d_t = 1 - (1 - error)^t                              without recovery.

    On the path it leaves it with probability `error` a step; off the path it finds
    back with probability `recovery` a step. The sum over t is the expected number of
    steps that are wrong; independent examples would give error * num_steps.

    Args:
        error: chance of a wrong step on the path, in [0, 1].
        num_steps: T, the length of the path, at least 1.
        recovery: chance a step to find back to the path, in [0, 1].

    Returns:
        d_1 ... d_T: [T] float64.

    Raises:
        TypeError: a probability that is not a number, or num_steps not an integer.
        ValueError: a probability outside [0, 1], or num_steps below 1.

    Source: the case without recovery is the one in which the bound of Ross and
    Bagnell (2010), "Efficient reductions for imitation learning", theorem 2.1, has
    its order T^2 * error; the other one is a Markov chain of two states.
    """
    error = require_fraction("error", error)
    recovery = require_fraction("recovery", recovery)
    count = require_positive_int("num_steps", num_steps)
    if error == 0.0:
        return torch.zeros(count, dtype=torch.float64)
    times = torch.arange(1, count + 1, dtype=torch.float64)  # [T]
    in_the_long_run = error / (error + recovery)
    stays = torch.tensor(1 - error - recovery, dtype=torch.float64)
    return in_the_long_run * (1 - stays**times)


def right_in_the_better(num_decisions: int, wrong_verdicts: float = 0.0) -> float:
    """Chance that one decision is right in the better of two answers.

        1/2 + (1/2 - wrong_verdicts) * binom(2n, n) / 4^n,

    which without wrong verdicts is about 1/2 + 1 / (2 sqrt(pi n)).

    Both answers make n decisions, each right with probability 1/2 on its own. The
    better one has more right decisions; a coin decides between equals. Times n, it
    is the expected number of right decisions in the better answer.

    Args:
        num_decisions: n, at least 1.
        wrong_verdicts: share of the verdicts that name the worse answer, in [0, 1].

    Returns:
        A probability.

    Raises:
        TypeError: num_decisions not an integer, wrong_verdicts not a number.
        ValueError: num_decisions below 1, or wrong_verdicts outside [0, 1].

    Source: E|X - Y| = n binom(2n, n) / 4^n for two independent binomials X and Y with
    n trials and probability 1/2 (the mean absolute deviation of a binomial with 2n
    trials, de Moivre 1730), and E[max] = n/2 + E|X - Y| / 2.
    """
    count = require_positive_int("num_decisions", num_decisions)
    wrong_verdicts = require_fraction("wrong_verdicts", wrong_verdicts)
    equal = float(math.comb(2 * count, count) / 4**count)  # chance of equal counts
    return 0.5 + (0.5 - wrong_verdicts) * equal
