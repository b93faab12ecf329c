"""Task: the log-probability of each token that was chosen."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from course_lib.notebook.checks.task import Case, Task


def token_log_probs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return [B, T]: log softmax(logits[b, t])[tokens[b, t]], logits [B, T, V]; the
    logits at position t score token t (the shift has been made)."""
    return torch.log_softmax(logits, -1).gather(-1, tokens[..., None]).squeeze(-1)


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    quarters = [[[0.25, 0.5, 0.25], [0.125, 0.125, 0.75]]]
    extreme = [[[1e4, 0.0, -1e4], [0.0, 1e4, -1e4]], [[-1e4, 0, 1e4], [1e4, -1e4, 0]]]
    cases = [
        _case([[[3.0]]], [[0]]),  # one token in the vocabulary: certain
        _case([[[1.0, 0.0]]], [[0]]),
        _case(torch.tensor(quarters).log().tolist(), [[1, 2]]),  # CASES K20
        _case([[[5.0, 4.0], [2.0, 6.0]], [[0.0, 3.0], [2.0, 1.0]]], [[1, 0], [0, 1]]),
        _case(extreme, [[0, 0], [0, 0]]),
    ]
    for shape in ((2, 3, 4), (2, 2, 2), (1, 4, 3)):
        logits = 2.0 * torch.randn(shape, generator=generator)
        tokens = torch.randint(0, shape[-1], shape[:-1], generator=generator)
        cases.append(_case(logits.tolist(), tokens.tolist()))
    return cases


def _case(logits: list[list[list[float]]], tokens: list[list[int]]) -> Case:
    return Case(
        {
            "logits": torch.tensor(logits, dtype=torch.float64),
            "tokens": torch.tensor(tokens),
        }
    )


TASK = Task(
    "token_log_probs",
    token_log_probs,
    _cases,
    results=("log-probabilities",),
    gradients=("logits",),
)


