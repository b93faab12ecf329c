"""Task: what the entropy adds to the loss."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from course_lib.kernels import entropy
from course_lib.notebook.checks.task import Case, Task


def entropy_term(logits: Tensor, ent_coef: float) -> Tensor:
    """Return []: -ent_coef times the mean entropy of the policies with logits [N, A],
    to be added to a loss. A forbidden action, logit -inf, adds nothing."""
    return -ent_coef * entropy(logits).mean()


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([[0.5, 0.5]], 0.01),  # CASES K40: log 2 nats, whatever the common level
        _case([[math.log(0.9), math.log(0.1)]], 1.0),  # CASES K40
        _case([[1.0, 1.0, 1.0]], 0.5),
        _case([[2.0, 0.0, -1.0], [0.0, 3.0, 0.0]], 0.1),
    ]
    for shape in ((3, 4), (5, 3)):
        logits = 2.0 * torch.randn(shape, generator=generator)
        cases.append(_case(logits.tolist(), 0.25))
    forbidden = _case([[1.0, -math.inf, 0.0], [0.0, 2.0, -math.inf]], 0.1)
    return [*cases, replace(forbidden, adversarial=True)]


def _case(logits: list[list[float]], ent_coef: float) -> Case:
    return Case(
        {"logits": torch.tensor(logits, dtype=torch.float64), "ent_coef": ent_coef}
    )


TASK = Task(
    "entropy_term",
    entropy_term,
    _cases,
    results=("term",),
    tolerance=1e-5,  # a 1e-8 in the logarithm is a matter of taste here
    gradients=("logits",),
)


@TASK.right
def plain(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.right
def by_distribution(logits: Tensor, ent_coef: float) -> Tensor:
    policy = torch.distributions.Categorical(logits=logits)
    entropies: Tensor = policy.entropy()
    return -ent_coef * entropies.mean()


@TASK.right
def guarded(logits: Tensor, ent_coef: float) -> Tensor:
    p = torch.softmax(logits, dim=-1)
    entropies = -(p * torch.log(p + 1e-8)).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.wrong("entropy-punished", source="DLR-RM/stable-baselines3 #127; CASES K40")
def punished(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return ent_coef * entropies.mean()


@TASK.wrong("coefficient-left-out", source="ent_coef never used; CLAIMS, error 31")
def unweighted(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -entropies.mean()


@TASK.variant("coefficient-left-out")
def entropy_alone(logits: Tensor, ent_coef: float) -> Tensor:
    policy = torch.distributions.Categorical(logits=logits)
    entropies: Tensor = policy.entropy()
    return entropies.mean()


@TASK.wrong("likeliest-action-only", source="noahfarr/rlx PR 3; CASES K40")
def likeliest(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -log_p.gather(-1, p.argmax(-1, keepdim=True)).squeeze(-1)
    return -ent_coef * entropies.mean()


@TASK.variant("likeliest-action-only")
def likeliest_weighted(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1).amax(-1)
    return ent_coef * (log_p.exp() * log_p).mean()


@TASK.wrong("probabilities-left-out", source="a mean of log-probabilities, unweighted")
def surprise(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -log_p.mean(-1)
    return -ent_coef * entropies.mean()


@TASK.variant("probabilities-left-out")
def surprises_summed(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    log_p = log_p.masked_fill(log_p == -torch.inf, 0.0)
    return ent_coef * log_p.sum(-1).mean()


@TASK.wrong("averaged-over-actions", source="one mean over both axes; CASES K36")
def over_actions(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p)
    return -ent_coef * entropies.mean()


@TASK.wrong("summed-over-states", source="one sum over both axes; CASES K36")
def over_states(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies.sum()


@TASK.wrong("not-averaged", source="one number a state: the mean forgotten")
def not_averaged(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies


@TASK.wrong("in-bits", source="the logarithm to base 2")
def in_bits(logits: Tensor, ent_coef: float) -> Tensor:
    p = torch.softmax(logits, dim=-1)
    entropies = -(p * torch.log2(p + 1e-8)).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.wrong("logits-for-log-probs", source="a logit taken for a log-probability")
def logits_weighted(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = logits
    p = torch.softmax(logits, dim=-1)
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.variant("logits-for-log-probs")
def exponentiated_logits(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = logits
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.wrong("softmax-twice", source="CASES, misconception 9: probabilities as logits")
def twice(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits.softmax(dim=-1), dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.wrong("normalised-over-states", source="dim=0 for dim=-1")
def over_batch(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=0)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.wrong("of-the-mean-policy", source="the policies averaged before the logarithm")
def of_mean(logits: Tensor, ent_coef: float) -> Tensor:
    p = torch.softmax(logits, dim=-1).mean(0, keepdim=True)
    entropies = -(p * torch.log(p + 1e-8)).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.wrong("share-of-the-largest", source="divided by log A, as in a report")
def as_share(logits: Tensor, ent_coef: float) -> Tensor:
    policy = torch.distributions.Categorical(logits=logits)
    entropies: Tensor = policy.entropy() / math.log(logits.shape[-1])
    return -ent_coef * entropies.mean()


@TASK.wrong("one-minus-squares", source="the Gini index of decision trees")
def gini(logits: Tensor, ent_coef: float) -> Tensor:
    p = torch.softmax(logits, dim=-1)
    entropies = 1 - (p * p).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.wrong("detached", source="seungeunrho/minimalRL #33: detach on the way; L07")
def detached(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits.detach(), dim=-1)
    p = log_p.exp()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.wrong("weights-detached", source="p cut off: what is left has the gradient 0")
def weights_detached(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp().detach()
    log_p = log_p.masked_fill(p == 0, 0.0)
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.wrong("forbidden-spoils", source="0 · log 0 of a forbidden action: NaN")
def unguarded(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    entropies = -(p * log_p).sum(-1)
    return -ent_coef * entropies.mean()


@TASK.variant("forbidden-spoils")
def replaced_too_late(logits: Tensor, ent_coef: float) -> Tensor:
    log_p = torch.log_softmax(logits, dim=-1)
    return ent_coef * (log_p.exp() * log_p).nan_to_num(0.0).sum(-1).mean()


@TASK.wrong("exponential-of-it", source="perplexity, as language models report it")
def perplexity(logits: Tensor, ent_coef: float) -> Tensor:
    policy = torch.distributions.Categorical(logits=logits)
    entropies: Tensor = policy.entropy().exp()
    return -ent_coef * entropies.mean()
