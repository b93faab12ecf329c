"""A language model small enough that everything about it can be computed."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.kernels import token_log_probs
from course_lib.kernels.arguments import require_positive_int
from course_lib.models.gru import TokenGRU
from course_lib.models.language_policy import LanguagePolicy, Prompts, Sampled


class GRULanguageModel(LanguagePolicy):
    """pi(a_t | a_<t) and V(a_<t): a language model and a critic on one trunk.

    Position t reads BOS, a_0, ..., a_{t-1} and scores a_t, so that logits and tokens of
    one position belong together and nobody has to shift them.

    Args:
        vocab_size: V, with EOS among them if there is one.
        eos_token: ends a response; the last token, V - 1, or None where every
            response has the full length.
        hidden: H.
        seed: of the initial weights.
        uniform: start with an LM head of zeros, so that every token is equally likely
            after every prefix. Otherwise the head is drawn like the rest.
        separate_critic: give the value head a trunk of its own.

    The value head starts at zero: V = 0 everywhere, and on the first step its gradient
    leaves a shared trunk alone (from the second on it does not).

    Raises:
        TypeError, ValueError: a size below 1, or an EOS that is not the last token.

    Source: the toy of KL-regularised reinforcement learning follows Ziegler et al.
    (2019), section 2.
    """

    def __init__(
        self,
        vocab_size: int = 8,
        *,
        eos_token: int | None = None,
        hidden: int = 64,
        seed: int = 0,
        uniform: bool = True,
        separate_critic: bool = False,
    ) -> None:
        super().__init__()
        self.vocab_size = require_positive_int("vocab_size", vocab_size)
        if eos_token not in (None, vocab_size - 1):
            raise ValueError(
                f"eos_token must be None or the last token, {vocab_size - 1}, got "
                f"{eos_token}"
            )
        self.eos_token = eos_token
        hidden = require_positive_int("hidden", hidden)
        generator = torch.Generator().manual_seed(seed)
        self.trunk = TokenGRU(vocab_size + 1, hidden, generator)  # and BOS
        self.lm_head = nn.Linear(hidden, vocab_size)
        self.value_head = nn.Linear(hidden, 1)
        self.critic = (
            TokenGRU(vocab_size + 1, hidden, generator) if separate_critic else None
        )
        bound = 0.0 if uniform else 1 / math.sqrt(hidden)
        for parameter in self.lm_head.parameters():
            nn.init.uniform_(parameter, -bound, bound, generator=generator)
        for parameter in self.value_head.parameters():
            nn.init.zeros_(parameter)

    @property
    def device(self) -> torch.device:
        """Where the parameters lie."""
        return self.trunk.table.device

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Teacher forcing: read the tokens, say what was expected in their place.

        Args:
            tokens: [B, T] int64.

        Returns:
            logits: [B, T, V]; logits[:, t] score tokens[:, t].
            values: [B, T], V of the prefix before token t.
        """
        read = self.inputs(tokens)  # [T, B]
        states = self.trunk(read)  # [T, B, H]
        seen = states if self.critic is None else self.critic(read)
        values = self.value_head(seen).squeeze(-1)  # [T, B]
        return self.lm_head(states).transpose(0, 1), values.t()

    def log_probs(self, tokens: Tensor, *context: Any) -> Tensor:
        """log pi(a_t | a_<t), [B, T], of tokens [B, T]; the critic is not run."""
        logits = self.lm_head(self.trunk(self.inputs(tokens)))  # [T, B, V]
        return token_log_probs(logits, tokens.t()).t()

    def inputs(self, tokens: Tensor) -> Tensor:
        """What is read where a token of [B, T] is scored, [T, B]: one place later."""
        before = tokens.t().roll(1, 0)
        before[0] = self.vocab_size  # BOS
        return before

    @torch.no_grad()
    def generate(
        self,
        responses: int | Prompts,
        length: int,
        generator: torch.Generator | None,
    ) -> Sampled:
        """Sample responses of at most `length` tokens, EOS among them.

        Args:
            responses: B; there are no prompts here.
            length: T.
            generator: on the model's device; None: the likeliest tokens.

        Returns:
            Sampled: log-probabilities and values as they were when sampling, so that
            nothing has to be run again to have them.

        Raises:
            TypeError, ValueError: a number below 1.
        """
        rows = require_positive_int("responses", responses)
        length = require_positive_int("length", length)
        shape = (length, rows, self.vocab_size)
        # argmax(z - log E) with E ~ Exp(1) is a draw from softmax(z).
        noise = torch.zeros(shape, device=self.device)
        if generator is not None:
            noise.exponential_(generator=generator).log_()
        # All begin alike: one row reads BOS for all of them.
        token = torch.full((1,), self.vocab_size, device=self.device)
        states = [self.trunk.table.new_zeros(1, self.trunk.hidden)] * 2
        tokens, features, all_logits = [], [], []
        for t in range(length):
            states[0] = self.trunk.step(token, states[0])
            if self.critic is not None:
                states[1] = self.critic.step(token, states[1])
            states = [state.expand(rows, -1) for state in states]
            logits = self.lm_head(states[0])  # [B, V]
            token = (logits - noise[t]).argmax(-1)
            tokens.append(token)
            features.append(states[0 if self.critic is None else 1])
            all_logits.append(logits)
        # Where some responses run out of length, what they are worth after it.
        trunk = self.trunk if self.critic is None else self.critic
        features.append(trunk.step(token, states[trunk is self.critic]))
        values = self.value_head(torch.stack(features)).squeeze(-1).t()
        return self._judged(torch.stack(tokens, 1), values, torch.stack(all_logits))

    def _judged(self, tokens: Tensor, values: Tensor, logits: Tensor) -> Sampled:
        mask = self.real_tokens(tokens)
        if self.eos_token is not None:
            tokens = tokens.masked_fill(~mask, self.eos_token)
        every = logits.log_softmax(-1)  # [T, B, V]
        log_probs = every.gather(-1, tokens.t().unsqueeze(-1)).squeeze(-1).t()
        entropies = -(every.exp() * every).sum(-1).t()
        last = values[:, -1]
        if self.eos_token is None:
            last = torch.zeros_like(last)
        return Sampled(tokens, mask, log_probs, values[:, :-1], entropies, last)
