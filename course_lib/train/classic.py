"""Programs that need no transformer: REINFORCE and PPO on CartPole, RLHF on the toy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from course_lib.algorithms import (
    AgentRun,
    History,
    LanguageRun,
    PPOConfig,
    ReinforceConfig,
    RLHFConfig,
    ppo,
    reinforce,
    rlhf_ppo,
)
from course_lib.algorithms.agent_run import AGENT_OPTIONS
from course_lib.algorithms.learner import count_episode_updates, count_updates
from course_lib.envs import CartPole, TokenCount
from course_lib.exact import uniform_optimum
from course_lib.kernels.arguments import require_fields, require_positive_int
from course_lib.models import (
    ActorCritic,
    GRULanguageModel,
    LanguagePolicy,
    PromptedPolicy,
    Transformer,
    TransformerConfig,
)
from course_lib.train.session import RunConfig, Session


@dataclass(frozen=True)
class EnvConfig:
    """The environments."""

    num_envs: int = 8
    """CartPoles stepped together."""

    def __post_init__(self) -> None:
        require_positive_int("num_envs", self.num_envs)


@dataclass(frozen=True)
class ToyConfig:
    """The tiny language model and its task."""

    vocab_size: int = 8
    """Tokens."""
    target: int = 3
    """The token that is counted: its share is the score."""
    trunk: Literal["gru", "transformer"] = "gru"
    """What reads the tokens; the transformer has two layers of four heads."""
    hidden: int = 64
    """Size of its state."""

    def __post_init__(self) -> None:
        require_fields(self, require_positive_int, "vocab_size", "hidden")


def reinforce_program(
    settings: dict[str, Any],
    *,
    run: RunConfig,
    env: EnvConfig,
    algorithm: ReinforceConfig,
) -> None:
    """Train a policy on CartPole by REINFORCE, with or without a baseline."""
    session = Session(run, "reinforce", settings)
    algorithm = replace(algorithm, seeds=(run.seed,))
    world = CartPole(env.num_envs, seeds=run.seed, device=session.device)
    job = AgentRun(world, algorithm)
    total = count_episode_updates(world, algorithm)
    session.resume(job, total)
    callback = session.callback(job, total)
    reinforce(world, algorithm, run=job, callback=callback, progress=session.bar)
    _say_returns(session, job.history)


def ppo_env_program(
    settings: dict[str, Any], *, run: RunConfig, env: EnvConfig, algorithm: PPOConfig
) -> None:
    """Train a policy and a value function on CartPole by PPO."""
    session = Session(run, "ppo-env", settings)
    algorithm = replace(algorithm, seeds=(run.seed,))
    world = CartPole(env.num_envs, seeds=run.seed, device=session.device)
    job = AgentRun(world, algorithm)
    total = count_updates(world, algorithm)
    session.resume(job, total)
    callback = session.callback(job, total)
    ppo(world, algorithm, run=job, callback=callback, progress=session.bar)
    _say_returns(session, job.history)


def rlhf_toy_program(
    settings: dict[str, Any], *, run: RunConfig, toy: ToyConfig, algorithm: RLHFConfig
) -> None:
    """Train the tiny language model by PPO; the closed form is printed beside it."""
    session = Session(run, "rlhf-toy", settings)
    algorithm = replace(algorithm, seed=run.seed)
    task = TokenCount(toy.vocab_size, algorithm.length, toy.target)
    ref = _toy_model(toy, algorithm.length, run.seed).to(session.device)
    job = LanguageRun(ref, algorithm)
    session.resume(job, algorithm.num_updates)
    callback = session.callback(job, algorithm.num_updates)
    history = rlhf_ppo(
        ref, task.score, algorithm, run=job, callback=callback, progress=session.bar
    )
    score, kl = history.last("score"), history.last("kl")
    session.say(f"score {score:.4f}, KL {kl:.4f} nats, mean of the last 10 updates")
    if algorithm.beta > 0:
        best = uniform_optimum(toy.vocab_size, algorithm.length, algorithm.beta)
        session.say(
            f"score {best.score:.4f}, KL {best.kl:.4f} nats in closed form; J* - J = "
            f"{best.objective - (score - algorithm.beta * kl):.4f}"
        )


def _toy_model(toy: ToyConfig, length: int, seed: int) -> LanguagePolicy:
    """A model that says every token with equal chance."""
    if toy.trunk == "gru":
        return GRULanguageModel(toy.vocab_size, hidden=toy.hidden, seed=seed)
    size = TransformerConfig(length + 1, toy.hidden, num_layers=2, num_heads=4)
    trunk = Transformer(toy.vocab_size, size, seed=seed, uniform=True)
    return PromptedPolicy(trunk, eos_token=None)


def make_agent(settings: dict[str, Any], session_device: Any) -> ActorCritic:
    """An agent of the size that a run's settings say, untrained."""
    algorithm = settings["algorithm"]
    options = {name: algorithm[name] for name in AGENT_OPTIONS if name in algorithm}
    return ActorCritic(
        4, num_actions=2, hidden=tuple(algorithm["hidden"]), **options
    ).to(session_device)


def _say_returns(session: Session, history: History) -> None:
    last = [one.episode_return for one in history.episodes[-100:]]
    session.say(
        f"{history.env_steps[0]:,} steps, mean return of the last {len(last)} "
        f"episodes {sum(last) / max(len(last), 1):.1f}"
    )
