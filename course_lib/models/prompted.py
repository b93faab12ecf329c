"""A policy, a critic and a reward model around any trunk that reads prompts."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from course_lib.kernels import entropy, token_log_probs
from course_lib.kernels.arguments import (
    require_choice,
    require_flags,
    require_positive_int,
)
from course_lib.models.language_policy import LanguagePolicy, Prompts, Sampled
from course_lib.models.sampling import (
    UNCHANGED,
    Sampling,
    acting_logits,
    at_least_float32,
    kept_tokens,
)

Critic = Literal["shared", "detached", "separate"]
Precision = Literal["float32", "bfloat16"]


class Trunk(Protocol):
    """What `Transformer` and `HuggingFaceTrunk` are: an nn.Module besides."""

    vocab_size: int
    width: int
    context: int
    bos_token: int | None

    def __call__(
        self, tokens: Tensor, mask: Tensor, *, cache: Any | None = None
    ) -> Tensor: ...
    def logits(self, states: Tensor) -> Tensor: ...
    def new_cache(self, rows: int, length: int) -> Any: ...


class ScalarHead(nn.Module):
    """One number for each state, [..., W] to [...], 0 at first: the last layer is zero.

    Args:
        width: W.
        hidden: the size of a layer between, or None for none.
        bias: without, the head can only compare.
        seed: of the layer between.
    """

    def __init__(
        self, width: int, *, hidden: int | None = None, bias: bool = True, seed: int = 0
    ) -> None:
        super().__init__()
        self.inner: nn.Module = nn.Identity()
        if hidden is not None:
            first = nn.Linear(width, hidden)
            generator = torch.Generator().manual_seed(seed)
            nn.init.normal_(first.weight, std=width**-0.5, generator=generator)
            nn.init.zeros_(first.bias)
            self.inner = nn.Sequential(first, nn.ReLU())
        self.last = nn.Linear(hidden or width, 1, bias=bias)
        for parameter in self.last.parameters():
            nn.init.zeros_(parameter)

    def forward(self, states: Tensor) -> Tensor:
        """[..., W] to [...]."""
        numbers: Tensor = self.last(self.inner(states)).squeeze(-1)
        return numbers


class PromptedPolicy(LanguagePolicy):
    """pi and V on one trunk, or V on a trunk of its own.

    Args:
        trunk: a `Transformer`, or a model of the `transformers` package inside a
            `HuggingFaceTrunk`; becomes part of this module.
        eos_token: ends a response, and is one of its tokens; None: all have full
            length.
        bos_token: what is read where there is no prompt; None: the trunk's own.
        sampling: temperature and truncation, the same for sampling and scoring.
        critic: "shared" lets the critic's loss move the trunk, "detached" does not,
            "separate" gives it a copy of the trunk.
        value_hidden: a hidden layer of that size in the value head.
        precision: "bfloat16" runs the trunk under autocast. Heads, log-probabilities
            and losses stay in float32: bf16 logits of 20.06 and 20 are one number.

    Raises:
        TypeError: a trunk that is none.
        ValueError: another choice, an EOS that is no token.

    Source: Stiennon et al. (2020), section 3.4 and appendix G.1, for policy and value
    function as two models; Ziegler et al. (2019), section 2, for one.
    """

    def __init__(
        self,
        trunk: Trunk,
        *,
        eos_token: int | None,
        bos_token: int | None = None,
        sampling: Sampling = UNCHANGED,
        critic: Critic = "shared",
        value_hidden: int | None = None,
        precision: Precision = "float32",
    ) -> None:
        super().__init__()
        require_choice("critic", critic, ("shared", "detached", "separate"))
        require_choice("precision", precision, ("float32", "bfloat16"))
        if not hasattr(trunk, "new_cache"):
            raise TypeError(
                "trunk must be a Transformer or a HuggingFaceTrunk(model), got "
                f"{type(trunk).__name__}"
            )
        self.vocab_size = trunk.vocab_size
        if eos_token is not None and not 0 <= eos_token < self.vocab_size:
            raise ValueError(
                f"eos_token must be one of {self.vocab_size} tokens, got {eos_token}"
            )
        self.eos_token = eos_token
        self.bos_token = trunk.bos_token if bos_token is None else bos_token
        self.sampling, self.precision = sampling, precision
        self.trunk = trunk
        self.detached = critic == "detached"
        self.critic = deepcopy(trunk) if critic == "separate" else None
        self.value_head = ScalarHead(trunk.width, hidden=value_hidden)

    def forward(
        self,
        tokens: Tensor,
        prompts: Prompts | None = None,
        kept: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Teacher forcing: read prompt and tokens, say what was expected of each.

        Args:
            tokens: [B, T] int64, the responses.
            prompts: what they answer; None: BOS alone.
            kept: [B, T, V] bool, the tokens that could be drawn; None: all.

        Returns:
            logits: [B, T, V] float32 of the distribution that acts; logits[:, t] score
                tokens[:, t].
            values: [B, T] float32, V of the prefix before token t.
        """
        prompts = self.prompts_or_bos(tokens, prompts)
        states = self.states(self.trunk, tokens[:, :-1], prompts)
        return self._acting(states, kept), self._values(states, tokens[:, :-1], prompts)

    def log_probs(self, tokens: Tensor, *context: Any) -> Tensor:
        """log pi(a_t | ...), [B, T], of tokens [B, T]; the critic is not run."""
        prompts, kept = (*context, None, None)[:2]
        prompts = self.prompts_or_bos(tokens, prompts)
        states = self.states(self.trunk, tokens[:, :-1], prompts)
        return token_log_probs(self._acting(states, kept), tokens)

    def states(self, trunk: Trunk, tokens: Tensor, prompts: Prompts) -> Tensor:
        """States after the prompt and after each of T tokens, [B, T + 1, W] float32."""
        read = torch.cat((prompts.tokens, tokens), 1)
        # What stands behind a response's end is behind all that is real: not masked.
        mask = torch.cat((prompts.mask, torch.ones_like(tokens, dtype=torch.bool)), 1)
        with self._autocast():
            states = trunk(read, mask)
        return at_least_float32(states[:, prompts.tokens.shape[1] - 1 :])

    @torch.no_grad()
    def generate(
        self,
        responses: int | Prompts,
        length: int,
        generator: torch.Generator | None,
    ) -> Sampled:
        """Sample a response to each prompt; without a generator the likeliest tokens.

        Args:
            responses: the prompts, or how many responses to BOS.
            length: the most tokens of a response, EOS among them.
            generator: on the model's device.

        Returns:
            Sampled: T is the length of the longest. Log-probabilities and values come
            from one pass over the whole, the same as in training, so that the first
            step's ratios are 1; those of sampling with the cache differ by rounding.

        Raises:
            TypeError, ValueError: a number below 1, or more than the context holds.
        """
        length = require_positive_int("length", length)
        prompts = self.prompts_or_bos(None, responses)
        if prompts.tokens.shape[1] + length > self.trunk.context:
            raise ValueError(
                f"length must fit into the context of {self.trunk.context} after "
                f"prompts of {prompts.tokens.shape[1]} tokens, got {length}"
            )
        tokens, kept = self._write(prompts, length, generator)
        states = self.states(self.trunk, tokens, prompts)  # [B, T + 1, W]
        logits = self._acting(states[:, :-1], kept)
        values = self._values(states, tokens, prompts)
        return Sampled(
            tokens=tokens,
            mask=self.real_tokens(tokens),
            log_probs=token_log_probs(logits, tokens),
            values=values[:, :-1],
            entropies=entropy(logits),
            last_values=values[:, -1],
            kept=kept,
        )

    def _write(
        self, prompts: Prompts, length: int, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor | None]:
        """Tokens [B, T], and which could have been drawn, [B, T, V]; with the cache."""
        rows = len(prompts)
        cache = self.trunk.new_cache(rows, prompts.tokens.shape[1] + length)
        ended = torch.zeros(rows, dtype=torch.bool, device=self.device)
        read, mask = prompts.tokens, prompts.mask
        written: list[Tensor] = []
        choices: list[Tensor] = []
        for _ in range(length):
            with self._autocast():
                states = self.trunk(read, mask, cache=cache)[:, -1]
            logits = self.trunk.logits(at_least_float32(states))
            if self.sampling.truncates and generator is not None:
                choices.append(kept_tokens(logits, self.sampling))
                logits = acting_logits(logits, 1.0, choices[-1])
            token = _drawn(logits / self.sampling.temperature, generator)
            if self.eos_token is not None:
                token = token.masked_fill(ended, self.eos_token)
                ended = ended | (token == self.eos_token)
                if choices:  # behind its end nothing is scored, but it must be allowed
                    choices[-1][ended, self.eos_token] = True
            written.append(token)
            if self.eos_token is not None and bool(ended.all()):
                break
            read, mask = token.unsqueeze(1), torch.ones_like(token.unsqueeze(1)).bool()
        return torch.stack(written, 1), torch.stack(choices, 1) if choices else None

    def _acting(self, states: Tensor, kept: Tensor | None) -> Tensor:
        logits = self.trunk.logits(states)
        return acting_logits(logits, self.sampling.score_temperature, kept)

    def _values(self, states: Tensor, tokens: Tensor, prompts: Prompts) -> Tensor:
        if self.critic is not None:
            states = self.states(self.critic, tokens, prompts)
        values: Tensor = self.value_head(states.detach() if self.detached else states)
        return values

    def prompts_or_bos(
        self, tokens: Tensor | None, prompts: int | Prompts | None
    ) -> Prompts:
        """The prompts, or BOS before each of the tokens, or so many times BOS."""
        if isinstance(prompts, Prompts):
            ends = prompts.mask[:, -1]
            if ends.is_cpu and not bool(ends.all()):  # to look would hold up a GPU
                raise ValueError(
                    "prompts must be padded on their left, so that each ends with a "
                    f"real token, got padding at the end of {int((~ends).sum())} of "
                    f"{len(ends)}"
                )
            return prompts
        rows = len(tokens) if tokens is not None else prompts
        rows = require_positive_int("responses", rows)
        if self.bos_token is None:
            raise ValueError(
                "prompts must be given, or bos_token: this trunk has none of its own"
            )
        begin = torch.full((rows, 1), self.bos_token, device=self.device)
        real = torch.ones_like(begin, dtype=torch.bool)
        return Prompts(begin, real, torch.zeros_like(begin[:, 0]))

    def _autocast(self) -> torch.autocast:
        on = self.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=on)


