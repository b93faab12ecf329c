"""A rollout with both kinds of end, and its advantages by plain loops."""

import torch

from course_lib.algorithms.learner import Learner
from course_lib.algorithms.rollout import collect_steps
from course_lib.envs import CartPole


def learner_and_rollout(config, num_envs=4, num_steps=60):
    env = CartPole(num_envs, seeds=2, max_steps=25)
    learner = Learner(env, config)
    rollout, _ = collect_steps(env, learner.sampler, env.reset(), num_steps)
    assert rollout.terminated.any() and rollout.truncated.any()
    return learner, rollout


def by_hand(learner, rollout, gamma, lam, bootstrap):
    """Advantages and returns [S, B, T] by plain loops in float64."""
    with torch.no_grad():
        values, after = (
            learner.agent.values(x.flatten(1, 2)).view(rollout.rewards.shape).double()
            for x in (rollout.observations, rollout.next_observations)
        )
    advantages = torch.zeros_like(values)
    for s, b in torch.cartesian_prod(*map(torch.arange, values.shape[:2])).tolist():
        running = 0.0
        for t in reversed(range(values.shape[2])):
            place = (s, b, t)
            terminated, truncated = (
                bool(x[place]) for x in (rollout.terminated, rollout.truncated)
            )
            goes_on = not terminated and (bootstrap or not truncated)
            delta = rollout.rewards[place] + gamma * goes_on * after[place]
            delta = delta - values[place]
            running = delta + gamma * lam * running * (not (terminated or truncated))
            advantages[place] = running
    return advantages, advantages + values
