"""Task: the critic's loss, half a mean squared error."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import mse_loss, smooth_l1_loss

from course_lib.notebook.checks.task import Case, Task


def critic_loss(values: Tensor, returns: Tensor) -> Tensor:
    """Return []: half the mean of (V - R)^2 for values [N, 1], as a network's last
    layer gives them, and returns [N], which are constants of the rollout."""
    return (values[:, 0] - returns.detach()).square().mean() / 2


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([3.0], [1.0]),
        _case([1.0, 2.0], [1.0, 2.0]),  # CASES K39
        _case([0.0, 0.0], [1.0, -3.0]),
        _case([2.0, 4.0, 8.0], [1.0, 1.5, 6.0]),
    ]
    for count in (4, 6):
        values, returns = (10.0 * torch.randn(2, count, generator=generator)).tolist()
        cases.append(_case(values, returns))
    return cases


def _case(values: list[float], returns: list[float]) -> Case:
    column = torch.tensor(values, dtype=torch.float64)[:, None]
    return Case(
        {"values": column, "returns": torch.tensor(returns, dtype=torch.float64)}
    )


TASK = Task(
    "critic_loss",
    critic_loss,
    _cases,
    results=("loss",),
    gradients=("values", "returns"),
)


@TASK.right
def squeezed(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return 0.5 * (errors**2).mean()


@TASK.right
def by_mse(values: Tensor, returns: Tensor) -> Tensor:
    target = returns.detach()[:, None]
    return 0.5 * mse_loss(values, target)


@TASK.right
def by_sum(values: Tensor, returns: Tensor) -> Tensor:
    target = returns.detach().view_as(values)
    squares = (values - target).square()
    return squares.sum() / (2 * len(returns))


@TASK.wrong("every-value-on-every-return", source="RLinf/RLinf #1568; CASES K39")
def table(values: Tensor, returns: Tensor) -> Tensor:
    errors = values - returns.detach()
    return 0.5 * (errors**2).mean()


@TASK.wrong("half-left-out", source="CLAIMS, error 14: three factors in three codes")
def whole(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return (errors**2).mean()


@TASK.wrong(
    "halved-twice", source="vf_coef multiplied inside as well; CLAIMS, error 14"
)
def quarter(values: Tensor, returns: Tensor) -> Tensor:
    target = returns.detach()[:, None]
    return 0.5 * 0.5 * mse_loss(values, target)


@TASK.wrong("target-not-detached", source="a target that holds V(s'); CASES L06, L19")
def live_target(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns
    return 0.5 * (errors**2).mean()


@TASK.wrong("values-detached", source="the wrong one of the two cut off; CASES L07")
def dead_values(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1).detach() - returns.detach()
    return 0.5 * (errors**2).mean()


@TASK.variant("values-detached")
def exchanged(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1).detach() - returns
    return 0.5 * (errors**2).mean()


@TASK.wrong("sign-turned", source="a minus kept from the policy's loss")
def negated(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return -0.5 * (errors**2).mean()


@TASK.wrong("summed", source="a sum, which grows with the minibatch; CASES K36")
def summed(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return 0.5 * (errors**2).sum()


@TASK.wrong("not-averaged", source="one loss a step: the mean forgotten")
def not_averaged(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return 0.5 * (errors**2)


@TASK.wrong("mean-squared", source="the mean inside the square: errors cancel")
def mean_first(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return 0.5 * errors.mean() ** 2


@TASK.wrong("not-squared", source="the mean error, which has no lower end")
def not_squared(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return 0.5 * errors.mean()


@TASK.wrong("absolute", source="|error| for its square: trains the median")
def absolute(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return 0.5 * errors.abs().mean()


@TASK.variant("absolute")
def absolute_whole(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return errors.abs().mean()


@TASK.wrong("huber", source="smooth_l1_loss, from value-based code: linear beyond 1")
def huber(values: Tensor, returns: Tensor) -> Tensor:
    target = returns.detach()[:, None]
    return smooth_l1_loss(values, target)


@TASK.wrong("root", source="the root of the mean square, as in a report")
def root(values: Tensor, returns: Tensor) -> Tensor:
    target = returns.detach()[:, None]
    return 0.5 * (mse_loss(values, target) + 1e-12).sqrt()


@TASK.wrong("target-standardised", source="returns normalised like advantages")
def standardised(values: Tensor, returns: Tensor) -> Tensor:
    target = returns.detach()[:, None]
    target = (target - target.mean()) / (target.std(correction=0) + 1e-8)
    return 0.5 * mse_loss(values, target)


@TASK.wrong("only-the-spread", source="the variance of the errors for their square")
def spread(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return 0.5 * ((errors - errors.mean()) ** 2).mean()


@TASK.wrong("trained-on-advantages", source="the critic's target with V subtracted")
def on_advantages(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - (returns - values.squeeze(-1)).detach()
    return 0.5 * (errors**2).mean()


@TASK.wrong("largest-error", source="max for mean")
def largest(values: Tensor, returns: Tensor) -> Tensor:
    errors = values.squeeze(-1) - returns.detach()
    return 0.5 * (errors**2).max()


@TASK.variant("every-value-on-every-return")
def table_with_live_target(values: Tensor, returns: Tensor) -> Tensor:
    return 0.5 * ((values - returns) ** 2).mean()


@TASK.variant("every-value-on-every-return")
def table_without_half(values: Tensor, returns: Tensor) -> Tensor:
    return ((values - returns.detach()) ** 2).mean()


@TASK.variant("every-value-on-every-return")
def table_with_all_of_it(values: Tensor, returns: Tensor) -> Tensor:
    return ((values - returns) ** 2).mean()


@TASK.variant("half-left-out")
def whole_with_live_target(values: Tensor, returns: Tensor) -> Tensor:
    return ((values.squeeze(-1) - returns) ** 2).mean()


@TASK.variant("sign-turned")
def negated_whole(values: Tensor, returns: Tensor) -> Tensor:
    return -((values.squeeze(-1) - returns.detach()) ** 2).mean()


@TASK.variant("summed")
def summed_whole(values: Tensor, returns: Tensor) -> Tensor:
    return ((values.squeeze(-1) - returns.detach()) ** 2).sum()


@TASK.variant("not-averaged")
def column_not_averaged(values: Tensor, returns: Tensor) -> Tensor:
    return 0.5 * (values - returns.detach()[:, None]) ** 2


@TASK.variant("target-standardised")
def standardised_by_sample(values: Tensor, returns: Tensor) -> Tensor:
    target = returns.detach()
    target = (target - target.mean()) / (target.std() + 1e-8)
    return 0.5 * ((values.squeeze(-1) - target) ** 2).mean()


@TASK.variant("huber")
def huber_halved(values: Tensor, returns: Tensor) -> Tensor:
    return 0.5 * smooth_l1_loss(values, returns.detach()[:, None])
