"""Runs on environments that are put down and taken up again."""

import io

import pytest
import torch

from course_lib.algorithms import (
    ActorCriticConfig,
    AgentRun,
    PPOConfig,
    ReinforceConfig,
    TRPOConfig,
    actor_critic,
    ppo,
    reinforce,
    trpo,
)
from course_lib.envs import CartPole, Tabular, random_walk

STEPS = {"num_steps": 24, "total_steps": 24 * 6 * 2}
CASES = {
    "reinforce": (reinforce, ReinforceConfig(num_episodes=12, baseline="value")),
    "actor-critic": (actor_critic, ActorCriticConfig(**STEPS)),
    "trpo": (trpo, TRPOConfig(**STEPS, minibatch_size=24)),
    "ppo": (ppo, PPOConfig(**STEPS, minibatch_size=24, num_epochs=2)),
    "ppo with a penalty, one trunk": (
        ppo,
        PPOConfig(
            **STEPS, minibatch_size=24, penalty=1.0, penalty_target=1e-3, shared=True
        ),
    ),
}


class Stopped(Exception):
    """Stands for whatever ends a process."""


def on_disk(state):
    """As it comes back from a file, by a reader that executes nothing."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def without_time(history):
    return [
        {k: repr(v) for k, v in one.items() if k != "cpu_seconds"}
        for one in history.records
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_taken_up_elsewhere_ends_as_one_that_was_not_put_down(case):
    """In another environment and another agent, after the second of six updates."""
    train, config = CASES[case]
    whole = train(CartPole(2, seeds=5), config)

    first = AgentRun(CartPole(2, seeds=5), config)
    kept = []

    def stop(number, record):
        if number == 1:
            kept.append(on_disk(first.state_dict()))
        if number == 2:  # what comes after the checkpoint is lost
            raise Stopped

    with pytest.raises(Stopped):
        train(first.env, config, run=first, callback=stop)
    second = AgentRun(CartPole(2, seeds=99), config)
    second.load_state_dict(kept[0])
    assert second.done == 2
    again = train(second.env, config, run=second)

    assert without_time(again) == without_time(whole) and len(whole.records) == 6
    assert again.episodes == whole.episodes and len(whole.episodes) > 4
    assert again.env_steps == whole.env_steps
    for ours, theirs in zip(
        again.agent.parameters(), whole.agent.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_a_run_that_is_over_does_nothing_more():
    train, config = CASES["ppo"]
    env = CartPole(2, seeds=5)
    run = AgentRun(env, config)
    train(env, config, run=run)
    before = on_disk(run.state_dict())
    history = train(env, config, run=run)
    assert history.agent is run.learner.agent and len(history.records) == 6
    assert on_disk(run.state_dict())["env"]["clock"] == before["env"]["clock"]


def test_the_clock_goes_on_from_where_it_was():
    train, config = CASES["ppo"]
    run = AgentRun(CartPole(2, seeds=5), config)
    train(run.env, config, run=run)
    state = on_disk(run.state_dict())
    state["history"]["records"] = state["history"]["records"][:5]
    state["history"]["records"][-1]["cpu_seconds"] = 1000.0
    later = AgentRun(CartPole(2, seeds=5), config)
    later.load_state_dict(state)
    train(later.env, config, run=later)
    assert 1000 < later.records[-1]["cpu_seconds"] < 1100


def test_an_environment_that_cannot_say_where_it_stands_is_named():
    env = Tabular(random_walk(5), 2, generator=torch.Generator().manual_seed(0))
    run = AgentRun(env, PPOConfig())
    with pytest.raises(TypeError, match="and Tabular has none"):
        run.state_dict()


def test_cartpoles_go_on_in_their_episodes_and_in_their_streams_of_starts():
    one, other = CartPole(3, seeds=1, max_steps=20), CartPole(3, seeds=2, max_steps=20)
    one.reset()
    pushes = torch.randint(2, (60, 3), generator=torch.Generator().manual_seed(0))
    for actions in pushes[:25]:
        one.step(actions)
    other.load_state_dict(on_disk(one.state_dict()))
    ended = 0
    for actions in pushes[25:]:
        seen, expected = other.step(actions), one.step(actions)
        assert all(map(torch.equal, seen, expected))
        ended += int(seen.truncated.sum() + seen.terminated.sum())
    assert ended > 3
    with pytest.raises(ValueError, match="streams must have shape"):
        CartPole(2, seeds=0).load_state_dict(one.state_dict())
    fresh = CartPole(3, seeds=4)
    fresh.load_state_dict(CartPole(3, seeds=1).state_dict())
    assert torch.equal(fresh.reset(), CartPole(3, seeds=1).reset())
