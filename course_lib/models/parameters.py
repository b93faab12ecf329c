"""All parameters of a module in one tensor, so that a step is a few operations."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn


class FlatParameters:
    """The parameters and gradients of S networks, each a row of one tensor.

    A module with a dozen small parameters spends more time in its optimizer than in
    its arithmetic. Here each parameter becomes a view of one row-per-network tensor,
    its gradient a view of another, and clipping or an optimizer's step is then one
    operation instead of a dozen. The module is used as before.

    Args:
        module: its parameters have the shape [S, ...]. They must not be replaced
            afterwards; loading a state dict copies into them, which is fine.
        stacked: False for one ordinary network, whose parameters have any shape: S = 1.

    Raises:
        ValueError: a module without parameters, or with unlike first axes.
    """

    def __init__(self, module: nn.Module, *, stacked: bool = True) -> None:
        parameters = list(module.parameters())
        rows = {len(one) if one.dim() else 0 for one in parameters}
        if not stacked:
            rows = {1} if rows else rows
        if len(rows) != 1 or 0 in rows:
            raise ValueError(
                "module must have parameters of shape [S, ...] with one S, got first "
                f"axes {sorted(rows)}"
            )
        (seeds,) = rows
        size = sum(one.numel() for one in parameters) // seeds
        self.values = nn.Parameter(parameters[0].new_empty(seeds, size))
        """[S, P], the leaf that an optimizer moves."""
        self.values.grad = torch.zeros_like(self.values)
        start = 0
        for one in parameters:
            place = slice(start, start + one.numel() // seeds)
            start = place.stop
            with torch.no_grad():
                self.values[:, place] = one.reshape(seeds, -1)
            one.data = self.values.data[:, place].view_as(one)
            one.grad = self.values.grad[:, place].view_as(one)
        _forget_the_layout_warning(parameters[0])

    @property
    def gradients(self) -> Tensor:
        """[S, P], what backward has added up since `zero_gradients`."""
        assert self.values.grad is not None
        return self.values.grad

    def zero_gradients(self) -> None:
        """Set all gradients to 0, in place: the parameters' own are views."""
        self.gradients.zero_()

    def clip_gradients(self, max_norm: float) -> Tensor:
        """Scale each network's gradient down to at most `max_norm`; return the norms.

        Returns:
            Tensor: [S], the norms before.

        Raises:
            ValueError: a length below 0, which would turn the gradients round.
        """
        if not max_norm >= 0:
            raise ValueError(f"max_grad_norm must be at least 0, got {max_norm}")
        norms: Tensor = torch.linalg.vector_norm(self.gradients, dim=-1)  # [S]
        scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
        self.gradients.mul_(scale.unsqueeze(-1))
        return norms


def _forget_the_layout_warning(parameter: nn.Parameter) -> None:
    # torch warns, once in a process, that a gradient lies inside a larger tensor. It
    # is meant to; so the warning is spent here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parameter.sum().backward()
    assert parameter.grad is not None
    parameter.grad.zero_()
