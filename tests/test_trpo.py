"""TRPO: its step against the exact natural gradient, and its promises kept."""

import copy
import dataclasses

import pytest
import torch
from torch import distributions

from course_lib.algorithms.batch import Batch, make_batch
from course_lib.algorithms.learner import Learner
from course_lib.algorithms.rollout import collect_steps
from course_lib.algorithms.trpo import TRPOConfig, trpo, update_critic, update_policy
from course_lib.envs import CartPole
from course_lib.exact.mdp import state_values, visitation
from course_lib.exact.policy_gradient import (
    fisher_matrix,
    policy_gradient,
    softmax_policy,
)
from tests.layered_mdp import (
    ACTIONS,
    LAYERS,
    STATES,
    layered,
    random_logits,
    tabular_learner,
)


def test_a_step_is_the_exact_natural_gradient_to_the_border_of_the_trust_region():
    """From 60,000 episodes; the table's parameters are weights and a bias over them."""
    mdp, logits = layered(), random_logits()
    policy = softmax_policy(logits)
    config = TRPOConfig(
        gamma=1.0,
        lam=1.0,
        max_kl=1e-4,
        cg_iterations=30,
        normalize_advantages="none",
        hidden=(),
        num_steps=LAYERS,
    )
    values = state_values(mdp, policy, 1.0)
    learner, env = tabular_learner(config, 60_000, logits=logits, values=values)
    rollout, _ = collect_steps(env, learner.sampler, env.reset(), LAYERS)
    numbers = update_policy(learner, make_batch(learner, rollout, config), config)
    assert numbers["step_fraction"] == 1
    layer = learner.agent.policy_net[0]
    moved = (layer.weight - logits + layer.bias)[0].detach().double()

    into_logits = torch.cat(
        (torch.eye(STATES * ACTIONS), torch.eye(ACTIONS).repeat(STATES, 1)), 1
    ).double()
    gradient = into_logits.T @ (policy_gradient(mdp, logits, 1.0) / LAYERS).flatten()
    shares = visitation(mdp, policy) / LAYERS
    fisher = into_logits.T @ fisher_matrix(logits, shares) @ into_logits
    damped = fisher + config.damping * torch.eye(len(fisher)).double()
    direction = torch.linalg.solve(damped, gradient)
    length = (2 * config.max_kl / (direction @ damped @ direction)).sqrt()
    right = (length * into_logits @ direction).view(STATES, ACTIONS)
    assert (moved - right).norm() / right.norm() < 0.05


def gaussian_batch(learner, size=400):
    """States, actions and advantages of two agents with continuous actions."""
    generator = torch.Generator().manual_seed(0)
    seen = torch.randn(2, size, 3, generator=generator)
    with torch.no_grad():
        policy = learner.agent.policy(seen)
        actions = policy.sample(torch.randn(2, size, 2, generator=generator))
        log_probs, values = policy.log_probs(actions), learner.agent.values(seen)
    # Far actions are good: this can be had by widening the distribution.
    advantages = (actions - policy.mean).square().sum(-1) - 2
    return Batch(seen, actions, log_probs, values, advantages, advantages)


class TwoNumbers:
    """Only what a Learner asks of an environment."""

    num_envs, observation_size = 2, 3
    device, action_shape = torch.device("cpu"), (2,)

    @property
    def num_actions(self):
        raise TypeError("continuous")


def test_the_kl_and_the_gain_of_an_accepted_step_are_as_told_also_for_gaussians():
    config = TRPOConfig(seeds=(0, 1))
    learner = Learner(TwoNumbers(), config)
    batch = gaussian_batch(learner)

    def normal(agent):
        mean = agent.policy_net(batch.observations)
        spread = agent.log_std.exp().expand_as(mean)
        return distributions.Independent(distributions.Normal(mean, spread), 1)

    old = copy.deepcopy(learner.agent)
    numbers = update_policy(learner, batch, config)
    with torch.no_grad():
        before, after = normal(old), normal(learner.agent)
        kl = distributions.kl_divergence(before, after).mean(-1)
        ratio = (after.log_prob(batch.actions) - before.log_prob(batch.actions)).exp()
        gain = ((ratio - 1) * batch.advantages).mean(-1)
    assert (kl <= config.max_kl).all() and (kl > 0.3 * config.max_kl).all()
    assert (gain > 0).all()
    assert (learner.agent.log_std - old.log_std > 0.01).all()  # it did widen
    assert numbers["kl"].item() == pytest.approx(kl.mean().item(), rel=1e-3)
    assert numbers["kl_max"].item() == pytest.approx(kl.max().item(), rel=1e-3)
    assert numbers["surrogate_gain"].item() == pytest.approx(
        gain.mean().item(), rel=0.01
    )


