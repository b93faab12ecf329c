"""REINFORCE: its gradient against exact ones, its baselines, its options."""

from dataclasses import replace

import pytest
import torch

from course_lib.algorithms.learner import Learner
from course_lib.algorithms.reinforce import (
    ReinforceConfig,
    episode_loss,
    estimate_advantages,
    reinforce,
    update,
)
from course_lib.algorithms.rollout import Rollout, collect_episodes
from course_lib.envs import CartPole
from course_lib.envs.finite import FiniteMDP
from course_lib.envs.tabular import Tabular
from course_lib.exact.policy_gradient import policy_gradient
from course_lib.kernels import discounted_returns


def one_or_two_steps() -> FiniteMDP:
    """L ends and pays 1; R pays 1 and leads to a state that pays 1 and ends."""
    transition = torch.zeros(3, 2, 3).double()
    transition[0, 0, 2] = transition[0, 1, 1] = 1.0
    transition[1, :, 2] = 1.0
    rewards = torch.ones_like(transition)
    terminal = torch.tensor([False, False, True])
    return FiniteMDP(transition, rewards, terminal, torch.tensor([1.0, 0.0, 0.0]))


def two_in_turn() -> FiniteMDP:
    """Two states, one after the other; action R pays 1 in the first, -1.5 after it."""
    transition = torch.zeros(3, 2, 3).double()
    transition[0, :, 1] = transition[1, :, 2] = 1.0
    rewards = torch.zeros_like(transition)
    rewards[0, 1, 1], rewards[1, 1, 2] = 1.0, -1.5
    terminal = torch.tensor([False, False, True])
    return FiniteMDP(transition, rewards, terminal, torch.tensor([1.0, 0.0, 0.0]))


def slope(actions, rewards, mask, gamma, **options):
    """The estimate's expectation for a shared logit of R at 0, all rows as likely."""
    logit = torch.zeros((), dtype=torch.float64, requires_grad=True)
    log_probs = torch.stack((torch.zeros_like(logit), logit)).log_softmax(0)[actions]
    # Where the second state leaves no choice, the policy has no say.
    returns = discounted_returns(rewards, gamma)
    config = ReinforceConfig(gamma=gamma, **options)
    loss, _ = episode_loss(log_probs * mask, returns, mask, config)
    loss.backward()
    return -float(logit.grad)


def test_a_mean_over_an_episodes_steps_is_another_gradient():
    """CLAIMS error 1: true .25, with 1/T exactly 0; the second step is no choice."""
    actions = torch.tensor([[0, 0], [1, 0]])
    rewards = torch.tensor([[1.0, 0.0], [1.0, 1.0]]).double()
    mask = torch.tensor([[True, False], [True, True]])

    def estimate(**options):
        logit = torch.zeros((), dtype=torch.float64, requires_grad=True)
        both = torch.stack((torch.zeros_like(logit), logit)).log_softmax(0)
        log_probs = both[actions]
        log_probs = torch.stack((log_probs[:, 0], log_probs[:, 1] * 0), 1)
        config = ReinforceConfig(gamma=1.0, **options)
        loss, _ = episode_loss(
            log_probs, discounted_returns(rewards, 1.0), mask, config
        )
        loss.backward()
        return -float(logit.grad)

    exact = policy_gradient(one_or_two_steps(), torch.zeros(3, 2), 1.0)
    assert float(exact[0, 1]) == pytest.approx(0.25)
    assert estimate() == pytest.approx(0.25)
    assert estimate(time_average=True) == pytest.approx(0.0, abs=1e-12)


def test_dropping_the_states_discount_can_turn_the_gradient_round():
    """CLAIMS, further corrections to error 2: true +.0625, dropped -.125."""
    actions = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    rewards = actions.double() * torch.tensor([1.0, -1.5]).double()
    mask = torch.ones(4, 2, dtype=torch.bool)
    exact = policy_gradient(two_in_turn(), torch.zeros(3, 2), 0.5)
    assert float(exact[:, 1].sum()) == pytest.approx(0.0625)
    assert slope(actions, rewards, mask, 0.5) == pytest.approx(-0.125)
    assert slope(actions, rewards, mask, 0.5, discount_states=True) == pytest.approx(
        0.0625
    )


