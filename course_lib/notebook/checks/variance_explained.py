"""Task: how much of the returns the critic explains."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.algorithms.history import explained_variance
from course_lib.notebook.checks.task import Case, Task


def variance_explained(values: Tensor, returns: Tensor) -> Tensor:
    """Return []: 1 - Var(G - V) / Var(G) for values and returns [N]; NaN where all
    returns are alike, since there is nothing to explain."""
    return explained_variance(values[None], returns[None])


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([1, 2, 3], [1, 2, 3]),  # perfect
        _case([5, 5, 5], [1, 2, 3]),  # constant: nothing explained
        _case([2, 4, 6], [1, 2, 3]),  # twice too large
        _case([3, 2, 1], [1, 2, 3]),  # worse than a constant
        _case([11, 12, 14, 13], [1, 2, 3, 4]),  # off by a level, which is no variance
        _case([0, 1], [4, 8]),
    ]
    for count in (5, 8):
        returns, noise = torch.randn(2, count, generator=generator)
        values = 0.7 * returns + 0.5 * noise + 3.0
        cases.append(_case(values.tolist(), (10 * returns).tolist()))
    alike = _case([1, 2, 3], [4, 4, 4])
    return [*cases, replace(alike, adversarial=True)]


def _case(values: list[float], returns: list[float]) -> Case:
    return Case(
        {
            "values": torch.tensor(values, dtype=torch.float64),
            "returns": torch.tensor(returns, dtype=torch.float64),
        }
    )


TASK = Task(
    "variance_explained",
    variance_explained,
    _cases,
    results=("explained variance",),
    tolerance=1e-5,  # a tiny number below the line shows where there is nothing else
)


@TASK.right
def by_population(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var(correction=0)
    left = (returns - values).var(correction=0)
    if total == 0:
        return torch.full_like(total, math.nan)
    return 1 - left / total


@TASK.right
def by_sample(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.right
def by_errors(values: Tensor, returns: Tensor) -> Tensor:
    total = ((returns - returns.mean()) ** 2).sum()
    errors = returns - values
    left = ((errors - errors.mean()) ** 2).sum()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.wrong("one-minus-left-out", source="the share that is not explained")
def unexplained(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return torch.where(total > 0, left / total, torch.nan)


@TASK.wrong("level-counted", source="the mean squared error for the variance: R²")
def level_counted(values: Tensor, returns: Tensor) -> Tensor:
    total = ((returns - returns.mean()) ** 2).sum()
    errors = returns - values
    left = (errors**2).sum()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.variant("level-counted")
def error_over_sample(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = ((returns - values) ** 2).mean()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.wrong("spread-of-the-values", source="Var(V) / Var(G): how far V varies at all")
def of_values(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = values.var()
    return torch.where(total > 0, left / total, torch.nan)


@TASK.variant("spread-of-the-values")
def one_minus_of_values(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = values.var()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.wrong("divided-by-the-values", source="the two arguments exchanged")
def by_values(values: Tensor, returns: Tensor) -> Tensor:
    total = values.var()
    left = (returns - values).var()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.wrong("deviations", source="std for var: the root of both")
def deviations(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return torch.where(total > 0, 1 - (left / total).sqrt(), torch.nan)


@TASK.wrong("squares-for-variance", source="E[G²] below: the returns not centred")
def uncentred(values: Tensor, returns: Tensor) -> Tensor:
    total = (returns**2).sum()
    errors = returns - values
    left = ((errors - errors.mean()) ** 2).sum()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.variant("squares-for-variance")
def uncentred_both(values: Tensor, returns: Tensor) -> Tensor:
    total = (returns**2).mean()
    left = ((returns - values) ** 2).mean()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.wrong("two-denominators", source="one variance by n, the other by n - 1")
def two_denominators(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var(correction=0)
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.variant("two-denominators")
def two_denominators_below(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var(correction=0)
    left = (returns - values).var()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.wrong("correlation", source="how well a line fits, whatever its slope")
def correlation(values: Tensor, returns: Tensor) -> Tensor:
    v, g = values - values.mean(), returns - returns.mean()
    both = (v * g).sum() / (v.square().sum() * g.square().sum() + 1e-300).sqrt()
    return torch.where(g.square().sum() > 0, both**2, torch.nan)


@TASK.variant("correlation")
def correlation_itself(values: Tensor, returns: Tensor) -> Tensor:
    v, g = values - values.mean(), returns - returns.mean()
    both = (v * g).sum() / (v.square().sum() * g.square().sum() + 1e-300).sqrt()
    return torch.where(g.square().sum() > 0, both, torch.nan)


@TASK.wrong("cut-at-zero", source="clamp(min=0): a critic worse than none is hidden")
def cut_at_zero(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return torch.where(total > 0, 1 - left / total, torch.nan).clamp(min=0)


@TASK.wrong("nothing-to-explain", source="x / 0 when all returns are alike")
def unguarded(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return 1 - left / total


@TASK.variant("nothing-to-explain")
def guarded_by_epsilon(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return 1 - left / (total + 1e-12)


@TASK.variant("nothing-to-explain")
def guarded_by_a_hundred_millionth(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return 1 - left / (total + 1e-8)


@TASK.variant("nothing-to-explain")
def guarded_by_a_millionth(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return 1 - left / (total + 1e-6)


@TASK.variant("nothing-to-explain")
def population_guarded_by_next_to_nothing(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var(correction=0)
    left = (returns - values).var(correction=0)
    return 1 - left / (total + 1e-12)


@TASK.variant("nothing-to-explain")
def population_guarded(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var(correction=0)
    left = (returns - values).var(correction=0)
    return 1 - left / (total + 1e-8)


@TASK.variant("nothing-to-explain")
def population_guarded_by_a_millionth(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var(correction=0)
    left = (returns - values).var(correction=0)
    return 1 - left / (total + 1e-6)


@TASK.variant("nothing-to-explain")
def zero_for_nothing(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return torch.where(total > 0, 1 - left / total, 0.0)


@TASK.variant("nothing-to-explain")
def one_for_nothing(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return torch.where(total > 0, 1 - left / total, 1.0)


@TASK.wrong("sum-for-difference", source="Var(G + V): a sign")
def sum_of_both(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns + values).var()
    return torch.where(total > 0, 1 - left / total, torch.nan)


@TASK.wrong("quotient-upside-down", source="the returns' variance above the line")
def quotient_upside_down(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return torch.where(total > 0, 1 - total / left, torch.nan)


@TASK.wrong("percent", source="times 100, as in a table")
def percent(values: Tensor, returns: Tensor) -> Tensor:
    total = returns.var()
    left = (returns - values).var()
    return torch.where(total > 0, 100 * (1 - left / total), torch.nan)


@TASK.variant("deviations")
def absolute_deviations(values: Tensor, returns: Tensor) -> Tensor:
    total = (returns - returns.mean()).abs().mean()
    left = (returns - values).abs().mean()
    return torch.where(total > 0, 1 - left / total, torch.nan)
