"""Programs that let a language model practise on prompts: PPO and GRPO."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import torch

from course_lib.algorithms import (
    GroupConfig,
    LanguageRun,
    PromptSource,
    RLHFConfig,
    greedy_accuracy,
    learned_score,
    ranks,
    rlhf_group,
    rlhf_ppo,
)
from course_lib.algorithms.responses import ScoreFn
from course_lib.kernels import gae, kl_shaped_rewards
from course_lib.models import PromptedPolicy, Sampling, TransformerConfig
from course_lib.train.report import Phases, cost_report, last
from course_lib.train.session import RunConfig, Session
from course_lib.train.starts import (
    PolicyConfig,
    load_reward_model,
    make_policy,
    weights_digest,
)
from course_lib.train.tasks import (
    TaskConfig,
    make_sources,
    problems_digest,
    response_length,
)

_Algorithm = TypeVar("_Algorithm", RLHFConfig, GroupConfig)


@dataclass(frozen=True)
class StartConfig:
    """Where a run begins, and who judges it."""

    policy: str | None = None
    """The folder of a run of SFT; None: weights from the seed."""
    reward_source: Literal["verifier", "reward_model"] = "verifier"
    """Who scores a response."""
    reward_model: str | None = None
    """The folder of a run of reward-model, for reward_source=reward_model."""

    def __post_init__(self) -> None:
        if self.reward_source == "reward_model" and self.reward_model is None:
            raise ValueError(
                "reward_model must be given with reward_source=reward_model, got None"
            )
        if self.reward_source == "verifier" and self.reward_model is not None:
            raise ValueError(
                "reward_model is only heard with reward_source=reward_model, got "
                f"{self.reward_model!r} with reward_source=verifier"
            )


def ppo_program(
    settings: dict[str, Any],
    *,
    run: RunConfig,
    task: TaskConfig,
    model: TransformerConfig,
    policy: PolicyConfig,
    sampling: Sampling,
    algorithm: RLHFConfig,
    start: StartConfig,
) -> None:
    """Train a transformer by PPO on the verifier or a reward model."""
    algorithm = _own_part(algorithm, run.seed)
    job = _Job(settings, "ppo-lm", run, task, model, policy, sampling, start, algorithm)
    phases = Phases()
    rlhf_ppo(
        job.policy,
        phases.after("score", phases.before("sample", job.score)),
        job.algorithm,
        prompt_fn=job.train,
        rewards_fn=phases.before("reference", kl_shaped_rewards),
        advantage_fn=phases.after("advantages", gae),
        run=job.run,
        callback=phases.after("evaluation", phases.before("update", job.callback)),
        progress=job.session.bar,
    )
    job.finish(phases)


def grpo_program(
    settings: dict[str, Any],
    *,
    run: RunConfig,
    task: TaskConfig,
    model: TransformerConfig,
    policy: PolicyConfig,
    sampling: Sampling,
    algorithm: GroupConfig,
    start: StartConfig,
) -> None:
    """Train a transformer without a critic, responses against their group."""
    algorithm = _own_part(algorithm, run.seed)
    job = _Job(settings, "grpo", run, task, model, policy, sampling, start, algorithm)
    phases = Phases()
    rlhf_group(
        job.policy,
        phases.after("score", phases.before("sample", job.score)),
        job.algorithm,
        prompt_fn=job.train,
        run=job.run,
        callback=phases.after("evaluation", phases.before("update", job.callback)),
        progress=job.session.bar,
    )
    job.finish(phases)


class _Job(Generic[_Algorithm]):
    """What PPO and GRPO on prompts have in common around the algorithm."""

    def __init__(
        self,
        settings: dict[str, Any],
        program: str,
        run: RunConfig,
        task: TaskConfig,
        model: TransformerConfig,
        policy: PolicyConfig,
        sampling: Sampling,
        start: StartConfig,
        algorithm: _Algorithm,
    ) -> None:
        self.session = Session(run, program, settings)
        device = self.session.device
        sources = self.train, self.test = make_sources(task, device)
        given = settings["algorithm"]["length"]
        length = response_length(self.session.say, task, model, sources, given)
        algorithm = replace(algorithm, length=length)
        self.algorithm: _Algorithm = algorithm
        self.policy: PromptedPolicy = make_policy(
            task,
            model,
            policy,
            sampling,
            seed=run.seed,
            device=device,
            start=start.policy,
        )
        self.judges, self.score = judge(start, task, model, self.train, device)
        self.session.depends_on("the task's problems", problems_digest(*sources))
        if start.policy is not None:
            self.session.depends_on("start.policy", weights_digest(self.policy))
        for judging in self.judges.values():
            self.session.depends_on("start.reward_model", weights_digest(judging))
        self.run = LanguageRun(self.policy, algorithm)
        self.session.resume(self.run, algorithm.num_updates)
        accuracy = functools.partial(
            greedy_accuracy, self.run.learner.policy, self.test, length
        )
        before = None
        if self.run.done == 0:
            before = {"accuracy_before": accuracy()}
            self.session.say(
                f"held-out accuracy at the start {before['accuracy_before']:.3f}"
            )
        self.callback = self.session.callback(
            self.run, algorithm.num_updates, lambda: {"accuracy": accuracy()}, before
        )

    def finish(self, phases: Phases) -> None:
        """Say what came of it, and what it cost."""
        run = self.run
        self.session.say(
            f"{run.done} updates, score {run.history.last('score'):.3f}, held-out "
            f"accuracy {last(run.records)}"
        )
        if self.session.writes:
            print(cost_report(run, self.judges, phases), flush=True)


def _own_part(algorithm: _Algorithm, seed: int) -> _Algorithm:
    """The config with its seed, and a process's part of the batch and the minibatch."""
    world, sizes = ranks.world_size(), {}
    for name in ("batch_size", "minibatch_size"):
        size = getattr(algorithm, name)
        if size % world:
            raise ValueError(
                f"algorithm.{name} must divide evenly among {world} processes, got "
                f"{size}"
            )
        sizes[name] = size // world
    return replace(algorithm, seed=seed, **sizes)


def judge(
    start: StartConfig,
    task: TaskConfig,
    model: TransformerConfig,
    train: PromptSource,
    device: torch.device,
) -> tuple[dict[str, torch.nn.Module], ScoreFn]:
    """Models that judge, and the score function."""
    if start.reward_source == "verifier":
        return {}, train.score
    assert start.reward_model is not None
    fitted, scale = load_reward_model(start.reward_model, task, model, device)
    # In the verifier's unit: in nats its returns are so large that the critic's loss
    # drags the trunk along, and the policy forgets what SFT has taught it.
    return {"reward model": fitted}, learned_score(fitted, scale)
