"""Long runs whose results the chapters show: `python -m benchmarks.chapter_runs`.

Each run trains 10 agents on CartPole and leaves one small file in `course_lib/data/`,
with the command, the seeds, the versions and the date that made it. All of them take
about 40 minutes on one core; name some to make only these, `--list` to see them.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks import kept_runs
from benchmarks.kept_runs import PACKAGES, plain
from benchmarks.timing import circumstances
from course_lib.algorithms import (
    ActorCriticConfig,
    History,
    PPOConfig,
    ReinforceConfig,
    TRPOConfig,
    actor_critic,
    ppo,
    reinforce,
    trpo,
)
from course_lib.algorithms.faults import FAULTS, faulty_ppo
from course_lib.algorithms.rollout import Sampler, collect_episodes
from course_lib.envs import CartPole
from course_lib.models import Categorical

COMMAND = "python -m benchmarks.chapter_runs"
SEEDS = tuple(range(10))
GREEDY_SEED = 1_000
"""Of the environments that no agent has trained in."""
GRID = 2048
"""Env steps between two points of a curve."""
POINTS = 400
"""Updates whose numbers are kept, at most."""
WINDOW = 10
"""Episodes whose mean return is a point: one metric for every algorithm."""


@dataclass(frozen=True)
class Run:
    """One algorithm with one config; `envs` environments for each agent."""

    train: Callable[..., History]
    config: Any
    envs: int = 8
    together: bool = True
    """All seeds in one batch; where an update follows one agent's KL, one by one."""


def _runs() -> dict[str, Run]:
    clip = PPOConfig()
    runs = {
        "reinforce": Run(reinforce, ReinforceConfig(), 5),
        "reinforce-baseline": Run(reinforce, ReinforceConfig(baseline="value"), 5),
        "reinforce-leave-one-out": Run(
            reinforce, ReinforceConfig(baseline="leave_one_out"), 5
        ),
        "actor-critic": Run(actor_critic, ActorCriticConfig()),
        "trpo": Run(trpo, TRPOConfig()),
        "ppo": Run(ppo, clip),
        "ppo-penalty": Run(ppo, replace(clip, penalty=1.0), together=False),
    }
    off: dict[str, dict[str, Any]] = {
        "advantages-unnormalised": {"normalize_advantages": "none"},
        "advantages-by-batch": {"normalize_advantages": "batch"},
        "weights-not-orthogonal": {"orthogonal": False},
        "policy-head-not-small": {"policy_gain": 1.0},
        "rate-not-annealed": {"anneal_learning_rate": False},
        "gradient-not-clipped": {"max_grad_norm": math.inf},
        "value-clipped": {"value_clip": 0.2},
        "no-entropy": {"ent_coef": 0.0},
        "truncation-not-bootstrapped": {"bootstrap_truncated": False},
        "shared-trunk": {"shared": True},
        "shared-trunk-light-critic": {"shared": True, "vf_coef": 0.005},
        "no-clip": {"clip_eps": math.inf},
        "rate-times-ten": {"learning_rate": 3e-3},
        "rate-times-ten-no-clip": {"learning_rate": 3e-3, "clip_eps": math.inf},
        "one-epoch": {"num_epochs": 1},
        "one-step-a-batch": {"num_epochs": 1, "minibatch_size": 2048},
        "lambda-1": {"lam": 1.0},
        "lambda-0": {"lam": 0.0},
    }
    for name, changes in off.items():
        runs[f"ppo-{name}"] = Run(ppo, replace(clip, **changes))
    runs["ppo-target-kl"] = Run(ppo, replace(clip, target_kl=0.01), together=False)
    for name in FAULTS:
        runs[f"fault-{name}"] = Run(_with_fault(name), clip)
    return runs


def _with_fault(name: str) -> Callable[..., History]:
    def train(env: CartPole, config: PPOConfig) -> History:
        return faulty_ppo(name, env, config)

    return train


RUNS = _runs()


