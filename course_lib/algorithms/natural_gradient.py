"""Steps measured by what they do to the policy: Fisher products, CG, line search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


def flat_gradient(
    output: Tensor,
    parameters: Sequence[Tensor],
    *,
    create_graph: bool = False,
    keep_graph: bool = False,
) -> Tensor:
    """d output / d parameters as rows, [S, P], of parameters of shape [S, ...].

    Args:
        output: a scalar, summed over the S networks.
        parameters: each [S, ...].
        create_graph: to differentiate the result again.
        keep_graph: to differentiate another output of the same graph.
    """
    slopes = torch.autograd.grad(
        output,
        list(parameters),
        create_graph=create_graph,
        retain_graph=create_graph or keep_graph,
    )
    return read_flat(slopes)


def read_flat(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors [S, ...] as the rows of one, [S, P]; a copy."""
    return torch.cat([one.reshape(len(one), -1) for one in tensors], dim=1)


@torch.no_grad()
def write_flat(parameters: Sequence[Tensor], values: Tensor) -> None:
    """Copy rows [S, P] into parameters [S, ...], in the order of `read_flat`."""
    start = 0
    for one in parameters:
        size = one[0].numel()
        one.copy_(values[:, start : start + size].view_as(one))
        start += size


def fisher_product(kl: Tensor, parameters: Sequence[Tensor], damping: float) -> Product:
    """v -> (F + damping I) v without forming F, [S, P] to [S, P].

    F is the Hessian of KL(old, new) at new = old, where its gradient is 0 and only its
    curvature is left (eq-fisher); a product with it is the gradient of (grad KL) . v.

    Args:
        kl: a scalar, the mean KL(old, new) of each network, summed over networks, with
            new = old.
        parameters: what new depends on, each [S, ...].
        damping: at least 0; keeps the product positive where F is flat.

    Source: Pearlmutter (1994); Schulman et al. (2015), appendix C.
    """
    gradient = flat_gradient(kl, parameters, create_graph=True)  # [S, P]

    def product(vector: Tensor) -> Tensor:
        along = (gradient * vector).sum()
        slopes = torch.autograd.grad(along, list(parameters), retain_graph=True)
        return read_flat(slopes) + damping * vector

    return product


def conjugate_gradient(
    product: Product, b: Tensor, *, iterations: int = 10, tolerance: float = 1e-10
) -> Tensor:
    """Solve A x = b for S symmetric positive matrices that are only ever multiplied.

    Each row stops by itself when its squared residual is below `tolerance`, and keeps
    what it has where a direction has no curvature left.

    Args:
        product: v -> A v, [S, P] to [S, P], row by row.
        b: [S, P].
        iterations: at most so many products.
        tolerance: of the squared residual.

    Returns:
        Tensor: x, [S, P].

    Source: Hestenes and Stiefel (1952).
    """
    x, residual = torch.zeros_like(b), b.clone()
    direction = b.clone()
    error = residual.square().sum(-1, keepdim=True)  # [S, 1]
    for _ in range(iterations):
        if not (error > tolerance).any():
            break
        curved = product(direction)
        curvature = (direction * curved).sum(-1, keepdim=True)
        goes_on = (error > tolerance) & (curvature > 0)
        length = torch.where(goes_on, error / curvature, 0.0)
        x = x + length * direction
        residual = residual - length * curved
        before, error = error, residual.square().sum(-1, keepdim=True)
        turn = torch.where(goes_on, error / before, 0.0)
        direction = residual + turn * direction
        error = torch.where(goes_on, error, 0.0)
    return x


def line_search(
    judge: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: Tensor,
    step: Tensor,
    *,
    max_kl: float,
    backtracks: int = 10,
    shrink: float = 0.5,
) -> tuple[Tensor, Tensor]:
    """The longest of step, shrink * step, ... that gains and stays close enough.

    Args:
        judge: parameters [S, P] to (gain, KL), [S] each, both 0 at `start`.
        start: [S, P].
        step: [S, P].
        max_kl: the largest KL that is allowed, in nats.
        backtracks: how often a step is shortened before it is given up.
        shrink: by how much, in (0, 1).

    Returns:
        The accepted parameters [S, P], `start` where nothing was, and the fraction of
        the step that was taken, [S], 0 where none was.

    Source: Schulman et al. (2015), appendix C.
    """
    accepted = start.clone()
    fraction = torch.zeros(len(start), dtype=start.dtype, device=start.device)
    for count in range(backtracks + 1):
        scale = shrink**count
        trial = start + scale * step
        gain, kl = judge(trial)
        taken = (gain > 0) & (kl <= max_kl) & (fraction == 0)  # NaN is never taken
        accepted = torch.where(taken.unsqueeze(-1), trial, accepted)
        fraction = torch.where(taken, scale, fraction)
        if (fraction > 0).all():
            break
    return accepted, fraction
