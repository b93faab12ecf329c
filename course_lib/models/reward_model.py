"""A reward model: the trunk of a language model, and one number at the end."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from course_lib.kernels.arguments import require_flags
from course_lib.models.gru_lm import GRULanguageModel


class RewardModel(nn.Module):
    """r(response): read all of it, then say one number (eq-reward-model).

    Args:
        language_model: its trunk is copied; the LM head is replaced by a scalar one.
            That starts at zero and has no bias, since only differences of rewards are
            ever compared.

    Source: Stiennon et al. (2020), section 3.4; Ouyang et al. (2022), section 3.5.
    """

    def __init__(self, language_model: GRULanguageModel) -> None:
        super().__init__()
        self.trunk = deepcopy(language_model.trunk).requires_grad_(True)
        self.head = nn.Linear(self.trunk.hidden, 1, bias=False)
        nn.init.zeros_(self.head.weight)
        self.bos = language_model.vocab_size

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """The reward of each response, read at its own last real token.

        Args:
            tokens: [B, T] int64.
            mask: [B, T] bool, the real tokens, padding to their right.

        Returns:
            [B], nats of log-odds against another response.

        Raises:
            TypeError, ValueError: a mask that does not fit.
        """
        require_flags("mask", mask, tokens)
        begin = tokens.new_full((1, len(tokens)), self.bos)
        states = self.trunk(torch.cat((begin, tokens.t())))  # [T + 1, B, H]
        rewards = self.head(states).squeeze(-1).t()  # [B, T + 1], after BOS, a_0, ...
        last = mask.sum(-1, keepdim=True)  # an empty response is read at BOS
        read: Tensor = rewards.gather(-1, last).squeeze(-1)
        return read
