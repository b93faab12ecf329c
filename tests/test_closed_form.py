"""The gradient that was written out is the one that autograd finds."""

import dataclasses

import pytest
import torch

from course_lib.algorithms.batch import Batch
from course_lib.algorithms.closed_form import CLOSED_FORM, closed_form_loss
from course_lib.algorithms.ppo import PPOConfig, policy_objective, ppo, ppo_loss
from course_lib.envs import CartPole
from course_lib.kernels import NaNInputError, policy_gradient_loss
from course_lib.models import ActorCritic

CONFIG = PPOConfig(ent_coef=0.3, vf_coef=0.7)


def agent_and_batch(seeds=(0, 1), actions=3, scale=0.4):
    generator = torch.Generator().manual_seed(9)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    shape = (len(seeds), 50)
    agent = ActorCritic(4, num_actions=actions, seeds=seeds, policy_gain=1.0).double()
    observations = normal(*shape, 4).double()
    chosen = torch.randint(actions, shape, generator=generator)
    with torch.no_grad():
        log_probs = agent.policy(observations).log_probs(chosen)
    old = log_probs + scale * normal(*shape)
    advantages = normal(*shape).double()
    advantages[:, :5] = 0.0
    values, returns = normal(*shape).double(), normal(*shape).double()
    return agent, Batch(observations, chosen, old, values, advantages, returns)


def found(loss_fn, agent, batch, config=CONFIG, **options):
    agent.zero_grad()
    options.setdefault("policy_loss_fn", policy_objective(config, None))
    loss, numbers = loss_fn(agent, batch, config=config, **options)
    loss.backward()
    gradient = torch.cat([one.grad.flatten() for one in agent.parameters()])
    return loss.detach(), gradient, numbers


@pytest.mark.parametrize("clip_eps", [0.0, 0.2, 5.0])
@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_loss_gradient_and_numbers_are_those_of_the_kernels(seeds, clip_eps):
    config = dataclasses.replace(CONFIG, clip_eps=clip_eps)
    agent, batch = agent_and_batch(seeds)
    ours = found(closed_form_loss, agent, batch, config)
    right = found(ppo_loss, agent, batch, config)
    torch.testing.assert_close(ours, right)
    if clip_eps == 0.2:  # something on every branch
        assert 0 < right[2]["clip_frac_active"] < right[2]["clip_frac"] < 1


def test_a_run_is_the_same_run():
    config = PPOConfig(total_steps=1024, num_steps=64, num_epochs=2, seeds=(3, 4))
    plain = ppo(CartPole(8, seeds=0), config)
    fast = ppo(CartPole(8, seeds=0), config, steps=CLOSED_FORM)
    assert [one.length for one in plain.episodes] == [
        one.length for one in fast.episodes
    ]
    for one, other in zip(plain.records, fast.records, strict=True):
        assert one.keys() == other.keys()
        for name in one.keys() - {"cpu_seconds"}:
            assert other[name] == pytest.approx(one[name], abs=1e-4, nan_ok=True), name


def test_what_has_another_gradient_is_refused():
    agent, batch = agent_and_batch()
    for changes, options in (
        ({"value_clip": 0.2}, {}),
        ({}, {"policy_loss_fn": policy_gradient_loss}),
        ({}, {"value_loss_fn": lambda values, returns: None}),
        ({}, {"policy_loss_fn": policy_objective(CONFIG, 1.0)}),
    ):
        config = dataclasses.replace(CONFIG, **changes)
        with pytest.raises(ValueError, match="must be"):
            found(closed_form_loss, agent, batch, config, **options)
    gaussian = ActorCritic(4, action_size=2, seeds=(0, 1)).double()
    with pytest.raises(TypeError, match="choose among actions"):
        found(closed_form_loss, gaussian, batch)


def test_an_action_that_is_none_and_a_batch_that_does_not_fit_are_refused_by_name():
    """The compiled pass looks at no border, so it must not be given any of these."""
    agent, batch = agent_and_batch()
    for action in (3, -1):
        actions = batch.actions.clone()
        actions[1, 7] = action
        with pytest.raises(ValueError, match="token"):
            found(closed_form_loss, agent, dataclasses.replace(batch, actions=actions))
    for name in ("old_log_probs", "advantages", "returns"):
        short = dataclasses.replace(batch, **{name: getattr(batch, name)[:, :9]})
        with pytest.raises(ValueError, match=name):
            found(closed_form_loss, agent, short)


@pytest.mark.parametrize("name", ["observations", "advantages", "returns"])
def test_a_nan_is_named_where_it_came_in(name):
    agent, batch = agent_and_batch()
    getattr(batch, name)[0, 7] = torch.nan
    with pytest.raises(NaNInputError):
        found(closed_form_loss, agent, batch)