def hand_made_rollout() -> Rollout:
    """Three episodes of 3, 2 and 1 steps, rewards of their own."""
    mask = torch.tensor(
        [[[True, True, True], [True, True, False], [True, False, False]]]
    )
    rewards = torch.tensor([[[1.0, 2.0, 4.0], [3.0, 5.0, 9.0], [7.0, 9.0, 9.0]]])
    ends = torch.zeros_like(mask)
    ends[0, 0, 2] = ends[0, 1, 1] = ends[0, 2, 0] = True
    observations = torch.zeros(1, 3, 3, 4)
    return Rollout(
        observations,
        torch.zeros(1, 3, 3, dtype=torch.int64),
        rewards,
        ends,
        torch.zeros_like(ends),
        observations,
        mask,
    )


def test_baselines_compare_episodes_at_the_same_step_and_leave_the_finished_out():
    rollout, learner = (
        hand_made_rollout(),
        Learner(CartPole(3, seeds=0), ReinforceConfig()),
    )
    # Returns at gamma 1: [7, 6, 4], [8, 5], [7].
    for baseline, expected in (
        ("none", [[7, 6, 4], [8, 5], [7]]),
        ("leave_one_out", [[-0.5, 1, 0], [1, -1], [-0.5]]),
        ("group_mean", [[-1 / 3, 0.5, 0], [2 / 3, -0.5], [-1 / 3]]),
    ):
        config = ReinforceConfig(gamma=1.0, baseline=baseline)
        _, advantages = estimate_advantages(learner, rollout, config)
        for row, right in zip(advantages[0], expected, strict=True):
            found = row[: len(right)]
            torch.testing.assert_close(found, torch.tensor(right).float())


def test_the_learned_baseline_is_predicted_before_it_is_trained():
    config = ReinforceConfig(baseline="value", learning_rate=0.05)
    env = CartPole(4, seeds=1)
    learner = Learner(env, config)
    rollout = collect_episodes(env, learner.sampler)
    before = learner.values(rollout.observations)
    returns, advantages = estimate_advantages(learner, rollout, config)
    update(learner, rollout, returns, advantages, config)
    after = learner.values(rollout.observations)
    torch.testing.assert_close(returns - advantages, before)
    assert (after - before).abs().max() > 0.01


def test_one_update_agrees_with_the_exact_gradient_in_expectation():
    """A policy without hidden layers on one-hot states is a tabular softmax."""
    mdp, gamma = two_in_turn(), 0.5
    config = ReinforceConfig(gamma=gamma, discount_states=True, hidden=())
    env = Tabular(mdp, 20_000, generator=torch.Generator().manual_seed(0))
    learner = Learner(env, config)
    with torch.no_grad():
        for one in learner.agent.parameters():
            one.zero_()
    rollout = collect_episodes(env, learner.sampler)
    _, advantages = estimate_advantages(learner, rollout, config)
    steps = rollout.mask.shape[-1]
    policy = learner.agent.policy(rollout.observations.flatten(1, 2))
    log_probs = policy.log_probs(rollout.actions.flatten(1, 2)).view(-1, steps)
    mask, weights = rollout.mask.flatten(0, 1), advantages.flatten(0, 1)
    loss, _ = episode_loss(log_probs, weights, mask, config)
    (gradient,) = torch.autograd.grad(-loss, learner.agent.policy_net[0].weight)
    exact = policy_gradient(mdp, torch.zeros(3, 2), gamma)
    # One row's share is at most |gamma^t * G * 1/2| < 1: a bound on its spread.
    standard_error = 1.0 / 20_000**0.5
    assert (gradient[0].double() - exact).abs().max() < 4 * standard_error


