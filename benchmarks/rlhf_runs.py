"""RLHF runs whose results the chapters show: `python -m benchmarks.rlhf_runs`.

Each family trains language models on the toy, 5 seeds of everything, judges every one
of them exactly over all 8^8 responses, and leaves one file in `course_lib/data/`, with
the command, the seeds, the versions and the date that made it. All of them take a
quarter of an hour on one core; name some to make only these, `--list` to see them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks import kept_runs
from benchmarks.kept_runs import PACKAGES, plain
from benchmarks.timing import circumstances
from course_lib.algorithms import (
    METHODS,
    DPOConfig,
    GroupConfig,
    LanguageHistory,
    RLHFConfig,
    dpo,
    learned_score,
    preference_accuracy,
    rlhf_group,
    rlhf_ppo,
    sample_pairs,
    train_reward_model,
)
from course_lib.envs import TokenCount
from course_lib.exact import (
    TokenTree,
    end_scores,
    evaluate,
    optimum,
    policy_table,
    reward_scores,
    uniform_table,
)
from course_lib.exact.language import LanguageValues
from course_lib.exact.token_tree import Table
from course_lib.models import GRULanguageModel

COMMAND = "python -m benchmarks.rlhf_runs"
SEEDS = (0, 1, 2, 3, 4)
TASK = TokenCount()
TURNING = TokenCount(peak=4)
TREE = TokenTree()
UNIFORM = uniform_table(TREE)
PPO = RLHFConfig()
DPO = DPOConfig(num_epochs=4)
BETAS = (0.0, 0.05, 0.1, 0.2)
LEARNED_BETAS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.0)
STALENESS = (0, 1, 2, 4, 8)
EVERY = 5
"""Updates between two points of a curve."""
SCALE = 10.0
"""Nats of log-odds for one unit of score in the labels of pairs."""
STALE = {
    "uncorrected": METHODS["rloo"],
    "truncated-weights": replace(METHODS["rloo"], importance="per_step"),
    "clip": METHODS["clip-rloo"],
}
"""Old samples as they are, weighed anew, and under a clip."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Family:
    """Runs that are kept in one file."""

    rows: Callable[[tuple[int, ...], int], Iterator[Row]]
    """Trains and judges, for some seeds and a number of updates."""
    configs: Mapping[str, RLHFConfig | GroupConfig | DPOConfig]
    """What its runs start from, by the name of the method."""


def ppo_config(beta: float, seed: int, num_updates: int) -> RLHFConfig:
    """The config of a run; without a price on KL its step size does not fall.

    Then the best policy is at infinity, and a constant step goes on towards it.
    """
    return replace(
        PPO,
        beta=beta,
        seed=seed,
        num_updates=num_updates,
        anneal_learning_rate=beta > 0,
    )


def by_beta(seeds: tuple[int, ...], num_updates: int) -> Iterator[Row]:
    """PPO at four prices of KL, from the uniform reference."""
    scores = end_scores(TASK.score, TREE)
    for beta in BETAS:
        best = best_values(UNIFORM, scores, beta)
        for seed in seeds:
            config = ppo_config(beta, seed, num_updates)
            history = rlhf_ppo(GRULanguageModel(seed=seed), TASK.score, config)
            found = judged(history, UNIFORM, scores, beta, best)
            yield {"beta": beta, "seed": seed} | found | curves(history)


def by_random_reference(seeds: tuple[int, ...], num_updates: int) -> Iterator[Row]:
    """The same from references of random weights, each with its own optimum."""
    scores = end_scores(TASK.score, TREE)
    for seed in seeds:
        ref = GRULanguageModel(seed=seed, uniform=False)
        table = policy_table(ref, TREE)
        with torch.no_grad():
            target = ref.log_probs(torch.full((1, TASK.length), TASK.target)).sum()
        for beta in BETAS:
            history = rlhf_ppo(ref, TASK.score, ppo_config(beta, seed, num_updates))
            best = best_values(table, scores, beta)
            found = judged(history, table, scores, beta, best)
            found["kl_of_the_best_response"] = rounded(-float(target))
            yield {"beta": beta, "seed": seed} | found | curves(history)