@TASK.right
def gathered(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.right
def by_logsumexp(logits: Tensor, tokens: Tensor) -> Tensor:
    picked = logits.gather(-1, tokens[..., None]).squeeze(-1)
    normaliser = logits.logsumexp(-1)
    return picked - normaliser


@TASK.right
def by_cross_entropy(logits: Tensor, tokens: Tensor) -> Tensor:
    return -cross_entropy(logits.transpose(1, 2), tokens, reduction="none")


@TASK.right
def by_indexing(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    rows = torch.arange(len(tokens))[:, None]
    return log_probs[rows, torch.arange(tokens.shape[1]), tokens]


@TASK.wrong("logits-gathered", source="a logit taken for a log-probability")
def logits_gathered(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = logits
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.wrong("probabilities", source="the logarithm left out: softmax for log-softmax")
def probabilities(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.softmax(logits, dim=-1)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.wrong("log-of-softmax", source="two steps for one: log 0 in single tokens")
def log_of_softmax(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.softmax(logits, dim=-1).log()
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.wrong("exponentials-overflow", source="THUDM/slime PR 2198: exp of 1e4; K28")
def exponentials_overflow(logits: Tensor, tokens: Tensor) -> Tensor:
    picked = logits.gather(-1, tokens[..., None]).squeeze(-1)
    normaliser = logits.exp().sum(-1).log()
    return picked - normaliser


@TASK.wrong("softmax-twice", source="CASES, misconception 9: probabilities as logits")
def softmax_twice(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits.softmax(dim=-1), dim=-1)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.wrong("largest-logit-subtracted", source="half of the log-sum-exp trick")
def largest_logit_subtracted(logits: Tensor, tokens: Tensor) -> Tensor:
    picked = logits.gather(-1, tokens[..., None]).squeeze(-1)
    normaliser = logits.amax(-1)
    return picked - normaliser


@TASK.wrong("normalised-over-time", source="dim=1, right while there was no batch")
def normalised_over_time(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=1)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.wrong("shifted-again", source="AI-Hypercomputer/maxtext #2103; CASES K20")
def shifted_again(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs[:, :-1].gather(-1, tokens[:, 1:, None])
    return picked.squeeze(-1)


@TASK.wrong("next-token-scored", source="PrimeIntellect-ai/prime-rl PR 1525; CASES K20")
def next_token_scored(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs.gather(-1, tokens.roll(-1, dims=-1)[..., None])
    return picked.squeeze(-1)


@TASK.wrong("next-logits-used", source="lucidrains/PaLM-rlhf-pytorch #31; CASES K20")
def next_logits_used(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits.roll(-1, dims=1), dim=-1)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.wrong("likeliest-token", source="CASES, misconception 9: argmax for the sample")
def likeliest_token(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs.amax(-1, keepdim=True)
    return picked.squeeze(-1)


@TASK.wrong("entropy", source="noahfarr/rlx PR 3; CASES K40, the other way round")
def entropy(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = -(log_probs.exp() * log_probs).sum(-1, keepdim=True)
    return picked.squeeze(-1)


@TASK.wrong("negated", source="cross-entropy is minus the log-probability")
def negated(logits: Tensor, tokens: Tensor) -> Tensor:
    return cross_entropy(logits.transpose(1, 2), tokens, reduction="none")


@TASK.wrong("row-summed", source="the sequence's log-probability for the tokens'")
def row_summed(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1).sum(-1)


@TASK.wrong("last-axis-kept", source="RLinf/RLinf #1568: [B, 1] for [B]; CASES K39")
def last_axis_kept(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked


@TASK.wrong("all-ones-squeezed", source="squeeze() in a batch of one; CASES K39")
def all_ones_squeezed(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze()


@TASK.wrong("every-row-with-every-row", source="a slice for an index; CASES K39")
def every_row_with_every_row(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    return log_probs[:, torch.arange(tokens.shape[1]), tokens]


@TASK.wrong("detached", source="seungeunrho/minimalRL #33; CASES L07")
def detached(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs.detach().gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.wrong("normaliser-detached", source="CASES L07 in the denominator only")
def normaliser_detached(logits: Tensor, tokens: Tensor) -> Tensor:
    picked = logits.gather(-1, tokens[..., None]).squeeze(-1)
    normaliser = logits.logsumexp(-1).detach()
    return picked - normaliser


@TASK.wrong("row-averaged", source="a reduction inside for the one outside; CASES L02")
def row_averaged(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1).mean(-1)


@TASK.wrong("normalised-over-the-batch", source="dim=0, right for a single position")
def normalised_over_the_batch(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=0)
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.wrong("epsilon-in-the-log", source="log(p + 1e-8) against log 0")
def epsilon_in_the_log(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = (torch.softmax(logits, dim=-1) + 1e-8).log()
    picked = log_probs.gather(-1, tokens[..., None])
    return picked.squeeze(-1)


@TASK.variant("epsilon-in-the-log")
def smaller_epsilon(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = (torch.softmax(logits, dim=-1) + 1e-10).log()
    return log_probs.gather(-1, tokens[..., None]).squeeze(-1)


@TASK.variant("epsilon-in-the-log")
def probability_held_up(logits: Tensor, tokens: Tensor) -> Tensor:
    log_probs = torch.softmax(logits, dim=-1).clamp(min=1e-8).log()
    return log_probs.gather(-1, tokens[..., None]).squeeze(-1)


@TASK.variant("next-token-scored")
def padded_in_front(logits: Tensor, tokens: Tensor) -> Tensor:
    return pad(shifted_again(logits, tokens), (1, 0))


@TASK.variant("next-token-scored")
def padded_behind(logits: Tensor, tokens: Tensor) -> Tensor:
    return pad(shifted_again(logits, tokens), (0, 1))


@TASK.variant("next-logits-used")
def earlier_token_scored(logits: Tensor, tokens: Tensor) -> Tensor:
    return token_log_probs(logits, tokens.roll(1, dims=-1))


@TASK.wrong("reshaped-for-transposed", source="cross_entropy wants [B, V, T]")
def reshaped(logits: Tensor, tokens: Tensor) -> Tensor:
    b, t, v = logits.shape
    return -cross_entropy(logits.reshape(b, v, t), tokens, reduction="none")
