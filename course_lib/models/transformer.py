"""A GPT: causal self-attention over padded rows, with a cache for sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from course_lib.kernels.arguments import require_flags, require_positive_int


@dataclass(frozen=True)
class TransformerConfig:
    """The size of a transformer."""

    context: int = 64
    """The most tokens of prompt and response together."""
    width: int = 128
    """W, numbers in a state."""
    num_layers: int = 2
    """L."""
    num_heads: int = 4
    """They share out the width evenly."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require_positive_int(name, value)
        if self.width % self.num_heads:
            raise ValueError(
                f"num_heads must divide width={self.width}, got {self.num_heads}"
            )


class Cache:
    """Keys and values of the tokens read so far, so that each is read once."""

    def __init__(self, config: TransformerConfig, rows: int, length: int) -> None:
        self.config = config
        self.mask = torch.zeros(rows, length, dtype=torch.bool)
        """[B, length], the real tokens."""
        self.used = 0
        """Columns that hold a token."""
        self._layers: list[tuple[Tensor, Tensor]] = []

    def mark(self, mask: Tensor) -> Tensor:
        """Note which of the next tokens are real; all flags so far, [B, K]."""
        end = self.used + mask.shape[1]
        if end > self.mask.shape[1]:
            raise ValueError(
                f"tokens must fit into the {self.mask.shape[1]} places of the cache, "
                f"got {end}"
            )
        self.mask = self.mask.to(mask.device)
        self.mask[:, self.used : end] = mask
        return self.mask[:, :end]

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put new ones, [B, heads, N, D], behind the old ones; give all of them."""
        if layer == len(self._layers):
            shape = (*key.shape[:2], self.mask.shape[1], key.shape[3])
            self._layers.append((key.new_empty(shape), key.new_empty(shape)))
        end = self.used + key.shape[2]
        kept = self._layers[layer]
        for store, new in zip(kept, (key, value), strict=True):
            store[:, :, self.used : end] = new
        return kept[0][:, :, :end], kept[1][:, :, :end]


class Block(nn.Module):
    """One layer, each half added to what it was given (eq-block):

    x <- x + attention(norm(x)),    x <- x + W2 gelu(W1 norm(x))
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, self.num_heads = config.width, config.num_heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def forward(
        self, x: Tensor, allowed: Tensor, cache: Cache | None, layer: int
    ) -> Tensor:
        """[B, N, W] to [B, N, W]; `allowed` [B, 1, N, K] says who may look at whom."""
        projected = self.query_key_value(self.attention_norm(x))
        heads = projected.unflatten(-1, (3, self.num_heads, -1))  # [B, N, 3, heads, D]
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind()  # [B, heads, N, D]
        if cache is not None:
            key, value = cache.extend(layer, key, value)
        seen = scaled_dot_product_attention(query, key, value, attn_mask=allowed)
        x = x + self.attention_out(seen.transpose(1, 2).flatten(2))
        x = x + self.mlp_out(gelu(self.mlp_in(self.mlp_norm(x))))
        return x


class Transformer(nn.Module):
    """Read tokens, padded on either side, into a state of W numbers each.

    A token's position is how many real ones stand before it, and no token attends to
    padding: so padding changes nothing. There is no dropout, since a policy that
    scores otherwise than it sampled has ratios that are not 1.

    Args:
        vocab_size: V; the embedding has one row more, BOS = V, which is never scored.
        config: the sizes.
        seed: of the initial weights: normal with deviation .02, smaller by the root of
            2 L where a layer adds to the stream.
        uniform: start with a head of zeros, so that every token is equally likely.

    Source: Radford et al. (2019), section 2.3: layer norm before each half and after
    the last layer, and the initial weights.
    """

    def __init__(
        self,
        vocab_size: int,
        config: TransformerConfig = TransformerConfig(),
        *,
        seed: int = 0,
        uniform: bool = False,
    ) -> None:
        super().__init__()
        self.vocab_size = require_positive_int("vocab_size", vocab_size)
        self.bos_token: int | None = vocab_size
        self.config, self.width, self.context = config, config.width, config.context
        self.embedding = nn.Embedding(vocab_size + 1, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.width)
        self.lm_head = nn.Linear(config.width, vocab_size, bias=False)
        self._draw_weights(torch.Generator().manual_seed(seed))
        if uniform:
            nn.init.zeros_(self.lm_head.weight)

    def forward(
        self, tokens: Tensor, mask: Tensor, *, cache: Cache | None = None
    ) -> Tensor:
        """States [B, N, W] of tokens [B, N], after those that the cache holds.

        Args:
            tokens: [B, N] int64; anything where masked.
            mask: [B, N] bool, the real ones; a state where it is False means nothing.
            cache: is extended by these tokens.

        Raises:
            TypeError, ValueError: a mask that does not fit, or more real tokens than
                the context has places.
        """
        require_flags("mask", mask, tokens)
        known = mask if cache is None else cache.mark(mask)  # [B, K]
        count = tokens.shape[1]
        if known.shape[1] > self.context and int(known.sum(-1).max()) > self.context:
            raise ValueError(
                f"tokens must be at most the context of {self.context}, got "
                f"{int(known.sum(-1).max())}"
            )
        places = (known.cumsum(-1) - 1).clamp(min=0)[:, -count:]
        tokens = tokens.masked_fill(~mask, 0)  # -100 and the like have no embedding
        x = self.embedding(tokens) + self.positions(places)
        allowed = _allowed(known, count)
        for layer, block in enumerate(self.blocks):
            x = block(x, allowed, cache, layer)
        if cache is not None:
            cache.used += count
        states: Tensor = self.norm(x)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Logits [..., V] of the token after each state [..., W]."""
        scores: Tensor = self.lm_head(states)
        return scores

    def new_cache(self, rows: int, length: int) -> Cache:
        """An empty cache for so many rows and tokens."""
        return Cache(self.config, rows, length)

    def _draw_weights(self, generator: torch.Generator) -> None:
        smaller = 0.02 / math.sqrt(2 * self.config.num_layers)
        for name, parameter in self.named_parameters():
            if "norm" in name:
                continue
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            else:
                std = smaller if "_out" in name else 0.02
                nn.init.normal_(parameter, std=std, generator=generator)


def num_parameters(vocab_size: int, config: TransformerConfig) -> int:
    """How many numbers a transformer of that size learns (eq-parameter-count):

        W (2 V + 1 + C) + L (12 W^2 + 13 W) + 2 W

    embeddings of V tokens, BOS and C places with the head; L layers; the last norm.
    """
    w = config.width
    layers = config.num_layers * (12 * w * w + 13 * w)
    return w * (2 * vocab_size + 1 + config.context) + layers + 2 * w


def _allowed(known: Tensor, count: int) -> Tensor:
    """[B, 1, N, K] bool: each of the last N tokens sees the real ones up to itself.

    Padding sees itself, for a softmax over nothing is NaN.
    """
    total = known.shape[1]
    keys = torch.arange(total, device=known.device)
    queries = keys[-count:].unsqueeze(-1)  # [N, 1]
    seen = (keys <= queries) & known.unsqueeze(1) | (keys == queries)
    return seen.unsqueeze(1)
