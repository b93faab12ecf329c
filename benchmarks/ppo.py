"""PPO beside its peers: CPU time at equal steps, minibatches and updates.

    python course.py bench ppo            about fifteen minutes
    python course.py bench ppo --quick    8,192 steps of CartPole each, kept nowhere

One thread, CPU seconds. Every competitor runs with the same numbers (`TASKS`) and in
as many environments; on CartPole the peers also run in one environment with longer
rollouts, as Stable-Baselines3 does unless it is told otherwise. The results go to
`benchmarks/results/ppo.json` and into `docs/BENCHMARKS.md`; `--only TASK` measures one
task anew and keeps the others' results.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import util
from pathlib import Path
from typing import Any

import torch

from benchmarks import reinforce
from benchmarks.ppo_peers import PEERS
from benchmarks.report import write_page
from benchmarks.timing import OURS, circumstances
from course_lib.algorithms import History, PPOConfig, ppo
from course_lib.algorithms.closed_form import CLOSED_FORM
from course_lib.algorithms.ppo import STEPS, PPOSteps
from course_lib.envs import CartPole, GymnasiumVector
from tools.files import write_text

RESULTS = Path(__file__).parent / "results" / "ppo.json"
COMMAND = "python course.py bench ppo"
PACKAGES = ("torch", "numpy", "gymnasium", "stable-baselines3")
QUICK_STEPS = 8_192
MANY_SEEDS = 10
SB3, LOOP = PEERS
ALONE = ", one environment"
BY_HAND = OURS + ", gradient written out"


@dataclass(frozen=True)
class Task:
    """An environment, the numbers that all competitors run with, and their seeds."""

    name: str
    """Gymnasium's name of it."""
    num_envs: int
    config: PPOConfig
    seeds: dict[str, tuple[int, ...]]
    """By competitor, in the order in which they take turns."""

    def alone(self) -> Task:
        """The same number of steps in a rollout, all of them in one environment."""
        steps = self.config.num_steps * self.num_envs
        return replace(self, num_envs=1, config=replace(self.config, num_steps=steps))


TASKS = (
    Task(
        "CartPole-v1",
        8,
        PPOConfig(),
        {
            OURS: (0, 1, 2),
            BY_HAND: (0, 1, 2),
            SB3: (0,),
            LOOP: (0,),
            SB3 + ALONE: (0,),
            LOOP + ALONE: (0,),
        },
    ),
    # After rl-baselines3-zoo, without its running normalisation of observations.
    Task(
        "Acrobot-v1",
        16,
        PPOConfig(lam=0.94, num_epochs=4, ent_coef=0.0, anneal_learning_rate=False),
        {OURS: (0, 1, 2), SB3: (0, 1, 2)},
    ),
    # The same for Pendulum, without its state-dependent exploration.
    Task(
        "Pendulum-v1",
        4,
        PPOConfig(
            num_steps=1024,
            gamma=0.9,
            ent_coef=0.0,
            learning_rate=1e-3,
            anneal_learning_rate=False,
        ),
        {OURS: (0, 1, 2), SB3: (0, 1, 2)},
    ),
)


def ours(
    name: str, num_envs: int, config: PPOConfig, seed: int, steps: PPOSteps = STEPS
) -> History:
    """The course's, on its own CartPole or on Gymnasium's environments."""
    env: Any = CartPole(num_envs, seeds=seed)
    if name != "CartPole-v1":
        import gymnasium

        env = gymnasium.make_vec(name, num_envs, vectorization_mode="sync")
        env = GymnasiumVector(env, seeds=seed)
    return ppo(env, replace(config, seeds=(seed,)), steps=steps)


