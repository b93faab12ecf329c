"""A small random MDP in which every episode lasts as many steps as it has layers."""

import torch

from course_lib.algorithms.learner import Learner
from course_lib.envs.finite import FiniteMDP
from course_lib.envs.tabular import Tabular

LAYERS, WIDTH, ACTIONS = 3, 2, 3
STATES = LAYERS * WIDTH + 1


def layered(seed: int = 0) -> FiniteMDP:
    """From each state of a layer to those of the next by chance; the end is last."""
    generator = torch.Generator().manual_seed(seed)
    transition = torch.zeros(STATES, ACTIONS, STATES).double()
    for layer in range(LAYERS):
        here = slice(WIDTH * layer, WIDTH * (layer + 1))
        there = slice(WIDTH * (layer + 1), min(WIDTH * (layer + 2), STATES))
        size = (WIDTH, ACTIONS, there.stop - there.start)
        logits = torch.randn(size, generator=generator).double()
        transition[here, :, there] = logits.softmax(-1)
    transition[-1, :, -1] = 1.0
    rewards = torch.randn(STATES, ACTIONS, STATES, generator=generator).double()
    start = torch.zeros(STATES).double()
    start[:WIDTH] = torch.tensor([0.3, 0.7]).double()
    return FiniteMDP(transition, rewards, torch.arange(STATES) == STATES - 1, start)


def random_logits(seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(STATES, ACTIONS, generator=generator).double()


def tabular_learner(config, num_envs, *, logits=None, values=None, seed=0):
    """A learner without hidden layers on one-hot states is a table; and its env.

    The config has hidden=(). With a learning rate of 0 an update leaves the table as
    it is, and its gradient behind.
    """
    generator = torch.Generator().manual_seed(seed)
    env = Tabular(layered(), num_envs, generator=generator)
    learner = Learner(env, config)
    with torch.no_grad():
        for one in learner.agent.parameters():
            one.zero_()
        if logits is not None:
            learner.agent.policy_net[0].weight.copy_(logits)
        if values is not None:
            learner.agent.value_net[0].weight.copy_(values.view(-1, 1))
    return learner, env


def policy_slopes(learner: Learner) -> torch.Tensor:
    """The gradient that the last update left, [S, A] float64."""
    return learner.agent.policy_net[0].weight.grad[0].double().clone()


def agreement(estimates: list[torch.Tensor], exact: torch.Tensor) -> float:
    """The largest distance of the mean from what is exact, in standard errors."""
    stacked = torch.stack(estimates)
    error = stacked.std(0) / len(estimates) ** 0.5
    distance = (stacked.mean(0) - exact).abs()
    return float(torch.where(distance < 1e-9, 0.0, distance / error).max())
