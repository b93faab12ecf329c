"""Collecting: what is stored beside what the environment did, on both sides of ends."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from course_lib.algorithms.learner import Learner
from course_lib.algorithms.ppo import PPOConfig, ppo
from course_lib.algorithms.rollout import Sampler, collect_episodes, collect_steps
from course_lib.envs import CartPole, GymnasiumVector
from course_lib.models import ActorCritic
from tests.scripted_env import Scripted

SCRIPTS = [
    [(3, "terminated"), (2, "truncated")],
    [(2, "both"), (4, "terminated")],
    [(1, "terminated")],
    [(5, "truncated")],
]


def sampler_for(env, seeds=(0,)):
    agent = ActorCritic(env.observation_size, num_actions=2, seeds=seeds)
    return Sampler(agent, seeds, env.device)


def story(script, row, steps, actions, start=(0, 0)):
    """What row sees, is paid, reaches, step by step, from the script alone."""
    (episode, time), told = start, []
    for t in range(steps):
        length, kind = script[episode % len(script)]
        over = time + 1 == length
        told.append(
            {
                "observations": [row, episode, time],
                "next_observations": [row, episode, time + 1],
                "rewards": 100.0 * episode + time + 1 + 0.1 * actions[t],
                "terminated": over and kind in ("terminated", "both"),
                "truncated": over and kind in ("truncated", "both"),
            }
        )
        episode, time = (episode + 1, 0) if over else (episode, time + 1)
    return told, (episode, time)


def assert_tells(rollout, told, place, steps):
    for name in told[0]:
        found = getattr(rollout, name)[place][:steps]
        right = torch.tensor([one[name] for one in told])
        torch.testing.assert_close(found, right.to(found.dtype))


def test_a_rollout_holds_the_state_reached_before_any_reset_and_goes_on_after_it():
    env = Scripted(SCRIPTS)
    sampler, observations = sampler_for(env, (0, 1)), env.reset()
    starts = [(0, 0)] * 4
    for steps in (6, 5):  # the second rollout begins in mid-episode
        env.taken.clear()
        rollout, observations = collect_steps(env, sampler, observations, steps)
        assert rollout.mask.all() and rollout.mask.shape == (2, 2, steps)
        assert rollout.observations.shape == (2, 2, steps, 3)
        for row in range(4):
            place = divmod(row, 2)  # the first two rows are the first agent's
            actions = [step[row] for step in env.taken]
            assert rollout.actions[place].tolist() == actions
            told, starts[row] = story(SCRIPTS[row], row, steps, actions, starts[row])
            assert_tells(rollout, told, place, steps)
        assert observations.tolist() == [[i, *starts[i]] for i in range(4)]


def test_whole_episodes_are_masked_behind_their_own_ends():
    env = Scripted(SCRIPTS)
    rollout = collect_episodes(env, sampler_for(env))
    lengths = [3, 2, 1, 5]
    assert rollout.mask.shape == (1, 4, 5)
    for row, length in enumerate(lengths):
        assert rollout.mask[0, row].tolist() == [True] * length + [False] * (5 - length)
        actions = [step[row] for step in env.taken]
        told, _ = story(SCRIPTS[row], row, length, actions)
        assert_tells(rollout, told, (0, row), length)
        last = rollout.terminated | rollout.truncated
        assert last[0, row, length - 1]
    assert env.taken[0] == rollout.actions[0, :, 0].tolist()


def test_whole_episodes_begin_at_a_reset_every_time():
    env = Scripted([[(2, "terminated")], [(3, "truncated")]])
    sampler = sampler_for(env)
    for _ in range(2):
        rollout = collect_episodes(env, sampler)
        assert rollout.observations[0, :, 0, 2].tolist() == [0, 0]
        assert rollout.mask.sum().item() == 5


def test_actions_follow_the_policy_and_each_agent_its_own_random_numbers():
    env = CartPole(6, seeds=0)
    seen = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    together = sampler_for(env, (4, 5, 6))
    drawn = torch.stack([together.actions(seen) for _ in range(20)])  # [20, E]
    agent = ActorCritic(4, num_actions=2, seeds=(5,))
    alone = Sampler(agent, (5,), env.device)
    mine = torch.stack([alone.actions(seen[2:4]) for _ in range(20)])
    assert drawn[:, 2:4].tolist() == mine.tolist()
    assert drawn[:, :2].tolist() != mine.tolist()


def test_a_sure_policy_always_acts_as_it_says():
    env = CartPole(4, seeds=0)
    sampler = sampler_for(env)
    with torch.no_grad():
        sampler.agent.policy_net[-1].bias += torch.tensor([0.0, 50.0])
    assert sampler.actions(env.reset()).tolist() == [1, 1, 1, 1]


def test_the_step_counter_starts_anew_with_a_reset():
    """CASES K56: 3 steps, a reset, then truncated exactly at the 500th."""
    env = CartPole(1, seeds=0)

    def balance(seen):
        return (seen @ torch.tensor([0.1, 0.2, 1.0, 0.3]) > 0).long()

    seen = env.reset()
    for _ in range(3):
        seen = env.step(balance(seen)).observations
    seen = env.reset()
    flags = []
    for _ in range(501):
        transition = env.step(balance(seen))
        assert not transition.terminated.item()
        flags.append(transition.truncated.item())
        seen = transition.observations
    assert flags.index(True) == 499 and sum(flags) == 1


class Pictures(gymnasium.Env):
    """Observations of two axes."""

    observation_space = Box(-1.0, 1.0, (2, 3), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((2, 3), np.float32), {}

    def step(self, action):
        picture = np.arange(6, dtype=np.float32).reshape(2, 3) / 6
        return picture, float(action), False, True, {}


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_observations_of_several_axes_are_laid_out_in_a_row(mode):
    env = GymnasiumVector(SyncVectorEnv([Pictures] * 2, autoreset_mode=mode), seeds=0)
    rollout, _ = collect_steps(env, sampler_for(env), env.reset(), 3)
    assert rollout.next_observations.shape == (1, 2, 3, 6)
    right = (torch.arange(6) / 6).expand(2, 3, 6)
    torch.testing.assert_close(rollout.next_observations[0], right)
    assert not rollout.observations.any()  # each step is the first of its episode
    env = GymnasiumVector(SyncVectorEnv([Pictures] * 2, autoreset_mode=mode), seeds=0)
    config = PPOConfig(total_steps=16, num_steps=8, minibatch_size=8, num_epochs=1)
    assert ppo(env, config).env_steps == [16]


def test_actions_that_are_no_vectors_are_refused_by_name():
    class Matrices(Pictures):
        action_space = Box(-1.0, 1.0, (2, 2), np.float32)

    env = GymnasiumVector(SyncVectorEnv([Matrices]), seeds=0)
    with pytest.raises(ValueError, match=r"actions of one axis, got the shape \(2, 2"):
        Learner(env, PPOConfig())