@pytest.mark.parametrize("reason", ["nothing to gain", "too far"])
def test_a_step_that_is_given_up_leaves_the_policy_bit_for_bit(reason):
    config = TRPOConfig(seeds=(0, 1))
    learner = Learner(TwoNumbers(), config)
    batch = gaussian_batch(learner)
    if reason == "nothing to gain":
        batch = dataclasses.replace(batch, advantages=0 * batch.advantages)
    else:  # the quadratic model underrates the KL of a narrower distribution
        batch = dataclasses.replace(batch, advantages=-batch.advantages)
        config = dataclasses.replace(config, max_kl=0.5, backtracks=0, damping=0.0)
    before = {k: v.clone() for k, v in learner.agent.state_dict().items()}
    numbers = update_policy(learner, batch, config)
    assert numbers["step_fraction"] == 0 and numbers["surrogate_gain"] == 0
    for name, value in learner.agent.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_policys_step_leaves_the_critic_alone_and_the_critics_the_policy():
    config = TRPOConfig(seeds=(0, 1))
    learner = Learner(TwoNumbers(), config)
    batch = gaussian_batch(learner)
    for step, moves, stays in (
        (update_policy, "policy", "value"),
        (update_critic, "value", "policy"),
    ):
        before = {k: v.clone() for k, v in learner.agent.state_dict().items()}
        step(learner, batch, config)
        after = learner.agent.state_dict()
        changed = {k for k in after if not torch.equal(after[k], before[k])}
        assert any(name.startswith(moves) for name in changed)
        assert not any(name.startswith(stays) for name in changed)
        assert ("log_std" in changed) == (moves == "policy")


def test_two_seeds_reach_475_and_every_step_stays_within_the_trust_region():
    records = []
    config = TRPOConfig(total_steps=36_864, seeds=(1, 2))
    history = trpo(
        CartPole(16, seeds=1), config, callback=lambda _, record: records.append(record)
    )
    for seed in (0, 1):
        solved = history.solved_at(seed=seed)
        assert solved is not None and solved <= 36_864
    assert records == history.records and len(records) == 18
    assert max(history.column("kl_max")) <= config.max_kl
    assert min(history.column("surrogate_gain")) > 0
    assert min(history.column("step_fraction")) > 0
    assert max(history.column("explained_variance")) > 0.9


def test_agents_side_by_side_take_the_steps_they_would_take_alone():
    seeds, places = (3, 8), [[11, 12], [13, 14]]
    small = TRPOConfig(total_steps=512, num_steps=64, critic_epochs=2, seeds=seeds)
    together = trpo(CartPole(4, seeds=[11, 12, 13, 14]), small)
    for place, seed in enumerate(seeds):
        config = dataclasses.replace(small, seeds=(seed,))
        alone = trpo(CartPole(2, seeds=places[place]), config)
        for ours, theirs in zip(
            alone.agent.parameters(), together.agent.parameters(), strict=True
        ):
            torch.testing.assert_close(
                theirs[place : place + 1], ours, atol=1e-4, rtol=1e-3
            )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"total_steps": 10}, "total_steps must be at least the 2048"),
        ({"normalize_advantages": "minibatch"}, "normalize_advantages must be one of"),
        ({"critic_epochs": 0}, "critic_epochs must be at least 1"),
        ({"minibatch_size": 0}, "minibatch_size must be at least 1"),
    ],
)
def test_a_config_that_means_nothing_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        trpo(CartPole(8, seeds=0), TRPOConfig(**changes))
