"""Programs on language models: SFT, a reward model, PPO and GRPO on prompts."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import torch

from course_lib.algorithms import (
    GroupConfig,
    LanguageRun,
    PromptSource,
    RewardModelConfig,
    RLHFConfig,
    SFTConfig,
    SupervisedRun,
    greedy_accuracy,
    learned_score,
    preference_accuracy,
    ranks,
    rlhf_group,
    rlhf_ppo,
    sample_pairs,
    sft,
    train_reward_model,
)
from course_lib.algorithms.language_learner import ModelLearner
from course_lib.algorithms.responses import ScoreFn
from course_lib.kernels import gae, kl_shaped_rewards
from course_lib.kernels.arguments import (
    require_fraction,
    require_positive,
    require_positive_int,
)
from course_lib.models import (
    PromptedPolicy,
    PromptedRewardModel,
    Sampling,
    TransformerConfig,
)
from course_lib.models.sampling import UNCHANGED
from course_lib.train.report import Phases, cost_report
from course_lib.train.session import RunConfig, Session
from course_lib.train.tasks import (
    PolicyConfig,
    TaskConfig,
    answer_length,
    load_reward_model,
    make_policy,
    make_sources,
    problems_digest,
    refuse_small_context,
    weights_digest,
)

_Algorithm = TypeVar("_Algorithm", RLHFConfig, GroupConfig)


@dataclass(frozen=True)
class StopConfig:
    """When supervised fine-tuning has taught enough."""

    accuracy: float = 1.0
    """Stop at this greedy accuracy on held-out problems: below 1 something is left for
    reinforcement learning to do."""

    def __post_init__(self) -> None:
        require_fraction("accuracy", self.accuracy)


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


@dataclass(frozen=True)
class PairsConfig:
    """The comparisons that a reward model is fitted to."""

    num_pairs: int = 4096
    """Pairs that are drawn; those of every tenth problem are held out."""
    ties: bool = True
    """Keep pairs of equal rewards, which the judge decides by a coin's toss."""
    scale: float = 5.0
    """Nats of log-odds for one unit of the verifier's reward: how sure the judge is."""
    length: int | None = None
    """The most tokens of a response; None: those of the longest written answer."""
    policy: str | None = None
    """The folder of the run whose policy writes the responses."""

    def __post_init__(self) -> None:
        require_positive_int("num_pairs", self.num_pairs)
        require_positive("scale", self.scale)
        if self.length is not None:
            require_positive_int("length", self.length)


def sft_program(
    settings: dict[str, Any],
    *,
    run: RunConfig,
    task: TaskConfig,
    model: TransformerConfig,
    algorithm: SFTConfig,
    stop: StopConfig,
) -> None:
    """Fine-tune a transformer on written answers, up to an accuracy."""
    session = Session(run, "sft", settings, "epochs")
    train, test = make_sources(task, session.device)
    length = answer_length(train, test)
    refuse_small_context(task, model, train, test, length)
    session.depends_on("the task's problems", problems_digest(train, test))
    policy = make_policy(
        task, model, PolicyConfig(), UNCHANGED, seed=run.seed, device=session.device
    )
    algorithm = replace(algorithm, seed=run.seed)
    fit = SupervisedRun(ModelLearner(policy, algorithm))
    session.resume(fit, algorithm.num_epochs)

    def evaluate() -> dict[str, float]:
        accuracy = greedy_accuracy(policy, test, length)
        fit.stopped = accuracy >= stop.accuracy
        return {"accuracy": accuracy}

    sft(
        policy,
        train.demonstrations(),
        algorithm,
        run=fit,
        callback=session.callback(fit, algorithm.num_epochs, evaluate),
        progress=session.bar,
    )
    session.say(f"{fit.done} epochs, held-out accuracy {_last(fit.records)}")


def reward_model_program(
    settings: dict[str, Any],
    *,
    run: RunConfig,
    task: TaskConfig,
    model: TransformerConfig,
    sampling: Sampling,
    algorithm: RewardModelConfig,
    pairs: PairsConfig,
) -> None:
    """Fit a reward model to comparisons that the verifier, as a noisy judge, makes."""
    session = Session(run, "reward-model", settings, "epochs")
    train, test = make_sources(task, session.device)
    length = _response_length(session, task, model, (train, test), pairs.length)
    policy = make_policy(
        task,
        model,
        PolicyConfig(),
        sampling,
        seed=run.seed,
        device=session.device,
        start=pairs.policy,
    )
    session.depends_on("the task's problems", problems_digest(train, test))
    if pairs.policy is not None:
        session.depends_on("pairs.policy", weights_digest(policy))
    algorithm = replace(algorithm, seed=run.seed)
    generator = torch.Generator(session.device).manual_seed(run.seed)
    count = pairs.num_pairs
    compared = sample_pairs(
        policy,
        train.score,
        count,
        length,
        scale=pairs.scale,
        generator=generator,
        prompts=train(count, 1.0, generator),
        ties=pairs.ties,
    )
    # By their problems: what a policy answers often is drawn often, and a pair that was
    # learnt would be remembered where it should be judged.
    assert compared.prompts is not None
    tested = compared.prompts.rows % 10 == 0
    learnt, held_out = compared[~tested], compared[tested]
    if not len(learnt) or not len(held_out):
        raise ValueError(
            "pairs.num_pairs must leave pairs to learn from and others to test with, "
            f"got {len(learnt)} and {len(held_out)} of {count}"
        )
    fitted = PromptedRewardModel(policy)
    fit = SupervisedRun(ModelLearner(fitted, algorithm))
    session.resume(fit, algorithm.num_epochs)
    train_reward_model(
        policy,
        learnt,
        algorithm,
        run=fit,
        callback=session.callback(
            fit,
            algorithm.num_epochs,
            lambda: {"held_out_accuracy": preference_accuracy(fitted, held_out)},
        ),
        progress=session.bar,
    )
    accuracy = _last(fit.records, "held_out_accuracy")
    session.say(
        f"{fit.done} epochs on {len(learnt)} pairs, accuracy on {len(held_out)} others "
        f"{accuracy}"
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
        length = _response_length(self.session, task, model, sources, given)
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
            f"accuracy {_last(run.records)}"
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


def _response_length(
    session: Session,
    task: TaskConfig,
    model: TransformerConfig,
    sources: tuple[PromptSource, PromptSource],
    given: int | None,
) -> int:
    """The length that is given, or that of the longest written answer."""
    longest = answer_length(*sources)
    length = longest if given is None else given
    refuse_small_context(task, model, *sources, length)
    if length < longest:
        session.say(
            f"a response may have {length} tokens, and the longest written answer has "
            f"{longest} with EOS: one that is cut off is right only by luck"
        )
    return length


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


def _last(records: list[dict[str, float]], name: str = "accuracy") -> str:
    seen = [one[name] for one in records if name in one]
    return f"{seen[-1]:.3f}" if seen else "not measured"
