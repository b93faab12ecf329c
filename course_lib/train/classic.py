"""Programs that need no transformer: REINFORCE and PPO on CartPole, RLHF on the toy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from course_lib.algorithms import (
    History,
    LanguageRun,
    PPOConfig,
    ReinforceConfig,
    RLHFConfig,
    ppo,
    reinforce,
    rlhf_ppo,
)
from course_lib.algorithms.history import Record
from course_lib.envs import CartPole, TokenCount
from course_lib.exact import uniform_optimum
from course_lib.models import ActorCritic, GRULanguageModel
from course_lib.train.session import RunConfig, Session


@dataclass(frozen=True)
class EnvConfig:
    """The environments."""

    num_envs: int = 8
    """CartPoles stepped together."""


@dataclass(frozen=True)
class ToyConfig:
    """The tiny language model and its task."""

    vocab_size: int = 8
    """Tokens."""
    target: int = 3
    """The token that is counted: its share is the score."""
    hidden: int = 64
    """Size of the GRU's state."""


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
    _train(
        session,
        lambda callback: reinforce(
            world, algorithm, callback=callback, progress=run.progress
        ),
    )


def ppo_env_program(
    settings: dict[str, Any], *, run: RunConfig, env: EnvConfig, algorithm: PPOConfig
) -> None:
    """Train a policy and a value function on CartPole by PPO."""
    session = Session(run, "ppo-env", settings)
    algorithm = replace(algorithm, seeds=(run.seed,))
    world = CartPole(env.num_envs, seeds=run.seed, device=session.device)
    _train(
        session,
        lambda callback: ppo(
            world, algorithm, callback=callback, progress=run.progress
        ),
    )


def rlhf_toy_program(
    settings: dict[str, Any], *, run: RunConfig, toy: ToyConfig, algorithm: RLHFConfig
) -> None:
    """Train the tiny language model by PPO; the closed form is printed beside it."""
    session = Session(run, "rlhf-toy", settings)
    algorithm = replace(algorithm, seed=run.seed)
    task = TokenCount(toy.vocab_size, algorithm.length, toy.target)
    ref = GRULanguageModel(toy.vocab_size, hidden=toy.hidden, seed=run.seed)
    ref = ref.to(session.device)
    job = LanguageRun(ref, algorithm)
    session.resume(job)
    callback = session.callback(job, algorithm.num_updates)
    history = rlhf_ppo(
        ref, task.score, algorithm, run=job, callback=callback, progress=run.progress
    )
    score, kl = history.last("score"), history.last("kl")
    session.say(f"score {score:.4f}, KL {kl:.4f} nats, mean of the last 10 updates")
    if algorithm.beta > 0:
        best = uniform_optimum(toy.vocab_size, algorithm.length, algorithm.beta)
        session.say(
            f"score {best.score:.4f}, KL {best.kl:.4f} nats in closed form; J* - J = "
            f"{best.objective - (score - algorithm.beta * kl):.4f}"
        )


def make_agent(settings: dict[str, Any], session_device: Any) -> ActorCritic:
    """An agent of the size that a run's settings say, untrained."""
    algorithm = settings["algorithm"]
    options = {
        name: algorithm[name]
        for name in ("shared", "orthogonal", "policy_gain")
        if name in algorithm
    }
    return ActorCritic(
        4, num_actions=2, hidden=tuple(algorithm["hidden"]), **options
    ).to(session_device)


def _train(
    session: Session, train: Callable[[Callable[[int, Record], None]], History]
) -> None:
    """Log each update, and keep the agent when the run is over.

    These runs take seconds, so nothing is kept before: one that was killed begins
    again, and comes to the same numbers.
    """
    if session.saved is not None:
        session.say("is finished already")
        return
    session.begin_log([])
    history = train(lambda _, record: session.log(record))
    assert history.agent is not None
    session.save({"agent": history.agent.state_dict(), "records": history.records})
    last = [one.episode_return for one in history.episodes[-100:]]
    session.say(
        f"{history.env_steps[0]:,} steps, mean return of the last {len(last)} "
        f"episodes {sum(last) / max(len(last), 1):.1f}"
    )
