"""Text as tokens, a character each."""

from __future__ import annotations

import string
from collections.abc import Iterable

ARITHMETIC = string.digits + "+-*= "
"""All that an arithmetic problem is written with."""
PRINTABLE = string.digits + string.ascii_letters + string.punctuation + " \n"
"""ASCII: English word problems are written with it."""


class CharacterTokenizer:
    """A token for each character of an alphabet, and EOS as the last one.

    Args:
        alphabet: each of its characters once.

    Raises:
        ValueError: no character, or one twice.
    """

    def __init__(self, alphabet: str = PRINTABLE) -> None:
        twice = sorted({one for one in alphabet if alphabet.count(one) > 1})
        if not alphabet or twice:
            raise ValueError(
                f"alphabet must hold characters, each once, got {alphabet!r}"
                + (f" with {twice} twice" if twice else "")
            )
        self.alphabet = alphabet
        self.eos_token = len(alphabet)
        self.vocab_size = len(alphabet) + 1
        self._places = {character: place for place, character in enumerate(alphabet)}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without EOS.

        Raises:
            ValueError: a character that is not in the alphabet.
        """
        for place, character in enumerate(text):
            if character not in self._places:
                raise ValueError(
                    f"text must be written in the alphabet, got {character!r} at "
                    f"{place} of {text[:60]!r}"
                )
        return [self._places[character] for character in text]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, up to the first EOS.

        Raises:
            ValueError: a token that is none of these.
        """
        text = []
        for token in tokens:
            if token == self.eos_token:
                break
            if not 0 <= token < self.eos_token:
                raise ValueError(
                    f"tokens must lie in [0, {self.vocab_size}), got {token}"
                )
            text.append(self.alphabet[token])
        return "".join(text)
