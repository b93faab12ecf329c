"""A causal language model of the `transformers` package as the trunk of a policy."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class HuggingFaceCache:
    """What the model itself keeps, and which of the tokens behind it were real."""

    past: Any = None
    mask: Tensor | None = None


class HuggingFaceTrunk(nn.Module):
    """The same questions as `Transformer` answers, asked of a Hugging Face model.

    Args:
        model: an `AutoModelForCausalLM`, from `from_pretrained` or from a config. It is
            called as `model.base_model(input_ids=..., attention_mask=...,
            position_ids=..., cache=..., use_cache=...)`.

    Its dropout is off while it is wrapped, in training too: a ratio of two dropouts is
    not 1 before anything is learnt.

    Raises:
        ValueError: a model whose logits are not its output embedding of its last state
            (some cap them), which would be scored otherwise than it was trained; one
            in half precision, whose weights an update of 1e-6 would leave as they are:
            load it in float32, and give the policy `precision="bfloat16"`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.eval()
        dtypes = {one.dtype for one in model.parameters()}
        if not dtypes <= {torch.float32, torch.float64}:
            raise ValueError(
                f"model must be in float32, got {sorted(map(str, dtypes))}"
            )
        settings = model.config
        self.vocab_size: int = settings.vocab_size
        self.width: int = settings.hidden_size
        self.context: int = settings.max_position_embeddings
        self.bos_token: int | None = getattr(settings, "bos_token_id", None)
        # Called `cache` from version 5 on, and `past_key_values` before.
        base = model.base_model
        asked = inspect.signature(getattr(base, "forward", base)).parameters
        self._cache_name = "cache" if "cache" in asked else "past_key_values"
        self._refuse_a_head_that_does_more()

    def train(self, mode: bool = True) -> HuggingFaceTrunk:
        """Stays in evaluation mode, without dropout; gradients flow all the same."""
        return super().train(False)

    def forward(
        self, tokens: Tensor, mask: Tensor, *, cache: HuggingFaceCache | None = None
    ) -> Tensor:
        """States [B, N, W] of tokens [B, N], after those that the cache holds."""
        past = None if cache is None else cache.mask
        known = mask if past is None else torch.cat((past, mask), 1)
        places = (known.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        seen = self.model.base_model(
            input_ids=tokens.masked_fill(~mask, 0),
            attention_mask=known.long(),
            position_ids=places,
            use_cache=cache is not None,
            **{self._cache_name: None if cache is None else cache.past},
        )
        if cache is not None:
            cache.past, cache.mask = getattr(seen, self._cache_name), known
        states: Tensor = seen.last_hidden_state
        return states

    def logits(self, states: Tensor) -> Tensor:
        """Logits [..., V] of the token after each state [..., W]."""
        head = self.model.get_output_embeddings()
        scores: Tensor = head(states.to(head.weight.dtype))
        return scores

    def new_cache(self, rows: int, length: int) -> HuggingFaceCache:
        """An empty cache; the model makes room as it goes."""
        return HuggingFaceCache()

    @torch.no_grad()
    def _refuse_a_head_that_does_more(self) -> None:
        tokens = torch.arange(2, device=next(self.model.parameters()).device)[None]
        mask = torch.ones_like(tokens, dtype=torch.bool)
        ours = self.logits(self(tokens, mask)).float()
        theirs = self.model(input_ids=tokens, attention_mask=mask.long()).logits
        if not torch.allclose(ours, theirs.float(), atol=1e-2, rtol=1e-2):
            raise ValueError(
                "model must have logits that are its output embedding of its last "
                f"state, got {type(self.model).__name__}, where they are up to "
                f"{float((ours - theirs).abs().max()):.2g} apart"
            )