def by_learned_reward(seeds: tuple[int, ...], num_updates: int) -> Iterator[Row]:
    """PPO against a reward model whose teachers never saw where the score turns."""
    true = end_scores(TURNING.score, TREE)
    for seed in seeds:
        ref = GRULanguageModel(seed=seed)
        draw = torch.Generator().manual_seed(seed)
        pairs, held_out = (
            sample_pairs(
                ref,
                TURNING.score,
                num_pairs(num_updates),
                TASK.length,
                scale=SCALE,
                generator=draw,
            )
            for _ in range(2)
        )
        model, _ = train_reward_model(ref, pairs)
        accuracy = rounded(preference_accuracy(model, held_out))
        # Comparisons tell no zero; it is set so that the reference has its true mean.
        raw = [level / SCALE for level in reward_scores(model, TREE)]
        means = [evaluate(TREE, UNIFORM, UNIFORM, s, 0.0).score for s in (true, raw)]
        zero = means[0] - means[1]
        learned = [*raw[:-1], raw[-1] + zero]
        for beta in LEARNED_BETAS:
            seen: list[float] = []
            score_fn = _watched(learned_score(model, SCALE, zero), seen)
            config = replace(PPO, beta=beta, seed=seed, num_updates=num_updates)
            history = rlhf_ppo(ref, score_fn, config)
            row = {"beta": beta, "seed": seed, "held_out_accuracy": accuracy}
            row |= judged_by_both(history, learned, true, beta) | curves(history)
            yield row | {"true_scores": [rounded(value) for value in seen[::EVERY]]}


def by_method(seeds: tuple[int, ...], num_updates: int) -> Iterator[Row]:
    """PPO, what takes parts of it away, and DPO, at as many responses each."""
    scores = end_scores(TASK.score, TREE)
    best = best_values(UNIFORM, scores, PPO.beta)
    for seed in seeds:
        ref = GRULanguageModel(seed=seed)
        for name, config in FAMILIES["rlhf-methods"].configs.items():
            started = time.process_time()
            history = _trained(ref, config, seed, num_updates)
            spent = time.process_time() - started
            row = {"method": name, "seed": seed, "cpu_seconds": round(spent, 1)}
            row |= judged(history, UNIFORM, scores, PPO.beta, best)
            yield row if name == "dpo" else row | curves(history)


def by_staleness(seeds: tuple[int, ...], num_updates: int) -> Iterator[Row]:
    """Samples that are some updates old, treated in three ways."""
    scores = end_scores(TASK.score, TREE)
    best = best_values(UNIFORM, scores, PPO.beta)
    for staleness in STALENESS:
        for name, method in STALE.items():
            for seed in seeds:
                config = replace(method, staleness=staleness)
                ref = GRULanguageModel(seed=seed)
                history = _trained(ref, config, seed, num_updates)
                row = {"staleness": staleness, "method": name, "seed": seed}
                row |= judged(history, UNIFORM, scores, PPO.beta, best)
                sizes = history.column("ess")[::EVERY]
                yield row | {"ess": [rounded(value) for value in sizes]}


def _trained(
    ref: GRULanguageModel,
    config: RLHFConfig | GroupConfig | DPOConfig,
    seed: int,
    num_updates: int,
) -> LanguageHistory:
    """Run the algorithm that the config belongs to."""
    if isinstance(config, DPOConfig):
        draw = torch.Generator().manual_seed(seed)
        count = num_pairs(num_updates)
        pairs = sample_pairs(
            ref, TASK.score, count, TASK.length, scale=SCALE, generator=draw
        )
        return dpo(ref, pairs, replace(config, seed=seed))
    if isinstance(config, GroupConfig):
        config = replace(config, seed=seed, num_updates=num_updates)
        return rlhf_group(ref, TASK.score, config)
    config = replace(config, seed=seed, num_updates=num_updates)
    return rlhf_ppo(ref, TASK.score, config)


