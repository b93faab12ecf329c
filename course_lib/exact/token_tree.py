"""All that a tiny language model can say, and what a model says about it.

The prefixes of t tokens after which a response goes on are the nodes of level t of a
tree, in the order of their numbers: A^t of them, where A counts the tokens that do not
end a response. A policy is a table of log-probabilities [A^t, V] for each level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.kernels.arguments import require_positive_int
from course_lib.models import GRULanguageModel, RewardModel, TokenGRU

ScoreFn = Callable[[Tensor, Tensor], Tensor]
Table = list[Tensor]
"""One tensor [A^t, V] for each level t = 0, ..., T - 1."""
ROWS = 2**15
"""Nodes looked at together: what they need fits a cache."""


@dataclass(frozen=True)
class TokenTree:
    """All responses of at most `length` of V tokens; an EOS, the last token, ends one.

    Args:
        vocab_size: V, with EOS if there is one.
        length: T.
        eos_token: V - 1, or None where every response has T tokens.

    Raises:
        TypeError, ValueError: a size below 1, an EOS that is not the last token.
    """

    vocab_size: int = 8
    length: int = 8
    eos_token: int | None = None

    def __post_init__(self) -> None:
        require_positive_int("vocab_size", self.vocab_size)
        require_positive_int("length", self.length)
        if self.eos_token not in (None, self.vocab_size - 1):
            raise ValueError(
                f"eos_token must be None or {self.vocab_size - 1}, the last token, got "
                f"{self.eos_token}"
            )

    @property
    def branching(self) -> int:
        """A, the tokens after which a response goes on."""
        return self.vocab_size - (self.eos_token is not None)

    def num_prefixes(self, level: int) -> int:
        """A^t, the nodes of level t."""
        nodes: int = self.branching**level
        return nodes

    def prefixes(self, level: int, start: int = 0, stop: int | None = None) -> Tensor:
        """The tokens of nodes start to stop of a level, [N, t] int64."""
        stop = self.num_prefixes(level) if stop is None else stop
        node = torch.arange(start, stop).unsqueeze(-1)  # [N, 1]
        place = self.branching ** torch.arange(level - 1, -1, -1)  # [t]
        return node // place % self.branching

    def node(self, prefix: Sequence[int]) -> int:
        """The number of a prefix on its level.

        Raises:
            ValueError: a token after which no response goes on.
        """
        number = 0
        for token in prefix:
            if not 0 <= token < self.branching:
                raise ValueError(
                    f"prefix must hold tokens below {self.branching}, got {token}"
                )
            number = number * self.branching + token
        return number

    def ending(self, level: int) -> slice:
        """The tokens that end a response on this level: EOS, on the last level all."""
        if level == self.length - 1:
            return slice(0, self.vocab_size)
        return slice(self.branching, self.vocab_size)


def uniform_table(tree: TokenTree) -> Table:
    """The policy that finds every token equally likely, EOS among them."""
    each = torch.tensor(-math.log(tree.vocab_size), dtype=torch.float64)
    return [
        each.expand(tree.num_prefixes(level), tree.vocab_size)
        for level in range(tree.length)
    ]


@torch.no_grad()
def policy_table(model: GRULanguageModel, tree: TokenTree) -> Table:
    """log pi(token | prefix) of every prefix, float32 on the CPU.

    The states of a level are made from those of the one before, so that a prefix is
    read once, however many responses begin with it: 8 tokens in 8 places, 2.4 million
    prefixes, take a few seconds.

    Raises:
        ValueError: a model of other tokens than the tree's.
    """
    if (model.vocab_size, model.eos_token) != (tree.vocab_size, tree.eos_token):
        raise ValueError(
            f"model must have the tree's {tree.vocab_size} tokens and EOS "
            f"{tree.eos_token}, got {model.vocab_size} and {model.eos_token}"
        )
    table = _empty(tree)
    for level, start, states in _prefix_states(model.trunk, model.vocab_size, tree):
        log_probs = model.lm_head(states).double().log_softmax(-1)  # [N, V]
        table[level][start : start + len(states)] = log_probs
    return table


@torch.no_grad()
def reward_scores(model: RewardModel, tree: TokenTree) -> Table:
    """The reward of each response, as `end_scores` lays them out, float32 on the CPU.

    The same as `end_scores` of the model, in a fraction of the time: a prefix is read
    once. 8 tokens in 8 places take about a quarter of a minute.

    Raises:
        ValueError: a model of other tokens than the tree's.
    """
    if model.bos != tree.vocab_size:
        raise ValueError(
            f"model must have the tree's {tree.vocab_size} tokens, got {model.bos}"
        )
    scores, trunk = _empty(tree), model.trunk
    for level, start, states in _prefix_states(trunk, model.bos, tree):
        ends = tree.ending(level)
        x = trunk.table[: tree.vocab_size][ends]  # [E, 3H]
        for rows in torch.arange(len(states)).split(ROWS // tree.vocab_size):
            some = states[rows]
            carried = (some @ trunk.weight).unsqueeze(1)  # [n, 1, 3H]
            last = trunk.advance(x, carried, some.unsqueeze(1))  # [n, E, H]
            scores[level][start + rows, ends] = model.head(last).squeeze(-1).cpu()
    return scores


def _empty(tree: TokenTree) -> Table:
    return [
        torch.zeros(tree.num_prefixes(level), tree.vocab_size)
        for level in range(tree.length)
    ]


def _prefix_states(
    trunk: TokenGRU, bos: int, tree: TokenTree
) -> Iterator[tuple[int, int, Tensor]]:
    """Read every prefix: (level, number of the first node, states [N, H]), in blocks.

    Depth first, so that only a few blocks are in memory at a time.
    """
    goes_on = trunk.table[: tree.branching]  # [A, 3H]
    block = max(1, ROWS // tree.branching)
    begin = torch.tensor([bos], device=goes_on.device)
    root = trunk.step(begin, goes_on.new_zeros(1, trunk.hidden))
    waiting = [(0, 0, root)]
    while waiting:
        level, start, states = waiting.pop()
        yield level, start, states
        if level + 1 == tree.length:
            continue
        for first in range(0, len(states), block):
            some = states[first : first + block]
            carried = (some @ trunk.weight).unsqueeze(1)  # [n, 1, 3H], once for all A
            below = trunk.advance(goes_on, carried, some.unsqueeze(1))  # [n, A, H]
            node = (start + first) * tree.branching
            waiting.append((level + 1, node, below.flatten(0, 1)))


def end_scores(score_fn: ScoreFn, tree: TokenTree) -> Table:
    """The score of each response, at the token that ends it; 0 where none ends.

    Args:
        score_fn: called as `score_fn(tokens, mask)` on [N, T] int64 and bool, gives
            [N]; what stands behind an EOS is EOS.
        tree: the responses.
    """
    scores = []
    for level in range(tree.length):
        count, ends = tree.num_prefixes(level), tree.ending(level)
        on_level = torch.zeros(count, tree.vocab_size)
        last = torch.arange(tree.vocab_size)[ends]  # [E]
        for start in range(0, count, ROWS) if len(last) else ():
            stop = min(start + ROWS, count)
            prefixes = tree.prefixes(level, start, stop)
            padding = tree.vocab_size - 1
            tokens = torch.full((stop - start, len(last), tree.length), padding)
            tokens[..., :level] = prefixes.unsqueeze(1)
            tokens[..., level] = last
            mask = torch.arange(tree.length).expand(tokens.shape) <= level
            found = score_fn(tokens.flatten(0, 1), mask.flatten(0, 1))
            on_level[start:stop, ends] = found.view(stop - start, -1).to(on_level)
        scores.append(on_level)
    return scores