def measure(task: Task, who: str, seed: int) -> dict[str, Any]:
    """One run of one competitor: its time, and what it came to."""
    spent: defaultdict[str, float] = defaultdict(float)
    if who.endswith(ALONE):
        task = task.alone()
    steps = CLOSED_FORM if who == BY_HAND else STEPS
    peer = PEERS.get(who.removesuffix(ALONE))
    run = peer or partial(ours, steps=_timed(steps, spent))
    start = time.process_time()
    history = run(task.name, task.num_envs, task.config, seed)
    seconds = time.process_time() - start
    row = {
        "task": task.name,
        "who": who,
        "seed": seed,
        "steps": task.config.total_steps,
        "cpu_seconds": round(seconds, 2),
        "last_tenth": _last_tenth(history, task.config.total_steps),
    }
    if task.name == "CartPole-v1":
        row["solved_at"] = history.solved_at()
    if spent:
        spent["gradient, clip, Adam, log"] = seconds - sum(spent.values())
        row["spent"] = {name: round(part, 2) for name, part in spent.items()}
    return row


def measure_many_seeds(task: Task) -> dict[str, Any]:
    """Ten agents in one run; where each was solved."""
    seeds = tuple(range(MANY_SEEDS))
    env = CartPole(task.num_envs * len(seeds), seeds=0)
    start = time.process_time()
    history = ppo(env, replace(task.config, seeds=seeds))
    return {
        "task": task.name,
        "who": f"{OURS}, {MANY_SEEDS} seeds at once",
        "steps": task.config.total_steps,
        "cpu_seconds": round(time.process_time() - start, 2),
        "solved_at": [history.solved_at(seed=seed) for seed in seeds],
    }


def compare(task: Task) -> list[dict[str, Any]]:
    """All competitors on one task, in turns; those not installed are left out."""
    who = [name for name in task.seeds if _has_sb3() or not name.startswith(SB3)]
    _warm_up(task, who)
    rows = []
    for turn in range(max(map(len, task.seeds.values()))):
        for name in who:
            if turn < len(task.seeds[name]):
                rows.append(measure(task, name, task.seeds[name][turn]))
                print(json.dumps(rows[-1]), flush=True)
    if task.name == "CartPole-v1":
        rows.append(measure_many_seeds(task))
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _warm_up(task: Task, who: list[str]) -> None:
    # Imports, and the compilation of numba's loops, are no part of anyone's time.
    steps = 64
    short = replace(task.config, num_steps=steps, num_epochs=1)
    short = replace(short, total_steps=steps * task.num_envs)
    for name in who:
        measure(replace(task, config=short), name, 0)


def _timed(steps: PPOSteps, spent: dict[str, float]) -> PPOSteps:
    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            start = time.process_time()
            result = function(*args, **options)
            spent[name] += time.process_time() - start
            return result

        return run

    return PPOSteps(
        collect=timed("rollout", steps.collect),
        make_batch=timed("advantages", steps.make_batch),
        minibatches=steps.minibatches,
        loss=timed("loss", steps.loss),
    )


def _last_tenth(history: History, total_steps: int) -> float | None:
    """The mean return of the episodes that ended in the last tenth of the steps."""
    last = [
        episode.episode_return
        for episode in history.episodes
        if episode.env_steps > 0.9 * total_steps
    ]
    return round(sum(last) / len(last), 1) if last else None


def _has_sb3() -> bool:
    return util.find_spec("stable_baselines3") is not None


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a line for each run, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="CartPole, 8,192 steps")
    parser.add_argument("--only", choices=[task.name for task in TASKS])
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if not _has_sb3():
        print("Not installed, so left out: stable-baselines3")
    tasks = [task for task in TASKS if chosen.only in (None, task.name)]
    if chosen.quick:
        tasks = [
            replace(tasks[0], config=replace(tasks[0].config, total_steps=QUICK_STEPS))
        ]
    kept = _kept() if chosen.only else {}
    for task in tasks:
        rows = compare(task)
        kept[task.name] = circumstances(COMMAND, PACKAGES) | {"rows": rows}
    if not chosen.quick:
        in_order = {task.name: kept[task.name] for task in TASKS if task.name in kept}
        text = json.dumps(in_order, indent=2) + "\n"
        write_text(RESULTS, text)
        write_page()
    if not (chosen.quick or chosen.only):
        reinforce.main()


def _kept() -> dict[str, Any]:
    if not RESULTS.exists():
        return {}
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main()
