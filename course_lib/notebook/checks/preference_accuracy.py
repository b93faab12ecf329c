"""Task: how often scores agree with a judge who called one of two answers better."""

from collections.abc import Sequence

import torch
from torch import Tensor

from course_lib.notebook.checks.task import Case, Task


def preference_accuracy(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Return []: the share of pairs whose chosen answer scores higher, a tie one half.

    Counted by sorting each pair into one of three kinds, where the answers below
    compare and average.
    """
    kinds = torch.sign(chosen - rejected).long() + 1  # 0 lost, 1 tied, 2 won
    lost, tied, won = torch.bincount(kinds, minlength=3).tolist()
    return torch.tensor((won + tied / 2) / (lost + tied + won))


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case([2.0], [1.0]),
        _case([1.0], [3.0]),
        _case([1.0], [1.0]),
        _case([3.0, 1.0, 2.0, 2.0], [1.0, 2.0, 2.0, 0.0]),
        _case([-1.0, -4.0, -2.0], [-2.0, -3.0, -5.0]),
        _case([9.0, 1.0, 1.0], [2.0, 3.0, 4.0]),  # one large margin, two lost pairs
        _case([1.000001, 5.0], [1.0, 1.0]),  # close, and no tie
    ]
    for count in (7, 12):
        pair = torch.randn(2, count, generator=generator).mul(2).round() / 2
        pair[:, 0], pair[:, 1] = torch.tensor([0.5, 0.5]), torch.tensor([1.5, -1.0])
        cases.append(Case({"chosen": pair[0].clone(), "rejected": pair[1].clone()}))
    return cases


def _case(chosen: list[float], rejected: list[float]) -> Case:
    scores = {"chosen": torch.tensor(chosen), "rejected": torch.tensor(rejected)}
    return Case(dict(scores))


TASK = Task(
    "preference_accuracy",
    preference_accuracy,
    _cases,
    results=("accuracy",),
    tolerance=1e-6,
    any_float=True,
)


@TASK.right
def wins_and_ties(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen > rejected).float()
    ties = (chosen == rejected).float()
    return (wins + 0.5 * ties).mean()


@TASK.right
def from_margins(chosen: Tensor, rejected: Tensor) -> Tensor:
    margins = chosen - rejected
    return (0.5 + 0.5 * margins.sign()).mean()


@TASK.right
def chosen_cases(chosen: Tensor, rejected: Tensor) -> Tensor:
    credit = torch.where(chosen > rejected, 1.0, 0.0)
    credit = torch.where(chosen == rejected, 0.5, credit)
    return credit.mean()


@TASK.right
def one_by_one(chosen: Tensor, rejected: Tensor) -> Tensor:
    total = 0.0
    for better, worse in zip(chosen, rejected, strict=True):
        if better > worse:
            total += 1.0
        elif better == worse:
            total += 0.5
    return torch.tensor(total / len(chosen))


@TASK.wrong("ties-won", source="huggingface/trl PR 1012: argmax takes the first")
def ties_won(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen > rejected).float()
    ties = (chosen == rejected).float()
    return (wins + ties).mean()


@TASK.wrong("ties-lost", source="the accuracy that OpenRLHF's rm_trainer logs")
def ties_lost(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen > rejected).float()
    return wins.mean()


@TASK.right
def halves_added(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen > rejected).float()
    wins = wins + 0.5 * (chosen == rejected)
    return wins.mean()


@TASK.wrong("ties-left-out", source="huggingface/trl: later compute_accuracy")
def ties_left_out(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen > rejected).float()
    ties = (chosen == rejected).float()
    return wins.sum() / (1.0 - ties).sum()


@TASK.wrong("sides-exchanged", source="the two columns of a data set swapped")
def sides_exchanged(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen < rejected).float()
    ties = (chosen == rejected).float()
    return (wins + 0.5 * ties).mean()


@TASK.wrong("order-ignored", source="symptom in modelscope/ms-swift #9370")
def order_ignored(chosen: Tensor, rejected: Tensor) -> Tensor:
    margins = (chosen - rejected).abs()
    return (0.5 + 0.5 * margins.sign()).mean()


@TASK.wrong("not-divided", source="sum and mean confused")
def not_divided(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen > rejected).float()
    ties = (chosen == rejected).float()
    return (wins + 0.5 * ties).sum()


@TASK.wrong("one-number-per-pair", source="the mean is forgotten")
def one_number_per_pair(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen > rejected).float()
    ties = (chosen == rejected).float()
    return wins + 0.5 * ties


@TASK.wrong("margins-averaged", source="reward margin, logged beside the accuracy")
def margins_averaged(chosen: Tensor, rejected: Tensor) -> Tensor:
    margins = chosen - rejected
    return margins.mean()


@TASK.wrong("lost-pairs-subtracted", source="net wins, a number from -1 to 1")
def lost_pairs_subtracted(chosen: Tensor, rejected: Tensor) -> Tensor:
    margins = chosen - rejected
    return margins.sign().mean()


@TASK.wrong("probabilities-averaged", source="Bradley-Terry's prediction for a count")
def probabilities_averaged(chosen: Tensor, rejected: Tensor) -> Tensor:
    margins = chosen - rejected
    return margins.sigmoid().mean()


@TASK.wrong("every-pair-of-answers", source="[N, 1] against [N]: a silent broadcast")
def every_pair(chosen: Tensor, rejected: Tensor) -> Tensor:
    margins = chosen[:, None] - rejected
    return (0.5 + 0.5 * margins.sign()).mean()


@TASK.wrong("means-compared", source="averaged first, compared afterwards")
def means_compared(chosen: Tensor, rejected: Tensor) -> Tensor:
    margins = chosen.mean() - rejected.mean()
    return (0.5 + 0.5 * margins.sign()).mean()


@TASK.wrong("above-zero", source="hiyouga/LlamaFactory #2499: the sign of a score")
def above_zero(chosen: Tensor, rejected: Tensor) -> Tensor:
    margins = chosen - 0.0 * rejected
    return (0.5 + 0.5 * margins.sign()).mean()


@TASK.wrong("close-taken-for-tied", source="isclose where equality is meant")
def close_taken_for_tied(chosen: Tensor, rejected: Tensor) -> Tensor:
    credit = torch.where(chosen > rejected, 1.0, 0.0)
    credit = torch.where(torch.isclose(chosen, rejected), 0.5, credit)
    return credit.mean()


@TASK.wrong("answers-counted", source="divided by both lists together")
def answers_counted(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen > rejected).float()
    ties = (chosen == rejected).float()
    return (wins + 0.5 * ties).sum() / (len(chosen) + len(rejected))


@TASK.wrong("percent", source="a share reported out of 100")
def percent(chosen: Tensor, rejected: Tensor) -> Tensor:
    wins = (chosen > rejected).float()
    ties = (chosen == rejected).float()
    return 100 * (wins + 0.5 * ties).mean()
