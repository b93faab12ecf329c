"""`evaluate`: what a checkpoint can do, and `prepare-prompts`: a file of problems."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from course_lib.algorithms.prompts import PromptSource, greedy_accuracy
from course_lib.envs import CartPole, Problem, chosen_device, verifier
from course_lib.envs.problems import MARK
from course_lib.kernels.arguments import (
    require_not_negative,
    require_positive_int,
    require_text,
)
from course_lib.models import (
    PromptedPolicy,
    Sampling,
    TransformerConfig,
)
from course_lib.train.classic import make_agent
from course_lib.train.tasks import (
    PolicyConfig,
    TaskConfig,
    answer_length,
    make_policy,
    make_sources,
    saved_run,
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
    """Take the likeliest action everywhere."""
    seed: int = 123
    """Of the environments and of sampling."""
    device: str = "auto"
    """auto: cuda, else mps, else cpu."""
    show: int = 3
    """Responses that are printed."""

    def __post_init__(self) -> None:
        require_positive_int("episodes", self.episodes)
        require_not_negative("show", self.show)


@dataclass(frozen=True)
class PrepareConfig:
    """Where prepared problems go."""

    out: str = "prompts"
    """The folder for train.jsonl and test.jsonl."""
    fresh: bool = False
    """Write over files that hold something else."""

    def __post_init__(self) -> None:
        require_text("out", self.out)


def evaluate_program(settings: dict[str, Any], *, evaluate: EvaluateConfig) -> None:
    """Play episodes, or answer held-out problems, with the policy of a checkpoint."""
    device = chosen_device(evaluate.device)
    saved = saved_run(
        evaluate.checkpoint, "reinforce", "ppo-env", "sft", "ppo-lm", "grpo"
    )
    made = json.loads(saved["settings"])
    if "env" in made:
        returns = cartpole_returns(saved, made, evaluate, device)
        print(
            f"{len(returns)} episodes: mean return {returns.mean():.1f}, from "
            f"{returns.min():.0f} to {returns.max():.0f}"
        )
    else:
        accuracy = answer_problems(saved, made, evaluate, device)
        print(f"held-out accuracy {accuracy:.3f}")


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


def answer_problems(
    saved: dict[str, Any],
    made: dict[str, Any],
    evaluate: EvaluateConfig,
    device: torch.device,
) -> float:
    """The share of held-out problems that are answered rightly; some are printed."""
    task, model = task_of(made), _config(TransformerConfig, made)
    policy_config = _config(PolicyConfig, made)
    sampling = _config(Sampling, made)
    policy = make_policy(task, model, policy_config, sampling, seed=0, device=device)
    policy.load_state_dict(saved["state"]["learner"]["model"])
    train, test = make_sources(task, device)
    length = made["algorithm"].get("length") or answer_length(train, test)
    generator = torch.Generator(device).manual_seed(evaluate.seed)
    _show(policy, test, length, evaluate, generator)
    if evaluate.greedy:
        return greedy_accuracy(policy, test, length)
    right = 0.0
    rows = torch.arange(len(test))
    for _ in range(evaluate.episodes):
        seen = policy.generate(test.prompts(rows), length, generator)
        texts = test.texts(seen.tokens, seen.mask)
        golds = [one.gold for one in test.problems]
        right += sum(map(verifier.is_right, texts, golds)) / len(test)
    return right / evaluate.episodes


def prepare_prompts_program(
    settings: dict[str, Any], *, task: TaskConfig, prepare: PrepareConfig
) -> None:
    """Write the problems of a task as JSON lines, to read, change and train on."""
    folder = Path(prepare.out)
    sources = make_sources(task, torch.device("cpu"))
    paths = [folder / "train.jsonl", folder / "test.jsonl"]
    problems = [[_marked(one) for one in source.problems] for source in sources]
    contents = ["".join(map(_json_line, some)) for some in problems]
    for path, content in zip(paths, contents, strict=True):
        if path.exists() and not prepare.fresh:
            refuse_another_file(path, content)
    folder.mkdir(parents=True, exist_ok=True)
    for path, content, some in zip(paths, contents, problems, strict=True):
        path.write_text(content, encoding="utf-8", newline="\n")
        print(f"{path}: {len(some)} problems, answers such as {some[0].answer!r}")
    prompt = max(len(one.question) for some in problems for one in some)
    answer = max(len(one.answer) for some in problems for one in some) + 1
    print(
        f"to train on them: --task.problems files --task.train_file {paths[0]} "
        f"--task.test_file {paths[1]}\n"
        f"questions have up to {prompt} tokens and answers, with EOS, up to {answer}: "
        f"model.context must be at least {prompt + answer}, and the alphabet is "
        "printable, for '#'"
    )


def refuse_another_file(path: Path, content: str) -> None:
    """Do not write over what a person may have changed.

    Raises:
        ValueError: the file holds something else.
    """
    if path.read_bytes().replace(b"\r\n", b"\n") != content.encode():
        raise ValueError(
            f"{path} holds something else than would be written; give another folder "
            "by --prepare.out, or --prepare.fresh true to write over it"
        )


def _marked(problem: Problem) -> Problem:
    """With the mark before its answer that a file must have."""
    marked = MARK in problem.answer
    return problem if marked else replace(problem, answer=f"{MARK} {problem.gold}")


def _json_line(problem: Problem) -> str:
    made = {"question": problem.question, "answer": problem.answer}
    return json.dumps(made, ensure_ascii=False) + "\n"


_GROUPS = {
    TransformerConfig: "model",
    PolicyConfig: "policy",
    Sampling: "sampling",
}


def _config(kind: Any, made: dict[str, Any]) -> Any:
    """A dataclass of the settings that a run was made with."""
    return kind(**made.get(_GROUPS[kind], {}))


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