def num_pairs(num_updates: int) -> int:
    """Pairs of as many responses as a run of that many updates samples."""
    return num_updates * PPO.batch_size // 2


def _watched(
    score_fn: Callable[[Tensor, Tensor], Tensor], seen: list[float]
) -> Callable[[Tensor, Tensor], Tensor]:
    """The learned score, noting the true one that nobody trains on."""

    def score(tokens: Tensor, mask: Tensor) -> Tensor:
        seen.append(float(TURNING.score(tokens, mask).mean()))
        return score_fn(tokens, mask)

    return score


FAMILIES = {
    "rlhf-beta": Family(by_beta, {"ppo": PPO}),
    "rlhf-random-reference": Family(by_random_reference, {"ppo": PPO}),
    "rlhf-learned-reward": Family(by_learned_reward, {"ppo": PPO}),
    "rlhf-methods": Family(by_method, {"ppo": PPO, **METHODS, "dpo": DPO}),
    "rlhf-staleness": Family(by_staleness, STALE),
}


def best_values(ref: Table, scores: Table, beta: float) -> LanguageValues | None:
    """What the best policy there is is worth; without a price on KL there is none."""
    return optimum(TREE, ref, scores, beta)[1] if beta > 0 else None


def judged(
    history: LanguageHistory,
    ref: Table,
    scores: Table,
    beta: float,
    best: LanguageValues | None,
) -> Row:
    """What the trained policy is worth, exactly, beside the best there is."""
    found = evaluate(TREE, _table(history), ref, scores, beta)
    return _compared(found, best)


def judged_by_both(
    history: LanguageHistory, learned: Table, true: Table, beta: float
) -> Row:
    """The same by the learned score, and what policy and optimum truly score."""
    table = _table(history)
    row: Row = {}
    best = None
    if beta > 0:
        best_table, best = optimum(TREE, UNIFORM, learned, beta)
        row["best_true_score"] = _score(best_table, true)
    found = evaluate(TREE, table, UNIFORM, learned, beta)
    return _compared(found, best) | row | {"true_score": _score(table, true)}


def _table(history: LanguageHistory) -> Table:
    assert history.policy is not None
    return policy_table(history.policy, TREE)


def _compared(found: LanguageValues, best: LanguageValues | None) -> Row:
    row: Row = {"score": rounded(found.score), "kl": rounded(found.kl)}
    if best is not None:
        row["gap"] = float(f"{best.objective - found.objective:.3g}")
        row["best_score"], row["best_kl"] = rounded(best.score), rounded(best.kl)
    return row


def _score(table: Table, scores: Table) -> float | None:
    return rounded(evaluate(TREE, table, UNIFORM, scores, 0.0).score)


def curves(history: LanguageHistory) -> Row:
    """Score and KL of the batches, as they were sampled."""
    return {
        f"{name}s": [rounded(value) for value in history.column(name)[::EVERY]]
        for name in ("score", "kl")
    }


def rounded(value: float) -> float | None:
    """Five digits after the point; None for what is no number."""
    return round(value, 5) if math.isfinite(value) else None


def make(
    name: str, seeds: tuple[int, ...] = SEEDS, num_updates: int = PPO.num_updates
) -> dict[str, Any]:
    """Train one family of runs and return what is kept of it."""
    family, started = FAMILIES[name], time.process_time()
    rows = [*family.rows(seeds, num_updates)]
    return {
        **circumstances(f"{COMMAND} {name}", PACKAGES),
        "seeds": list(seeds),
        "num_updates": num_updates,
        "responses_per_update": PPO.batch_size,
        "updates_between_points": EVERY,
        "configs": {name: plain(config) for name, config in family.configs.items()},
        "cpu_seconds": round(time.process_time() - started, 1),
        "runs": rows,
    }


def main(arguments: list[str] | None = None) -> None:
    """Make the named runs, or all."""
    kept_runs.main(__doc__.splitlines()[0], FAMILIES, make, arguments)


if __name__ == "__main__":
    main()
