"""A gated recurrent unit that reads tokens, with its gradient written out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding


class TokenGRU(nn.Module):
    """Read tokens one by one into a state of H numbers (eq-gru):

        r, z = sigma(x + W h),    n = tanh(x + r * (W h + b)),    h' = n + z * (h - n)

    where x is the row of a table that belongs to the token: what an embedding and an
    input matrix would compute, already multiplied. Its gradient is written out, since
    a step is small: derived operation by operation, it takes more than twice as long.

    Args:
        num_tokens: rows of the table.
        hidden: H.
        generator: what the initial weights are drawn from: normal in the table,
            uniform within 1 / sqrt(H) elsewhere.

    Source: Cho et al. (2014), equations 5 to 8, in the form of torch.nn.GRU.
    """

    def __init__(
        self, num_tokens: int, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt(hidden)

        def uniform(*shape: int) -> nn.Parameter:
            values = torch.empty(shape).uniform_(-bound, bound, generator=generator)
            return nn.Parameter(values)

        # As spread out as a unit normal embedding times an input matrix of that bound.
        rows = torch.randn(num_tokens, 3 * hidden, generator=generator)
        self.table = nn.Parameter(rows / math.sqrt(3))
        self.weight = uniform(hidden, 3 * hidden)
        self.bias = uniform(hidden)
        self.hidden = hidden

    def forward(self, tokens: Tensor) -> Tensor:
        """States after each token: tokens [T, B] int64 to [T, B, H], from h = 0."""
        states: Tensor = _Unrolled.apply(  # type: ignore[no-untyped-call]
            tokens, self.table, self.weight, self.bias
        )
        return states

    def step(self, tokens: Tensor, state: Tensor) -> Tensor:
        """The state after one more token, [..., H], for tokens [...] int64."""
        x = embedding(tokens, self.table)  # [..., 3H]
        return self.advance(x, state @ self.weight, state)

    def advance(self, x: Tensor, carried: Tensor, state: Tensor) -> Tensor:
        """The step from its two products, x and W h; they may broadcast."""
        size = self.hidden
        gates = (x[..., : 2 * size] + carried[..., : 2 * size]).sigmoid()
        pull = carried[..., 2 * size :] + self.bias
        new = _tanh(x[..., 2 * size :] + gates[..., :size] * pull)
        return torch.lerp(new, state, gates[..., size:])


class _Unrolled(torch.autograd.Function):
    """All steps of a GRU, for tokens [T, B] and the three parameters: [T, B, H].

    One buffer holds [r, z, W h + b, x of the third] of each step, another one their
    gradients: fresh memory costs more than the arithmetic here.
    """

    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, table: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        (steps, rows), size = tokens.shape, len(bias)
        third = bias.expand(len(table), size)
        wide = torch.cat((table[:, : 2 * size], third, table[:, 2 * size :]), 1)
        gates = embedding(tokens, wide)  # [T, B, 4H]
        states = table.new_zeros(steps + 1, rows, size)  # h_0 to h_T
        new = table.new_empty(steps, rows, size)  # n
        for t, (gate, state, n) in enumerate(zip(gates, states, new, strict=False)):
            if t > 0:  # h_0 is 0
                gate[:, : 3 * size].addmm_(state, weight)
            gate[:, : 2 * size].sigmoid_()
            r, z, pull, x = gate.unflatten(-1, (4, size)).unbind(1)  # [B, H] each
            torch.addcmul(x, r, pull, out=n)
            torch.lerp(_tanh(n, out=n), state, z, out=states[t + 1])
        ctx.save_for_backward(tokens, weight, gates, states, new)
        ctx.num_tokens = len(table)
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        tokens, weight, gates, states, new = ctx.saved_tensors
        size = len(weight)
        slopes = _slopes(gates, states[:-1], new)  # [T, B, 4H]
        by_gate, sums = slopes.unflatten(-1, (4, size)), slopes[..., : 3 * size]
        z = gates[..., size : 2 * size]
        d_state = torch.zeros_like(new[0])
        for t in reversed(range(len(new))):
            d_state += upstream[t]
            by_gate[t].mul_(d_state.unsqueeze(1))
            if t > 0:  # nobody asks for the gradient of h_0
                d_state.mul_(z[t]).addmm_(sums[t], weight.t())
        flat = slopes.view(-1, 4 * size)
        d_weight = states[1:-1].reshape(-1, size).t() @ sums[1:].reshape(-1, 3 * size)
        by_token = flat.new_zeros(ctx.num_tokens, 4 * size)
        by_token.index_add_(0, tokens.reshape(-1), flat)
        d_table = torch.cat((by_token[:, : 2 * size], by_token[:, 3 * size :]), 1)
        return None, d_table, d_weight, by_token[:, 2 * size : 3 * size].sum(0)


def _slopes(gates: Tensor, before: Tensor, new: Tensor) -> Tensor:
    """What h' changes by with each of a step's four sums, [T, B, 4H].

    Slopes: 1 - n^2 of tanh, and r (1 - r), z (1 - z) of the sigmoids.
    """
    size = new.shape[-1]
    r, z, pull, _ = gates.split(size, -1)  # [T, B, H] each
    slopes = torch.empty_like(gates)
    d_r, d_z, d_pull, d_x = slopes.split(size, -1)
    kept = 1 - z
    torch.mul(new, new, out=d_x)
    torch.addcmul(kept, kept, d_x, value=-1, out=d_x)
    torch.mul(d_x, r, out=d_pull)
    torch.addcmul(d_pull, d_pull, r, value=-1, out=d_r).mul_(pull)
    torch.sub(before, new, out=d_z).mul_(z).mul_(kept)
    return slopes


def _tanh(x: Tensor, out: Tensor | None = None) -> Tensor:
    """2 sigma(2 x) - 1, which on a CPU takes a third of torch.tanh's time."""
    return torch.mul(x, 2, out=out).sigmoid_().mul_(2).sub_(1)
