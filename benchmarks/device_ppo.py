"""PPO on CartPole wholly on a device: environments, rollout, advantages and update."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_lib.algorithms import PPOConfig, ppo
from course_lib.algorithms.ppo import STEPS, PPOSteps
from course_lib.envs import CartPole

PPO_SHAPES = ((64, 32), (4096, 32))
_MINIBATCHES = 32
_EPOCHS = 4


def time_ppo(
    device: torch.device,
    shapes: tuple[tuple[int, int], ...] = PPO_SHAPES,
    updates: int = 10,
) -> Iterator[dict[str, Any]]:
    """Train for some updates; steps a second in all, and the time of the parts.

    A rollout waits for the device at every step, because CartPole asks which episodes
    have ended; an update waits for nothing, and is waited for once at its end.
    """
    for num_envs, num_steps in shapes:
        _train(device, num_envs, num_steps, 1)  # compiles and warms, uncounted
        seconds, spent = _train(device, num_envs, num_steps, updates)
        yield {
            "name": "PPO on CartPole",
            "shape": [num_envs, num_steps],
            "microseconds": {
                "a rollout": _rounded(1e6 * spent["collect"] / updates),
                "an update's minibatch": _rounded(
                    1e6 * spent["update"] / updates / (_MINIBATCHES * _EPOCHS)
                ),
            },
            "steps_per_second": _rounded(updates * num_envs * num_steps / seconds),
        }


def _train(
    device: torch.device, num_envs: int, num_steps: int, updates: int
) -> tuple[float, dict[str, float]]:
    batch = num_envs * num_steps
    config = PPOConfig(
        total_steps=updates * batch,
        num_steps=num_steps,
        num_epochs=_EPOCHS,
        minibatch_size=batch // _MINIBATCHES,
    )
    spent: defaultdict[str, float] = defaultdict(float)
    begun = time.perf_counter()
    last = begun

    def until_here(name: str) -> None:
        nonlocal last
        _wait(device)
        now = time.perf_counter()
        spent[name] += now - last
        last = now

    def then(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            until_here(name)
            return result

        return run

    steps = PPOSteps(
        collect=then("collect", STEPS.collect),
        make_batch=then("advantages", STEPS.make_batch),
        minibatches=STEPS.minibatches,
        loss=STEPS.loss,
    )
    env = CartPole(num_envs, seeds=0, device=device)
    ppo(env, config, steps=steps, callback=lambda *_: until_here("update"))
    return time.perf_counter() - begun, spent


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
