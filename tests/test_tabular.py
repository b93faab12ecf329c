"""A finite MDP as a batch of environments: frequencies against its own tables."""

import pytest
import torch

from course_lib.algorithms.learner import Learner
from course_lib.algorithms.reinforce import ReinforceConfig
from course_lib.algorithms.rollout import collect_episodes, collect_steps
from course_lib.envs.finite import random_walk
from course_lib.envs.tabular import Tabular
from course_lib.exact.mdp import state_values, visitation
from course_lib.exact.policy_gradient import softmax_policy
from tests.layered_mdp import STATES, layered


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def assert_within(shares, chances, count):
    """Four standard errors of a share."""
    error = (chances * (1 - chances) / count).sqrt()
    assert ((shares - chances).abs() <= 4 * error + 1e-12).all()


def test_starts_moves_and_rewards_are_those_of_the_tables():
    mdp, count = layered(), 20_000
    env = Tabular(mdp, count, generator=generator())
    before = env.reset().argmax(-1)
    starts = torch.bincount(before, minlength=STATES) / count
    assert_within(starts.double(), mdp.start, count)
    for _ in range(2):
        actions = torch.randint(3, (count,), generator=generator(1))
        transition = env.step(actions)
        reached = transition.next_observations.argmax(-1)
        torch.testing.assert_close(
            transition.rewards, mdp.rewards[before, actions, reached].float()
        )
        for state in before.unique():
            for action in range(3):
                here = (before == state) & (actions == action)
                moves = torch.bincount(reached[here], minlength=STATES) / here.sum()
                chances = mdp.transition[state, action]
                assert_within(moves.double(), chances, int(here.sum()))
        before = reached


def test_an_end_shows_the_terminal_state_and_goes_on_from_a_start():
    env = Tabular(layered(), 500, generator=generator())
    env.reset()
    for step in range(1, 7):
        transition = env.step(torch.zeros(500, dtype=torch.int64))
        over = step % 3 == 0
        assert transition.terminated.tolist() == [over] * 500
        assert not transition.truncated.any()
        reached = transition.next_observations.argmax(-1)
        seen = transition.observations.argmax(-1)
        if over:
            assert (reached == STATES - 1).all() and (seen < 2).all()
        else:
            assert torch.equal(reached, seen)


def test_an_episode_is_truncated_at_its_own_limit():
    env = Tabular(random_walk(5), 1, generator=generator(), max_steps=4)
    env.reset()
    right_and_left = [1, 0, 1, 0, 1, 0, 1]
    flags = [env.step(torch.tensor([a])) for a in right_and_left]
    assert [one.truncated.item() for one in flags] == [False, False, False, True] + [
        False
    ] * 3
    assert not any(one.terminated.item() for one in flags)
    env.reset()  # the count begins anew
    flags = [env.step(torch.tensor([a])).truncated.item() for a in right_and_left]
    assert flags.index(True) == 3


def test_mean_returns_and_visits_are_the_exact_ones():
    mdp, count = layered(), 20_000
    env = Tabular(mdp, count, generator=generator(3))
    learner = Learner(env, ReinforceConfig(hidden=()))
    logits = torch.randn(STATES, 3, generator=generator(4))
    with torch.no_grad():
        learner.agent.policy_net[0].weight.copy_(logits)
    rollout = collect_episodes(env, learner.sampler)
    policy = softmax_policy(logits)
    returns = rollout.rewards[0].sum(-1).double()
    exact = float(mdp.start @ state_values(mdp, policy, 1.0))
    assert abs(float(returns.mean()) - exact) < 4 * float(returns.std()) / count**0.5
    visits = rollout.observations[0].sum(1).mean(0).double()
    assert_within(visits, visitation(mdp, policy), count)


def test_the_same_generator_plays_the_same_game():
    games = []
    for seed in (0, 0, 1):
        env = Tabular(layered(), 50, generator=generator(seed))
        learner = Learner(env, ReinforceConfig())
        rollout, _ = collect_steps(env, learner.sampler, env.reset(), 5)
        games.append(rollout.rewards)
    assert torch.equal(games[0], games[1])
    assert not torch.equal(games[0], games[2])


@pytest.mark.parametrize(
    ("actions", "kind", "words"),
    [
        (torch.zeros(3, dtype=torch.int64), ValueError, "must have shape"),
        (torch.tensor([0, 3]), ValueError, r"lie in 0\.\.2, got values from 0 to 3"),
        (torch.tensor([-1, 0]), ValueError, r"lie in 0\.\.2"),
        (torch.zeros(2), TypeError, "int64"),
        ([0, 1], TypeError, "actions must be a torch.Tensor"),
    ],
)
def test_actions_that_are_none_are_refused(actions, kind, words):
    env = Tabular(layered(), 2, generator=generator())
    with pytest.raises(kind, match=words):
        env.step(actions)


@pytest.mark.parametrize("counts", [{"num_envs": 0}, {"num_envs": 1, "max_steps": 0}])
def test_counts_below_one_are_refused(counts):
    with pytest.raises(ValueError, match="must be at least 1"):
        Tabular(layered(), generator=generator(), **counts)
