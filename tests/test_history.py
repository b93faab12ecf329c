"""The history of a run, against episodes that were scripted."""

import math

import pytest
import torch

from course_lib.algorithms.history import (
    Episode,
    History,
    explained_variance,
    over_minibatches,
)
from course_lib.algorithms.rollout import Sampler, collect_episodes, collect_steps
from course_lib.models import ActorCritic
from tests.scripted_env import Scripted

SCRIPTS = [
    [(3, "terminated"), (2, "truncated")],
    [(2, "both"), (4, "terminated")],
    [(1, "terminated")],
    [(5, "truncated")],
]


def played(env, sampler, history, pieces):
    observations = env.reset()
    for steps in pieces:
        rollout, observations = collect_steps(env, sampler, observations, steps)
        history.add(rollout)


def sampler_for(env, seeds):
    agent = ActorCritic(env.observation_size, num_actions=2, seeds=seeds)
    return Sampler(agent, seeds, env.device)


def right_episodes(scripts, taken, agents):
    """(agent, its steps so far, return, length) of each episode, by plain loops."""
    rows_each = len(scripts) // agents
    state = [(0, 0, 0.0) for _ in scripts]
    found = []
    for t, actions in enumerate(taken):
        for row, action in enumerate(actions):
            episode, time, total = state[row]
            time, total = time + 1, total + 100.0 * episode + time + 1 + 0.1 * action
            state[row] = (episode, time, total)
            if time == scripts[row][episode % len(scripts[row])][0]:
                agent = row // rows_each
                found.append((agent, (t + 1) * rows_each, total, time))
                state[row] = (episode + 1, 0, 0.0)
    return found


def test_episodes_are_counted_over_the_borders_of_rollouts():
    env = Scripted(SCRIPTS)
    sampler = sampler_for(env, (5, 6))
    history = History((5, 6))
    played(env, sampler, history, [1, 3, 7, 2, 5])
    right = right_episodes(SCRIPTS, env.taken, 2)
    assert len(history.episodes) == len(right) > 25
    for found, (agent, steps, total, length) in zip(
        history.episodes, right, strict=True
    ):
        assert (found.seed, found.env_steps, found.length) == (agent, steps, length)
        assert found.episode_return == pytest.approx(total, rel=1e-6)
    assert history.env_steps == [36, 36]
    assert history.column("env_steps") == [2, 8, 22, 26, 36]
    mine = [total for agent, _, total, _ in right if agent == 1]
    assert history.returns(1) == pytest.approx(mine)


def test_a_record_speaks_of_the_episodes_that_ended_in_its_rollout():
    env = Scripted(SCRIPTS[:2])
    history = History((0,))
    played(env, sampler_for(env, (0,)), history, [1, 2, 3])
    totals = [
        (total, length)
        for _, _, total, length in right_episodes(SCRIPTS[:2], env.taken, 1)
    ]
    assert math.isnan(history.records[0]["episode_return"])
    for update, which in ((1, totals[:2]), (2, totals[2:])):
        for place, name in enumerate(("episode_return", "episode_length")):
            right = sum(one[place] for one in which) / len(which)
            assert history.records[update][name] == pytest.approx(right, rel=1e-6)
    assert history.column("update") == [0, 1, 2]
    assert all(math.isnan(one) for one in history.column("no such number"))
    seconds = history.column("cpu_seconds")
    assert seconds == sorted(seconds) and seconds[0] >= 0


def test_padded_steps_are_nobodys():
    lengths = [3, 2, 1, 5]
    env = Scripted([[(length, "terminated")] for length in lengths])
    history = History((0, 1))
    sampler = sampler_for(env, (0, 1))
    for _ in range(2):
        history.add(collect_episodes(env, sampler))
    assert history.env_steps == [2 * (3 + 2), 2 * (1 + 5)]
    told = [(e.env_steps, e.length) for e in history.episodes if e.seed == 1]
    # After one step of both rows the short one is over, and the long one alone.
    assert told == [(2, 1), (6, 5), (8, 1), (12, 5)]
    long = [e.episode_return for e in history.episodes if e.length == 5]
    for update in range(2):
        pushes = 0.1 * sum(step[3] for step in env.taken[5 * update :][:5])
        # Its own end began episode 1, and the next reset episode 2.
        paid = 5 * 100.0 * (2 * update) + 1 + 2 + 3 + 4 + 5 + pushes
        assert long[update] == pytest.approx(paid, rel=1e-6)
    # And what the short row was paid while it waited is in nobody's return.
    short = [e.episode_return for e in history.episodes if e.length == 1]
    episode = 5 + 1  # five were played in five steps, and the reset began another
    paid = 100.0 * episode + 1 + 0.1 * env.taken[5][2]
    assert short[1] == pytest.approx(paid, rel=1e-6)


def episodes(*returns, seed=0, every=10):
    return [
        Episode(seed, every * (place + 1), float(one), int(one))
        for place, one in enumerate(returns)
    ]


@pytest.mark.parametrize(
    ("returns", "window", "right"),
    [
        ([475] * 3, 3, 30),
        ([0, 475, 475, 475], 3, 40),
        ([500, 450, 475], 3, 30),
        ([500, 450, 474], 3, None),
        ([475, 475], 3, None),
        ([0, 480], 1, 20),
        ([480, 0], 1, 10),
        ([], 1, None),
    ],
)
def test_solved_is_where_the_last_episodes_first_average_the_threshold(
    returns, window, right
):
    history = History((0, 1), episodes=episodes(*returns))
    history.episodes[1:1] = episodes(500, 500, 500, seed=1, every=1)
    assert history.solved_at(475.0, window) == right
    assert history.solved_at(475.0, 3, seed=1) == 3


def test_explained_variance_is_each_critics_own():
    returns = torch.tensor([[1.0, 2.0, 3.0, 4.0], [100.0, 300.0, 200.0, 400.0]])
    perfect, constant = returns[:1], torch.full((1, 4), 7.0)
    assert explained_variance(perfect, perfect).item() == pytest.approx(1.0)
    assert explained_variance(constant, perfect).item() == pytest.approx(0.0)
    # One critic is perfect and one constant: pooled, the second would drown the first.
    both = torch.cat((perfect, constant))
    assert explained_variance(both, returns).item() == pytest.approx(0.5)
    # Errors of variance 1/4 of that of the returns, 5/4.
    off = perfect + torch.tensor([[0.5, -0.5, -0.5, 0.5]])
    assert explained_variance(off, perfect).item() == pytest.approx(1 - 0.25 / 1.25)


def test_explained_variance_leaves_out_padding_and_returns_that_are_all_alike():
    returns = torch.tensor([[1.0, 2.0, 9e9], [3.0, 3.0, 3.0]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    assert explained_variance(returns, returns, mask).item() == pytest.approx(1.0)
    assert explained_variance(returns[1:], returns[1:]).isnan()


def test_over_minibatches_a_maximum_stays_one_and_the_rest_are_averaged():
    seen = [
        {"ratio_max": torch.tensor(top), "entropy": torch.tensor(entropy)}
        for top, entropy in ((1.5, 0.25), (4.0, 0.75), (2.0, 0.5))
    ]
    logged = over_minibatches(seen)
    assert {name: one.item() for name, one in logged.items()} == {
        "ratio_max": 4.0,
        "entropy": 0.5,
    }
