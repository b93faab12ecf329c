"""Pictures of chapter 00: what copying costs, and what one verdict tells of a part."""

import functools

import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.exact import off_path_probabilities, right_in_the_better
from course_lib.notebook.plots.lines import (
    baseline,
    describe,
    estimate,
    exact,
    faint,
    limit,
    panels,
    short_ticks,
)
from course_lib.notebook.words import word

WALKERS, LONGEST_PATH = 1000, 400
SHOWN_DECISIONS, MOST_DECISIONS = 10, 100
NORMAL_95 = 1.96
BELOW_SIGHT = 1e-4


def copying_drift(
    figure: Figure, path_length: int, error: float, recovery: float
) -> str:
    """A copier who errs with chance `error` a step, and what that costs in the end."""
    off = off_path_probabilities(error, LONGEST_PATH, recovery)  # [LONGEST_PATH]
    walked = _walked(error, recovery)[:path_length]  # [T]
    wrong = float(off[:path_length].sum())
    promised = error * path_length
    left, right = panels(figure, 2)
    left.plot(range(1, path_length + 1), walked.numpy(), **baseline())
    left.plot(range(1, path_length + 1), off[:path_length].numpy(), **exact())
    left.axhline(error, **limit())
    left.set(xlim=(0, path_length), ylim=(-0.03, 1.03))
    describe(left, word("plot.off_path"), word("plot.step"), "")
    lengths = range(1, LONGEST_PATH + 1)
    right.plot(
        lengths, off.cumsum(0).numpy(), label=word("plot.copier_pays"), **exact()
    )
    right.plot(
        lengths,
        [error * length for length in lengths],
        label=word("plot.test_set_says"),
        **limit(),
    )
    right.plot([path_length], [wrong], **estimate())
    right.annotate(
        f"{wrong:.1f}",
        (path_length, wrong),
        xytext=(-8, 6),
        textcoords="offset points",
        ha="right",
    )
    right.set(xlim=(0, LONGEST_PATH + 10), ylim=(-0.03 * LONGEST_PATH, LONGEST_PATH))
    right.legend(loc="upper left")
    describe(right, word("plot.wrong_steps"), word("plot.path_length"), "")
    return word(
        "alt.copying_drift",
        path_length=path_length,
        error=f"{error:g}",
        recovery=f"{recovery:g}",
        end=f"{float(off[path_length - 1]):.3f}",
        walked=f"{float(walked[-1]):.3f}",
        walkers=WALKERS,
        wrong=f"{wrong:.1f}",
        promised=f"{promised:.1f}",
    )


@functools.lru_cache(maxsize=32)
def _walked(error: float, recovery: float) -> Tensor:
    """Share of walkers that are off the path after each step: [LONGEST_PATH]."""
    generator = torch.Generator().manual_seed(0)
    luck = torch.rand(LONGEST_PATH, WALKERS, generator=generator)
    off = torch.zeros(WALKERS, dtype=torch.bool)
    shares = []
    for now in luck:
        off = torch.where(off, now >= recovery, now < error)
        shares.append(off.float().mean())
    return torch.stack(shares)


def verdict_credit(
    figure: Figure, decisions: int, comparisons: int, wrong_verdicts: float
) -> str:
    """How often each decision is right in the answers that were called better."""
    share = right_in_the_better(decisions, wrong_verdicts)
    found = _right_in_winners(decisions, comparisons, wrong_verdicts)  # [≤ 10]
    spread = NORMAL_95 * (share * (1 - share) / comparisons) ** 0.5
    noise = NORMAL_95 * 0.5 / comparisons**0.5
    left, right = panels(figure, 2)
    names = [str(k + 1) for k in range(len(found))]
    left.axhspan(share - spread, share + spread, color=faint())
    left.axhline(share, **exact())
    left.axhline(0.5, **baseline())
    left.plot(names, found.numpy(), **(estimate() | {"linestyle": "none"}))
    left.set(xlim=(-0.6, SHOWN_DECISIONS - 0.4), ylim=(0.2, 1.0))
    describe(left, word("plot.right_in_better"), word("plot.decision"), "")
    counts = range(1, MOST_DECISIONS + 1)
    # A judge who tosses coins adds nothing, which has no place on a logarithmic axis.
    signal = [
        max(right_in_the_better(n, wrong_verdicts) - 0.5, BELOW_SIGHT) for n in counts
    ]
    right.loglog(counts, signal, label=word("plot.credit"), **exact())
    right.axhline(noise, label=word("plot.noise"), **limit())
    right.loglog([decisions], [max(share - 0.5, BELOW_SIGHT)], **estimate())
    right.set_ylim(0.003, 2.0)
    right.minorticks_off()
    short_ticks(right.xaxis)
    short_ticks(right.yaxis)
    right.legend(loc="upper right")
    describe(right, word("plot.above_half"), word("plot.decisions"), "")
    return word(
        "alt.verdict_credit",
        decisions=decisions,
        comparisons=f"{comparisons:,}",
        wrong_verdicts=f"{wrong_verdicts:.0%}",
        share=f"{share:.3f}",
        lowest=f"{float(found.min()):.3f}",
        highest=f"{float(found.max()):.3f}",
        signal=f"{share - 0.5:.3f}",
        noise=f"{noise:.3f}",
        seen=word("plot.above" if share - 0.5 > noise else "plot.below"),
    )


@functools.lru_cache(maxsize=64)
def _right_in_winners(
    decisions: int, comparisons: int, wrong_verdicts: float
) -> Tensor:
    """Share of winners with decision k right, for the first ten: [min(n, 10)]."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.rand(2, comparisons, decisions, generator=generator) < 0.5
    one, other = pairs
    coin = torch.rand(comparisons, generator=generator) - 0.5
    better = one.sum(-1) - other.sum(-1) + coin > 0  # [N]
    better ^= torch.rand(comparisons, generator=generator) < wrong_verdicts
    winners = torch.where(better[:, None], one, other)  # [N, n]
    return winners[:, :SHOWN_DECISIONS].float().mean(0)
