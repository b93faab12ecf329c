"""A task for a tiny language model: how often does one token occur?"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from course_lib.kernels.arguments import require_flags, require_positive_int


@dataclass(frozen=True)
class TokenCount:
    """Score a response by n, how often it holds the target token.

    The score is n / length; with `peak` it turns: n / length up to n = peak, and
    (length - n) / length above, as where too much of a good thing is bad.

    Args:
        vocab_size: V, with EOS if there is one.
        length: T, the most tokens a response may have, EOS among them.
        target: the token that is counted.
        eos_token: the last token, or None where every response has `length` tokens.
        peak: the n above which the score turns, or None.

    Raises:
        TypeError, ValueError: a size below 1, a target outside the vocabulary or equal
            to EOS, an EOS that is not the last token.
    """

    vocab_size: int = 8
    length: int = 8
    target: int = 3
    eos_token: int | None = None
    peak: int | None = None

    def __post_init__(self) -> None:
        require_positive_int("vocab_size", self.vocab_size)
        require_positive_int("length", self.length)
        if self.eos_token not in (None, self.vocab_size - 1):
            raise ValueError(
                f"eos_token must be None or {self.vocab_size - 1}, the last token, got "
                f"{self.eos_token}"
            )
        if not 0 <= self.target < self.vocab_size or self.target == self.eos_token:
            raise ValueError(
                f"target must be one of {self.vocab_size} tokens and not EOS, got "
                f"{self.target}"
            )

    def score(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Scores in [0, 1], [...] float32, of tokens [..., T] real where mask is True.

        Raises:
            TypeError, ValueError: a mask that does not fit.
        """
        require_flags("mask", mask, tokens)
        count = ((tokens == self.target) & mask).sum(-1)
        if self.peak is not None:
            count = count.where(count <= self.peak, self.length - count)
        return count / self.length
