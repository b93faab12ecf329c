"""`evaluate`: what the policy of a checkpoint can do."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from course_lib.algorithms.prompts import PromptSource, greedy_accuracy
from course_lib.envs import CartPole, chosen_device, verifier
from course_lib.kernels.arguments import (
    require_not_negative,
    require_positive_int,
)
from course_lib.models import (
    PromptedPolicy,
    TransformerConfig,
)
from course_lib.train.classic import make_agent
from course_lib.train.starts import saved_policy, saved_run
from course_lib.train.tasks import (
    TaskConfig,
    answer_length,
    make_sources,
    refuse_small_context,
    task_of,
)


@dataclass(frozen=True)
class EvaluateConfig:
    """What is evaluated, and how."""

    checkpoint: str = "runs/unnamed"
    """The folder of a run, or its checkpoint."""
    episodes: int = 20
    """Episodes of CartPole, or sampled responses to each problem."""
    greedy: bool = False
    """Take the likeliest action everywhere, in place of sampling."""
    seed: int = 123
    """Of the environments and of sampling."""
    device: str = "auto"
    """auto: cuda, else mps, else cpu."""
    show: int = 3
    """Responses that are printed."""
    levels: tuple[str, ...] = ()
    """Of arithmetic, whose held-out problems are asked in place of the run's own."""
    test_file: str | None = None
    """JSON lines whose problems are asked in place of the run's own."""

    def __post_init__(self) -> None:
        require_positive_int("episodes", self.episodes)
        require_not_negative("show", self.show)
        if self.levels and self.test_file:
            raise ValueError(
                "levels and test_file each say what is asked: one of them must be left "
                f"out, got {[*self.levels]} and {self.test_file!r}"
            )


def evaluate_program(settings: dict[str, Any], *, evaluate: EvaluateConfig) -> None:
    """Play episodes, or answer held-out problems, with the policy of a checkpoint."""
    device = chosen_device(evaluate.device)
    saved = saved_run(
        evaluate.checkpoint, "reinforce", "ppo-env", "sft", "ppo-lm", "grpo"
    )
    made = json.loads(saved["settings"])
    if "env" in made:
        if evaluate.levels or evaluate.test_file:
            raise ValueError(
                "levels and test_file are for runs on problems, got one of "
                f"{saved['program']}"
            )
        returns = cartpole_returns(saved, made, evaluate, device)
        print(
            f"{len(returns)} episodes: mean return {returns.mean():.1f}, from "
            f"{returns.min():.0f} to {returns.max():.0f}"
        )
    else:
        accuracy, count = answer_problems(saved, made, evaluate, device)
        how = "likeliest response to each"
        if not evaluate.greedy:
            how = f"{evaluate.episodes} sampled responses to each"
        low, high = wilson_interval(accuracy, count)
        print(
            f"{accuracy:.3f} right of the {how} of {count} problems, 95 % interval "
            f"{low:.3f} to {high:.3f} (Wilson's, over problems)"
        )


def cartpole_returns(
    saved: dict[str, Any],
    made: dict[str, Any],
    evaluate: EvaluateConfig,
    device: torch.device,
) -> torch.Tensor:
    """The return of each episode, [episodes]."""
    agent = make_agent(made, device)
    agent.load_state_dict(saved["state"]["learner"]["agent"])
    env = CartPole(evaluate.episodes, seeds=evaluate.seed, device=device)
    generator = torch.Generator(device).manual_seed(evaluate.seed)
    observations = env.reset()
    running = torch.ones(evaluate.episodes, dtype=torch.bool, device=device)
    returns = torch.zeros(evaluate.episodes, device=device)
    with torch.no_grad():
        while running.any():
            policy = agent.policy(observations.unsqueeze(0))
            if evaluate.greedy:
                actions = policy.mode()[0]
            else:
                noise = torch.rand(1, len(running), generator=generator, device=device)
                actions = policy.sample(noise)[0]
            seen = env.step(actions)
            returns += seen.rewards * running
            running = running & ~(seen.terminated | seen.truncated)
            observations = seen.observations
    return returns.cpu()


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a probability of which `share` was seen:

        ( p + z^2 / 2n ± z sqrt( p (1 - p) / n + z^2 / 4n^2 ) ) / (1 + z^2 / n)

    Unlike p ± z sqrt(p (1 - p) / n) it stays within [0, 1], and has a width at 0 and 1.

    Args:
        share: p, of all trials.
        count: n, independent trials.

    Source: Wilson (1927).
    """
    z = 1.959964
    middle = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    whole = 1 + z * z / count
    return max((middle - half) / whole, 0.0), min((middle + half) / whole, 1.0)


def asked_task(task: TaskConfig, evaluate: EvaluateConfig) -> TaskConfig:
    """The run's own task, or what is to be asked in its place, in its alphabet."""
    task = replace(task, alphabet=task.letters, curriculum=0.0)
    if evaluate.levels:
        return replace(task, problems="arithmetic", levels=evaluate.levels)
    if evaluate.test_file:
        file = evaluate.test_file
        return replace(task, problems="files", train_file=file, test_file=file)
    return task


def answer_problems(
    saved: dict[str, Any],
    made: dict[str, Any],
    evaluate: EvaluateConfig,
    device: torch.device,
) -> tuple[float, int]:
    """The share of the problems that are answered rightly, and how many there are;
    some are printed."""
    task = asked_task(task_of(made), evaluate)
    model = TransformerConfig(**made["model"])
    policy = saved_policy(saved, device)
    train, test = make_sources(task, device)
    length = made["algorithm"].get("length") or answer_length(train, test)
    refuse_small_context(task, model, train, test, length)
    generator = torch.Generator(device).manual_seed(evaluate.seed)
    _show(policy, test, length, evaluate, generator)
    if evaluate.greedy:
        return greedy_accuracy(policy, test, length), len(test)
    right = 0.0
    rows = torch.arange(len(test))
    for _ in range(evaluate.episodes):
        seen = policy.generate(test.prompts(rows), length, generator)
        texts = test.texts(seen.tokens, seen.mask)
        golds = [one.gold for one in test.problems]
        right += sum(map(verifier.is_right, texts, golds)) / len(test)
    return right / evaluate.episodes, len(test)


def _show(
    policy: PromptedPolicy,
    test: PromptSource,
    length: int,
    evaluate: EvaluateConfig,
    generator: torch.Generator,
) -> None:
    if evaluate.show == 0:
        return
    prompts = test.prompts(torch.arange(min(evaluate.show, len(test))))
    seen = policy.generate(prompts, length, None if evaluate.greedy else generator)
    for row, text in enumerate(test.texts(seen.tokens, seen.mask)):
        one = test.problems[row]
        print(f"{one.question!r} -> {text!r} (gold {one.gold})")