def test_a_run_is_a_function_of_its_seed_and_takes_the_episodes_it_was_given():
    config = ReinforceConfig(num_episodes=40, baseline="value", seeds=(3,))
    runs = [reinforce(CartPole(4, seeds=5), config) for _ in range(2)]
    assert runs[0].returns() == runs[1].returns()
    assert len(runs[0].returns()) == 40
    assert runs[0].env_steps == [sum(e.length for e in runs[0].episodes)]
    other = reinforce(
        CartPole(4, seeds=5),
        ReinforceConfig(num_episodes=40, baseline="value", seeds=(4,)),
    )
    assert other.returns() != runs[0].returns()


def test_a_learners_own_functions_run_inside():
    seen = []

    def own_returns(rewards, gamma, *, terminated, truncated):
        seen.append(rewards.shape)
        returns, running = torch.zeros_like(rewards), torch.zeros(len(rewards))
        for t in reversed(range(rewards.shape[1])):
            running = rewards[:, t] + gamma * running * ~terminated[:, t]
            returns[:, t] = running
        return returns

    config = ReinforceConfig(num_episodes=8)
    own = reinforce(CartPole(4, seeds=0), config, returns_fn=own_returns)
    assert len(seen) == 2
    assert own.returns() == reinforce(CartPole(4, seeds=0), config).returns()


@pytest.mark.parametrize("seeds", [(), (0, 1, 2)])
def test_seeds_that_do_not_share_out_the_environments_are_refused(seeds):
    with pytest.raises(ValueError, match="seeds must be as many as share out 4"):
        reinforce(CartPole(4, seeds=0), ReinforceConfig(seeds=seeds))


def test_an_agents_gradient_does_not_depend_on_how_long_the_others_episodes_are():
    """Two agents in one update: each moves as it would on its own rows alone."""
    config = ReinforceConfig(baseline="value", seeds=(3, 8))
    env = CartPole(4, seeds=5)
    together = Learner(env, config)
    with torch.no_grad():  # the second agent always pushes one way: short episodes
        together.agent.policy_net[-1].bias[1] += torch.tensor([9.0, 0.0])
    rollout = collect_episodes(env, together.sampler)
    lengths = rollout.mask.sum((1, 2))
    assert lengths[0] > 1.5 * lengths[1]
    alone = []
    for place, seed in enumerate(config.seeds):
        one = Learner(CartPole(2, seeds=0), replace(config, seeds=(seed,)))
        with torch.no_grad():
            one.parameters.values.copy_(together.parameters.values[place : place + 1])
        own = Rollout(
            **{name: x[place : place + 1] for name, x in vars(rollout).items()}
        )
        update(one, own, *estimate_advantages(one, own, config), config)
        alone.append(one.parameters)
    update(together, rollout, *estimate_advantages(together, rollout, config), config)
    for place, one in enumerate(alone):
        found = together.parameters.gradients[place]
        torch.testing.assert_close(found, one.gradients[0], rtol=1e-4, atol=1e-4)
        moved_to = together.parameters.values[place]
        torch.testing.assert_close(moved_to, one.values[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("baseline", ["none", "value", "leave_one_out", "group_mean"])
def test_it_learns_with_every_baseline(baseline):
    config = ReinforceConfig(
        num_episodes=160, learning_rate=5e-3, baseline=baseline, seeds=(0, 1)
    )
    history = reinforce(CartPole(8, seeds=0), config)
    for seed in (0, 1):
        returns = history.returns(seed)
        assert len(returns) == 160
        assert sum(returns[-20:]) > 1.5 * sum(returns[:20])
    assert history.env_steps == [sum(history.returns(seed)) for seed in (0, 1)]
    assert ("value_loss" in history.records[0]) == (baseline == "value")


def test_a_callback_sees_every_record():
    seen = []
    config = ReinforceConfig(num_episodes=12)
    history = reinforce(
        CartPole(4, seeds=0), config, callback=lambda _, record: seen.append(record)
    )
    assert seen == history.records and len(seen) == 3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_episodes": 3}, "num_episodes must be at least the 4 of one update"),
        ({"baseline": "loo"}, "baseline must be one of"),
        ({"gamma": -0.1}, "gamma"),
    ],
)
def test_a_config_that_means_nothing_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        reinforce(CartPole(4, seeds=0), ReinforceConfig(**changes))
