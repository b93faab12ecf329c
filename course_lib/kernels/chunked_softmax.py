"""Log-probabilities of tokens without a second tensor of the logits' size.

Softmax a few rows at a time: what lies between never leaves the cache. Backward takes
the softmax again instead of keeping it, because reading the logits twice is cheaper
than writing and reading a copy of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from course_lib.kernels.engines import accumulation_dtype
from course_lib.kernels.selection import keep, selection_bits

# Below this a row does not fill a vector register, and a softmax along it costs more
# than turning the tensor round, unless there is little to turn.
_FEW_TOKENS = 16
_FEW_NUMBERS = 2**9
# Numbers worked on at once: 1 MB of float32 stays in a core's cache, and an
# accelerator needs enough of them to be busy.
_CHUNK, _CHUNK_ON_DEVICE = 2**18, 2**21


def log_softmax(z: Tensor) -> Tensor:
    """Return log softmax of z [..., V] over its last axis, differentiable."""
    if z.shape[-1] >= _FEW_TOKENS or z.numel() < _FEW_NUMBERS:
        return torch.log_softmax(z, -1)
    by_token = z.movedim(-1, 0).contiguous()  # [V, ...]
    return torch.log_softmax(by_token, 0).movedim(0, -1)


def has_distribution(logits: Tensor) -> Tensor:
    """[...] bool: no NaN, no +inf and at least one logit above -inf in the row."""
    return logits.detach().amax(-1).isfinite()


def keep_rows(logits: Tensor, usable: Tensor) -> Tensor:
    """The rows that have a distribution; the others uniform, and without gradient."""
    return keep(logits, selection_bits(usable, logits)[..., None])


def token_log_softmax(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Return [...] float32 or float64: log softmax(logits / temperature) at tokens."""
    if logits.shape[-1] >= _FEW_TOKENS:
        log_probs: Tensor = _TokenLogProbs.apply(  # type: ignore[no-untyped-call]
            logits, tokens, temperature
        )
        return log_probs
    z = scaled(logits, temperature)
    chosen = log_softmax(z).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    empty = chosen.detach().isnan()  # rows of NaN, or with nothing allowed
    if empty.device.type == "cpu" and not empty.any():
        return chosen
    # Such a row gives NaN in its own slot, and takes no gradient.
    z = torch.where(empty.unsqueeze(-1), 0.0, z)
    chosen = log_softmax(z).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    return torch.where(empty, torch.nan, chosen)


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
        picks = tokens.reshape(-1, 1)  # [N, 1]
        dtype = accumulation_dtype(logits)
        chosen = torch.empty(picks.shape, dtype=dtype, device=logits.device)
        for part, rows in _chunks(logits):
            z = scaled(rows, temperature)  # [n, V]
            chosen[part] = torch.log_softmax(z, -1).gather(-1, picks[part])
        return chosen.view(tokens.shape)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor
    ) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.temperature = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        logits, tokens = ctx.saved_tensors
        weights = grads[0] / ctx.temperature  # [...]
        if torch.is_grad_enabled():  # a gradient of this gradient will be wanted
            z = scaled(logits, ctx.temperature)
            usable = has_distribution(z)
            p = torch.softmax(keep_rows(z, usable), -1)
            chosen = torch.zeros_like(p).scatter(-1, tokens[..., None], 1.0)
            grad = keep_rows(chosen - p, usable) * weights[..., None]
            return grad.to(logits.dtype), None, None
        return _gradient(logits, tokens, weights, ctx.temperature), None, None


def _gradient(
    logits: Tensor, tokens: Tensor, weights: Tensor, temperature: float
) -> Tensor:
    """Return [..., V]: weight * (1[v = token] - p_v), and 0 for a row of weight 0.

    That row may hold NaN: the loss left it out, and so does this. A row that the loss
    did not leave out gets 0 as well where it has no distribution.
    """
    picks, weights = tokens.reshape(-1, 1), weights.reshape(-1, 1)  # [N, 1]
    grad = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    rooms = grad.view(-1, logits.shape[-1])  # [N, V]
    for part, rows in _chunks(logits):
        z, room = scaled(rows, temperature), rooms[part]
        same = room.dtype == z.dtype
        p = torch.softmax(z, -1, out=room) if same else torch.softmax(z, -1)
        weight = weights[part].masked_fill(p[:, :1].isnan(), 0.0)  # [n, 1]
        asked = selection_bits(weight != 0, weight)
        p.view(asked.dtype).bitwise_and_(asked)
        p.mul_(-weight).scatter_add_(-1, picks[part], weight)
        if not same:
            room.copy_(p)
    return grad


def _chunks(logits: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Walk over the rows of [..., V] in order: a slice of row numbers, those [n, V]."""
    chunk = _CHUNK if logits.device.type == "cpu" else _CHUNK_ON_DEVICE
    step = max(1, chunk // logits.shape[-1])
    first = 0
    for block in _row_views(logits):
        for rows in block.split(step):
            yield slice(first, first + len(rows)), rows
            first += len(rows)


def _row_views(logits: Tensor) -> Iterator[Tensor]:
    """[..., V] as [n, V] views; a reshape would copy logits[:, :-1], the usual case."""
    if logits.dim() <= 2 or logits.is_contiguous():
        yield logits.view(-1, logits.shape[-1]) if logits.dim() != 2 else logits
    else:
        for part in logits:
            yield from _row_views(part)


def scaled(logits: Tensor, temperature: float) -> Tensor:
    """Return logits / temperature in the dtype to work in, itself where that is it."""
    z = logits.to(accumulation_dtype(logits))
    return z if temperature == 1.0 else z / temperature
