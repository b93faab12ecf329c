"""What every language model of the course can be asked, whatever its trunk."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from course_lib.kernels import token_log_probs


class Sampled(NamedTuple):
    """Responses, and what the model that wrote them says about them."""

    tokens: Tensor
    """[B, T] int64; after its end a row repeats EOS."""
    mask: Tensor
    """[B, T] bool, the real tokens: up to and with the first EOS."""
    log_probs: Tensor
    """log pi(token), [B, T], of the distribution that was sampled from."""
    values: Tensor
    """V(s_t), [B, T], of the prefix before each token."""
    entropies: Tensor
    """[B, T] in nats, of the same distributions."""
    last_values: Tensor
    """V of all T tokens, [B]: what a response that ran out of length would still be
    worth; of no meaning where it ended."""
    kept: Tensor | None = None
    """[B, T, V] bool, the tokens that top-k and top-p left; None: all of them."""


@dataclass(frozen=True)
class Prompts:
    """B prompts, padded on their left so that every response begins in one column."""

    tokens: Tensor
    """[B, P] int64; anything where masked."""
    mask: Tensor
    """[B, P] bool, the real tokens; a row's last one is real."""
    rows: Tensor
    """[B] int64, which problem of its set each prompt is."""

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: Tensor | slice) -> Prompts:
        return Prompts(self.tokens[rows], self.mask[rows], self.rows[rows])

    def to(self, device: torch.device | str) -> Prompts:
        """The same on another device."""
        return Prompts(*(x.to(device) for x in vars(self).values()))

    @classmethod
    def padded(
        cls, texts: Sequence[Sequence[int]], rows: Tensor, padding: int = 0
    ) -> Prompts:
        """From B lists of tokens of any lengths.

        Args:
            texts: the prompts; none is empty.
            rows: [B] int64.
            padding: the token that stands where nothing is real.

        Raises:
            ValueError: no prompt, an empty one, or not one row for each.
        """
        if not texts or not all(texts):
            raise ValueError("texts must be prompts of one token or more, got none")
        if rows.shape != (len(texts),):
            raise ValueError(
                f"rows must have shape [{len(texts)}], got {[*rows.shape]}"
            )
        width = max(map(len, texts))
        tokens = torch.full((len(texts), width), padding)
        mask = torch.zeros(len(texts), width, dtype=torch.bool)
        for row, text in enumerate(texts):
            tokens[row, width - len(text) :] = torch.tensor(text)
            mask[row, width - len(text) :] = True
        return cls(tokens, mask, rows)


class LanguagePolicy(nn.Module):
    """pi(a_t | prompt, a_<t) and V of the same prefix.

    A subclass gives `forward(tokens)` or `forward(tokens, prompts, kept)`, which
    returns logits [B, T, V] and values [B, T]; both of place t belong to the prefix
    before token t, so that nobody has to shift them. The logits are those of the
    distribution that acts: divided by the temperature, -inf where it cannot go.
    """

    vocab_size: int
    eos_token: int | None

    @property
    def device(self) -> torch.device:
        """Where the parameters lie."""
        return next(self.parameters()).device

    def log_probs(self, tokens: Tensor, *context: Prompts | Tensor | None) -> Tensor:
        """log pi(a_t | ...), [B, T], of tokens [B, T] after their prompts."""
        logits, _ = self(tokens, *context)
        return token_log_probs(logits, tokens)

    def generate(
        self,
        responses: int | Prompts,
        length: int,
        generator: torch.Generator | None,
    ) -> Sampled:
        """Sample a response for each prompt, or so many without one.

        Without a generator, where a model can: the likeliest tokens.
        """
        raise NotImplementedError(f"{type(self).__name__} does not write")

    def real_tokens(self, tokens: Tensor) -> Tensor:
        """[B, T] bool: up to and with the first EOS; everything, without one."""
        if self.eos_token is None:
            return torch.ones_like(tokens, dtype=torch.bool)
        ended = (tokens == self.eos_token).cumsum(-1)
        return ended.roll(1, -1).index_fill_(-1, tokens.new_zeros(1), 0) == 0

    def frozen(self) -> Self:
        """A copy that does not learn: the reference of a run that starts here."""
        return deepcopy(self).requires_grad_(False)
