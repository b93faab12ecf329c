"""RLHF on the toy beside the usual way of writing it: CPU time at equal updates.

    python course.py bench rlhf            about a minute and a half
    python course.py bench rlhf --quick    10 updates each, kept nowhere

150 updates of PPO at beta = .1, by `rlhf_ppo` and by the loop per row of
`rlhf_peers.py`, in turns, with the same numbers and on one thread. Both policies are
judged exactly over all 8^8 responses, which is no part of their time. The results go to
`benchmarks/results/rlhf.json` and into `docs/BENCHMARKS.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.report import write_page
from benchmarks.report_rlhf import LOOP
from benchmarks.rlhf_peers import as_ours, estimate_advantages, per_row_loop
from benchmarks.timing import OURS, circumstances, warm_allocator
from course_lib.algorithms import RLHFConfig, rlhf_ppo
from course_lib.envs import TokenCount
from course_lib.exact import (
    TokenTree,
    end_scores,
    evaluate,
    policy_table,
    uniform_optimum,
    uniform_table,
)
from course_lib.models import GRULanguageModel
from tools.files import write_text

RESULTS = Path(__file__).parent / "results" / "rlhf.json"
COMMAND = "python course.py bench rlhf"
PACKAGES = ("torch", "numpy")
TASK = TokenCount()
CONFIG = RLHFConfig()
SEEDS = (0, 1, 2, 3, 4)
QUICK_UPDATES = 10


def ours(config: RLHFConfig) -> GRULanguageModel:
    """The course's, from the uniform reference."""
    history = rlhf_ppo(GRULanguageModel(seed=config.seed), TASK.score, config)
    assert history.policy is not None
    return history.policy


def loop(config: RLHFConfig) -> GRULanguageModel:
    """The loop per row, its policy as a model of ours, to be judged like it."""
    return as_ours(per_row_loop(TASK.score, config)[0])


WHO = {OURS: ours, LOOP: loop}


def compare(num_updates: int, seeds: tuple[int, ...] = SEEDS) -> list[dict[str, Any]]:
    """A row for each competitor and seed: its time, and how far from the best it is."""
    warm_allocator()
    for train in WHO.values():
        train(replace(CONFIG, num_updates=1))  # imports and compiles, uncounted
    rows = []
    for seed in seeds:
        for who, train in WHO.items():
            started = time.process_time()
            policy = train(replace(CONFIG, num_updates=num_updates, seed=seed))
            spent = time.process_time() - started
            row = {"who": who, "seed": seed, "cpu_seconds": round(spent, 2)}
            rows.append(row | judged(policy))
            print(json.dumps(rows[-1]), flush=True)
    return rows


def judged(policy: GRULanguageModel) -> dict[str, float]:
    """Score and KL over all responses, and how much of the best objective it lacks."""
    tree, beta = TokenTree(), CONFIG.beta
    table, scores = policy_table(policy, tree), end_scores(TASK.score, tree)
    found = evaluate(tree, table, uniform_table(tree), scores, beta)
    best = uniform_optimum(tree.vocab_size, tree.length, beta)
    return {
        "score": round(found.score, 4),
        "kl": round(found.kl, 4),
        "gap": float(f"{best.objective - found.objective:.3g}"),
    }


def share_of_rows() -> float:
    """How much of the loop's time is the GAE of one row after the other."""
    rewards, values = torch.zeros(2, CONFIG.batch_size, CONFIG.length)
    started = time.process_time()
    for _ in range(QUICK_UPDATES):
        estimate_advantages(rewards, values, CONFIG.gamma, CONFIG.lam)
    rows = time.process_time() - started
    per_row_loop(TASK.score, replace(CONFIG, num_updates=QUICK_UPDATES))
    return rows / (time.process_time() - started - rows)


def share_of_products() -> float:
    """How much of our operations' time is matrix products, the way back with it."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else it talks into our lines
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        ours(replace(CONFIG, num_updates=QUICK_UPDATES))
    spent = {one.key: one.self_cpu_time_total for one in watched.key_averages()}
    products = sum(spent[f"aten::{name}"] for name in ("mm", "addmm", "addmm_"))
    return float(products / sum(spent.values()))


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a line for each run, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10 updates, kept nowhere")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if chosen.quick:
        compare(QUICK_UPDATES, SEEDS[:1])
        return
    rows = compare(CONFIG.num_updates)
    kept = circumstances(COMMAND, PACKAGES)
    kept |= {
        "num_updates": CONFIG.num_updates,
        "share_of_rows": round(share_of_rows(), 2),
        "share_of_products": round(share_of_products(), 2),
        "rows": rows,
    }
    text = json.dumps(kept, indent=2) + "\n"
    write_text(RESULTS, text)
    write_page()


if __name__ == "__main__":
    main()