def make(name: str, seeds: tuple[int, ...] = SEEDS, **changes: Any) -> dict[str, Any]:
    """Train one run and return what is kept of it.

    Args:
        name: one of `RUNS`.
        seeds: of the agents; the environments' seeds follow from them.
        changes: to the config, to make it shorter.
    """
    run = RUNS[name]
    config = replace(run.config, **changes)
    groups = [seeds] if run.together else [(seed,) for seed in seeds]
    started = time.process_time()
    histories = [
        run.train(environments(group, run.envs), replace(config, seeds=group))
        for group in groups
    ]
    spent = time.process_time() - started
    alone = _alone(run, config, seeds[0]) if run.together else spent / len(seeds)
    end = max(max(history.env_steps) for history in histories)
    steps = list(range(GRID, end + 1, GRID))
    return {
        **circumstances(f"{COMMAND} {name}", PACKAGES),
        "seeds": list(seeds),
        "environments": f"{run.envs} CartPole-v1 for each seed",
        "config": plain(config),
        "cpu_seconds": round(spent, 1),
        "cpu_seconds_of_one_seed_alone": round(alone, 1),
        "env_steps": steps,
        "returns": [
            curve(history, place, steps)
            for history in histories
            for place in range(len(history.seeds))
        ],
        "solved_at": [
            history.solved_at(seed=place)
            for history in histories
            for place in range(len(history.seeds))
        ],
        "last_hundred": [
            round(statistics.mean(history.returns(place)[-100:]), 1)
            for history in histories
            for place in range(len(history.seeds))
        ],
        "greedy_returns": [
            score for history in histories for score in greedy_returns(history)
        ],
        "records": _records(histories),
    }


def environments(seeds: tuple[int, ...], count: int) -> CartPole:
    """`count` CartPoles for each seed, the same whoever stands beside them."""
    own = [seed for one in seeds for seed in CartPole(count, seeds=one).seeds.tolist()]
    return CartPole(count * len(seeds), seeds=own)


def curve(history: History, seed: int, steps: list[int]) -> list[float | None]:
    """The mean return of the last 10 episodes at each of `steps`, to a tenth.

    None before 10 episodes have ended, and after the agent's last step.
    """
    end = history.env_steps[seed]
    means = history.recent_returns(steps, WINDOW, seed)
    return [
        None if step > end or math.isnan(mean) else round(mean, 1)
        for step, mean in zip(steps, means, strict=True)
    ]


class _Greedy(Sampler):
    """Always the likeliest action."""

    @torch.no_grad()
    def actions(self, observations: Tensor) -> Tensor:
        rows = observations.unflatten(0, (len(self.generators), -1))
        policy = self.agent.policy(rows)
        assert isinstance(policy, Categorical)
        return policy.mode().flatten(0, 1)


def greedy_returns(history: History, episodes: int = 20) -> list[float]:
    """The mean return of each trained agent when it draws nothing."""
    assert history.agent is not None
    env = CartPole(episodes * len(history.seeds), seeds=GREEDY_SEED)
    rollout = collect_episodes(
        env, _Greedy(history.agent, history.seeds, torch.device("cpu"))
    )
    means = (rollout.rewards * rollout.mask).sum(-1).mean(-1)  # [S]
    return [round(mean, 1) for mean in means.tolist()]


def _alone(run: Run, config: Any, seed: int) -> float:
    started = time.process_time()
    run.train(environments((seed,), run.envs), replace(config, seeds=(seed,)))
    return time.process_time() - started


def _records(histories: list[History]) -> dict[str, list[float | None]]:
    """Means over the agents of every number that was logged, to four digits.

    Of every second or third update where there are many: a picture has no more points.
    """
    names = histories[0].records[0]
    length = min(len(history.records) for history in histories)
    stride = math.ceil(length / POINTS)
    kept = {}
    for name in names:
        columns = [history.column(name)[:length:stride] for history in histories]
        means = [sum(row) / len(row) for row in zip(*columns, strict=True)]
        kept[name] = [float(f"{m:.4g}") if math.isfinite(m) else None for m in means]
    return kept


def main(arguments: list[str] | None = None) -> None:
    """Make the named runs, or all."""
    kept_runs.main(__doc__.splitlines()[0], RUNS, make, arguments)


if __name__ == "__main__":
    main()
