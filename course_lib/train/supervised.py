"""Programs that fit a language model to what is given: SFT and a reward model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from course_lib.algorithms import (
    RewardModelConfig,
    SFTConfig,
    SupervisedRun,
    greedy_accuracy,
    preference_accuracy,
    sample_pairs,
    sft,
    train_reward_model,
)
from course_lib.algorithms.language_learner import ModelLearner
from course_lib.kernels.arguments import (
    require_fraction,
    require_positive,
    require_positive_int,
)
from course_lib.models import PromptedRewardModel, Sampling, TransformerConfig
from course_lib.models.sampling import UNCHANGED
from course_lib.train.report import last
from course_lib.train.session import RunConfig, Session
from course_lib.train.starts import PolicyConfig, make_policy, weights_digest
from course_lib.train.tasks import (
    TaskConfig,
    answer_length,
    make_sources,
    problems_digest,
    refuse_small_context,
    response_length,
)


@dataclass(frozen=True)
class StopConfig:
    """When enough has been learnt."""

    accuracy: float = 1.0
    """Stop at this accuracy on what is held out: of sft the greedy one on problems, of
    which below 1 something is left for reinforcement learning to do; of reward-model
    that on comparisons."""

    def __post_init__(self) -> None:
        require_fraction("accuracy", self.accuracy)


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
    session.say(f"{fit.done} epochs, held-out accuracy {last(fit.records)}")


def reward_model_program(
    settings: dict[str, Any],
    *,
    run: RunConfig,
    task: TaskConfig,
    model: TransformerConfig,
    sampling: Sampling,
    algorithm: RewardModelConfig,
    pairs: PairsConfig,
    stop: StopConfig,
) -> None:
    """Fit a reward model to comparisons that the verifier, as a noisy judge, makes."""
    session = Session(run, "reward-model", settings, "epochs")
    train, test = make_sources(task, session.device)
    length = response_length(session.say, task, model, (train, test), pairs.length)
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
        batch_size=2048,  # some 200 MB
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

    def evaluate() -> dict[str, float]:
        accuracy = preference_accuracy(fitted, held_out)
        fit.stopped = accuracy >= stop.accuracy
        return {"held_out_accuracy": accuracy}

    train_reward_model(
        policy,
        learnt,
        algorithm,
        run=fit,
        callback=session.callback(fit, algorithm.num_epochs, evaluate),
        progress=session.bar,
    )
    accuracy = last(fit.records, "held_out_accuracy")
    session.say(
        f"{fit.done} epochs on {len(learnt)} pairs, accuracy on {len(held_out)} others "
        f"{accuracy}"
    )
