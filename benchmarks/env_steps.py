"""Steps per second of CartPole, ours beside both of Gymnasium's, in one run.

    python benchmarks/env_steps.py --write

CPU seconds on one thread, under uniformly random actions drawn beforehand, resets
included. The three take turns, and what counts is the median over rounds of the ratio
within a round, which a busy machine disturbs least. A step of Gymnasium's that only
resets (autoreset mode NEXT_STEP) is counted as a step, in its favour.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import gymnasium
import numpy as np
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import TimeLimit

from course_lib.envs import CartPole
from tools.files import write_text

SIZES = (1, 8, 64, 1024, 65536)
RESULTS = Path(__file__).parent / "results" / "env_steps.json"
OURS, VECTOR, SYNC = "CartPole", "CartPoleVectorEnv", "SyncVectorEnv"
# Chosen so that a turn takes tens of milliseconds.
_TURN = {OURS: 500_000, VECTOR: 500_000, SYNC: 6_000}
_MOST_CALLS, _FEWEST_CALLS = 1_000, 10


def measure(num_envs: int, *, rounds: int, seed: int, sync: bool = True) -> dict:
    """Median steps per CPU second of each, and ours over each peer within a round."""
    turns = {OURS: _ours(num_envs, seed), VECTOR: _vector(num_envs, seed)}
    if sync:
        turns[SYNC] = _sync(num_envs, seed)
    for turn in turns.values():
        turn()  # warms allocators and caches, uncounted
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            calls, seconds = turn()
            rates[name].append(calls * num_envs / seconds)
    return {
        "num_envs": num_envs,
        "steps_per_cpu_second": {
            name: _rounded(statistics.median(values)) for name, values in rates.items()
        },
        "ours_over": {
            name: _rounded(
                statistics.median(
                    ours / theirs
                    for ours, theirs in zip(rates[OURS], values, strict=True)
                )
            )
            for name, values in rates.items()
            if name != OURS
        },
    }


def _ours(num_envs: int, seed: int) -> Callable[[], tuple[int, float]]:
    env = CartPole(num_envs, seeds=seed)
    env.reset()
    return _turn(env.step, torch.from_numpy(_actions(OURS, num_envs, seed)))


def _vector(num_envs: int, seed: int) -> Callable[[], tuple[int, float]]:
    env = CartPoleVectorEnv(num_envs, max_episode_steps=500)
    env.reset(seed=seed)
    return _turn(env.step, _actions(VECTOR, num_envs, seed))


def _sync(num_envs: int, seed: int) -> Callable[[], tuple[int, float]]:
    # Without the checks that gymnasium.make would wrap around it.
    env = SyncVectorEnv([lambda: TimeLimit(CartPoleEnv(), 500)] * num_envs)
    env.reset(seed=seed)
    return _turn(env.step, _actions(SYNC, num_envs, seed))


def _turn(step: Callable, actions) -> Callable[[], tuple[int, float]]:
    rows = list(actions)

    def turn() -> tuple[int, float]:
        start = time.process_time()
        for row in rows:
            step(row)
        return len(rows), time.process_time() - start

    return turn


def _actions(name: str, num_envs: int, seed: int) -> np.ndarray:
    fewest = 1 if name == SYNC else _FEWEST_CALLS
    calls = min(_MOST_CALLS, max(fewest, _TURN[name] // num_envs))
    return np.random.default_rng(seed).integers(2, size=(calls, num_envs))


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> None:
    """Measure every size, print a table and, if asked to, keep the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help=f"into {RESULTS.name}")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for num_envs in SIZES:
        rounds = chosen.rounds if num_envs <= 1024 else max(5, chosen.rounds // 3)
        rows.append(measure(num_envs, rounds=rounds, seed=chosen.seed))
        print(json.dumps(rows[-1]))
    if chosen.write:
        record = {
            "command": f"python benchmarks/env_steps.py --rounds {chosen.rounds} "
            f"--seed {chosen.seed} --write",
            "date": datetime.now(UTC).date().isoformat(),
            "seed": chosen.seed,
            "machine": {
                "system": platform.system(),
                "processor": platform.machine(),
                "cores": os.cpu_count(),
                "threads": 1,
                "load": [round(value, 1) for value in os.getloadavg()]
                if hasattr(os, "getloadavg")
                else None,
            },
            "versions": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": np.__version__,
                "gymnasium": gymnasium.__version__,
            },
            "rows": rows,
        }
        text = json.dumps(record, indent=2) + "\n"
        write_text(RESULTS, text)


if __name__ == "__main__":
    main()