class PromptedRewardModel(nn.Module):
    """r(prompt, response): read all of it, then say one number (eq-reward-model).

    Args:
        policy: its trunk is copied; the LM head is replaced by a scalar one that
            starts at zero and has no bias, since only differences are compared.

    Source: Stiennon et al. (2020), section 3.4; Ouyang et al. (2022), section 3.5.
    """

    def __init__(self, policy: PromptedPolicy) -> None:
        super().__init__()
        self.reader = deepcopy(policy).requires_grad_(True)
        # What does not read: it would have no gradient.
        self.reader.critic = None
        self.reader.value_head = ScalarHead(policy.trunk.width, bias=False)

    def forward(
        self, tokens: Tensor, mask: Tensor, prompts: Prompts | None = None
    ) -> Tensor:
        """The reward of each response, read at its own last real token.

        Args:
            tokens: [B, T] int64.
            mask: [B, T] bool, the real tokens, padding to their right.
            prompts: what they answer.

        Returns:
            [B], nats of log-odds against another response to the same prompt.

        Raises:
            TypeError, ValueError: a mask that does not fit.
        """
        require_flags("mask", mask, tokens)
        reader = self.reader
        prompts = reader.prompts_or_bos(tokens, prompts)
        rewards = reader.value_head(reader.states(reader.trunk, tokens, prompts))
        last = mask.sum(-1, keepdim=True)  # an empty response is read at its prompt
        read: Tensor = rewards.gather(-1, last).squeeze(-1)
        return read


def _drawn(logits: Tensor, generator: torch.Generator | None) -> Tensor:
    """[B] from logits [B, V]: argmax(z - log E) with E ~ Exp(1) draws from softmax."""
    if generator is None:
        return logits.argmax(-1)
    noise = torch.empty_like(logits).exponential_(generator=generator)
    return (logits - noise.log_()).argmax(-1)
