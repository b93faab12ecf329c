"""Log-probabilities of tokens beside how others write them.

The two large inputs are logits of .4 and 1 GB, as a batch of answers of a small
language model has them; with its gradients the plain form holds four times as much.
The peers are written here from what the libraries do: `log_softmax` and `gather` as in
most scripts, and TRL's and verl's way, one row of the batch after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.timing import OURS, Case, compare
from course_lib.kernels import token_log_probs

SHAPES = ((8, 256, 50257), (64, 128, 32000), (256, 8, 8))
FORWARD = "token_log_probs"
BOTH = "token_log_probs, forward and backward"
GATHER, ROWS = "log_softmax and gather", "logsumexp row by row"
PACKAGES = ("torch",)


def cases() -> list[Case]:
    """Forward, and forward with backward, for each shape."""
    found = []
    for shape in SHAPES:
        for name in (FORWARD, BOTH):
            unit = 4 * torch.Size(shape).numel()
            make = functools.partial(competitors, name, shape)
            found.append(Case(name, shape, make, unit))
    return found


def competitors(name: str, shape: tuple[int, ...]) -> dict[str, Callable[[], Tensor]]:
    """One call of each: it returns log-probabilities or the gradient of their sum."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(shape, generator=generator)
    tokens = torch.randint(shape[-1], shape[:-1], generator=generator)
    logits.requires_grad_(name == BOTH)

    def there_and_back(function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        return torch.autograd.grad(function(logits, tokens).sum(), logits)[0]

    functions = {
        OURS: token_log_probs,
        GATHER: gathered_log_probs,
        ROWS: log_probs_by_rows,
    }
    if name == BOTH:
        # A test compares these on a small input: here they would be gigabytes.
        return {
            who: functools.partial(there_and_back, function)
            for who, function in functions.items()
        }
    runs: dict[str, Callable[[], Tensor]] = {
        who: functools.partial(function, logits, tokens)
        for who, function in functions.items()
    }
    compare(runs)
    return runs


def gathered_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """The usual form, which makes a second tensor of the logits' size."""
    return logits.log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)


def log_probs_by_rows(logits: Tensor, tokens: Tensor) -> Tensor:
    """A row of the batch at a time, as TRL and verl do it in float32."""
    rows = [
        row.gather(-1, chosen[:, None]).squeeze(-1) - row.logsumexp(-1)
        for row, chosen in zip(logits, tokens, strict=True)
    ]
    return torch.stack(rows)
