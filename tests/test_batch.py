"""From a rollout to minibatches: targets, bootstraps, permutations, a critic."""

import dataclasses

import pytest
import torch

from course_lib.algorithms.batch import Batch, in_pieces, make_batch, minibatches
from course_lib.algorithms.learner import Learner
from course_lib.algorithms.ppo import PPOConfig
from course_lib.algorithms.rollout import Sampler, collect_steps
from course_lib.algorithms.trpo import TRPOConfig, update_critic
from course_lib.envs import CartPole
from course_lib.models import Categorical
from tests.reference_rollout import by_hand, learner_and_rollout


@pytest.mark.parametrize("bootstrap", [True, False])
@pytest.mark.parametrize("scope", ["none", "minibatch", "batch"])
def test_targets_are_made_of_advantages_as_they_were(bootstrap, scope):
    """CASES K12, K03: before any normalisation, with or without V of the last state."""
    config = PPOConfig(
        normalize_advantages=scope, bootstrap_truncated=bootstrap, seeds=(0, 1)
    )
    learner, rollout = learner_and_rollout(config)
    with torch.no_grad():  # a critic that says something
        learner.agent.value_net[-1].bias += torch.tensor([[[3.0]], [[-5.0]]])
    batch = make_batch(learner, rollout, config)
    advantages, returns = (
        x.flatten(1).float()
        for x in by_hand(learner, rollout, config.gamma, config.lam, bootstrap)
    )
    torch.testing.assert_close(batch.returns, returns, atol=1e-4, rtol=1e-5)
    if scope == "batch":  # each agent's own mean and deviation
        mean = advantages.mean(1, keepdim=True)
        advantages = (advantages - mean) / advantages.std(1, correction=0, keepdim=True)
    torch.testing.assert_close(batch.advantages, advantages, atol=1e-4, rtol=1e-4)


def test_old_log_probs_and_values_are_those_of_the_policy_that_sampled():
    config = PPOConfig(seeds=(0, 1))
    learner, rollout = learner_and_rollout(config)
    batch = make_batch(learner, rollout, config)
    policy = torch.distributions.Categorical(
        logits=learner.agent.policy_net(rollout.observations.flatten(1, 2))
    )
    torch.testing.assert_close(
        batch.old_log_probs, policy.log_prob(rollout.actions.flatten(1, 2))
    )
    values = learner.agent.value_net(rollout.observations.flatten(1, 2)).squeeze(-1)
    torch.testing.assert_close(batch.old_values, values)
    assert not any(one.requires_grad for one in vars(batch).values())


def numbered(seeds, size):
    """A batch in which every tensor says which sample it belongs to."""
    number = torch.arange(seeds * size).view(seeds, size)
    return Batch(
        number.unsqueeze(-1).expand(-1, -1, 3).float(),
        number,
        *(number * scale for scale in (1.0, 10.0, 100.0, 1000.0)),
    )


def test_one_permutation_serves_all_tensors_and_every_sample_comes_once():
    """CASES K60, in pieces of 4, 4 and 2; each agent has an order of its own."""
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    config = PPOConfig(minibatch_size=4, normalize_advantages="none")
    pieces = list(minibatches(numbered(2, 10), config, generators))
    assert [one.returns.shape for one in pieces] == [(2, 4), (2, 4), (2, 2)]
    for one in pieces:
        number = one.actions.double()
        assert torch.equal(one.observations[..., 1].double(), number)
        for tensor, scale in (
            (one.old_log_probs, 1),
            (one.old_values, 10),
            (one.advantages, 100),
            (one.returns, 1000),
        ):
            assert torch.equal(tensor.double(), scale * number)
    order = torch.cat([one.actions for one in pieces], 1)
    assert order[0].sort().values.tolist() == list(range(10))
    assert order[1].sort().values.tolist() == list(range(10, 20))
    assert order[0].tolist() != (order[1] - 10).tolist() != list(range(10))
    again = next(minibatches(numbered(2, 10), config, generators))
    assert not torch.equal(again.actions, pieces[0].actions)


@pytest.mark.parametrize("size", [64, 100, 128, 30])
def test_each_minibatch_is_whitened_by_itself_the_short_last_one_too(size):
    generator = torch.Generator().manual_seed(8)
    batch = numbered(2, size)
    drawn = torch.randn(2, size, generator=generator)
    batch = dataclasses.replace(batch, advantages=5 + 3 * drawn)
    config = PPOConfig(minibatch_size=64)
    place = 0
    for piece in in_pieces(batch, config):
        part = batch.advantages[:, place : place + 64].double()
        place += part.shape[1]
        for mine, row in zip(piece.advantages, part, strict=True):
            right = (row - row.mean()) / row.std(correction=0)
            torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=1e-5)
    assert place == size


def test_a_learners_own_advantages_are_taken():
    config = PPOConfig(normalize_advantages="none")
    learner, rollout = learner_and_rollout(config)

    def own(rewards, values, next_values, **settings):
        assert settings.keys() == {"terminated", "truncated", "gamma", "lam"}
        return rewards * 2, rewards * 3

    batch = make_batch(learner, rollout, config, own)
    torch.testing.assert_close(batch.advantages, 2 * rollout.rewards.flatten(1))
    torch.testing.assert_close(batch.returns, 3 * rollout.rewards.flatten(1))


class Balancer:
    """A policy that never lets the pole fall: right iff .1x + .2v + theta + .3w > 0."""

    def policy(self, observations):
        right = observations @ torch.tensor([0.1, 0.2, 1.0, 0.3]) > 0
        return Categorical(torch.stack((~right, right), -1).float() * 1e4)


@pytest.mark.parametrize("bootstrap", [True, False])
def test_a_critic_finds_the_value_of_balancing_for_ever_only_with_the_bootstrap(
    bootstrap,
):
    """CLAIMS row 30: 1 / (1 - .99) = 100 everywhere with it, 80.33 without.

    Without, the targets fall towards the end of an episode, which the state does not
    show: sum_k .99^k over the k = 500 - t steps that are left, on average.
    """
    config = TRPOConfig(
        bootstrap_truncated=bootstrap,
        lam=0.99,
        critic_epochs=3,
        minibatch_size=500,
    )
    env = CartPole(8, seeds=0)
    learner = Learner(env, config)
    sampler = Sampler(Balancer(), (0,), env.device)
    rollout, _ = collect_steps(env, sampler, env.reset(), 500)
    assert not rollout.terminated.any() and rollout.truncated.sum() == 8
    for update in range(80):  # nothing of the rollout depends on the critic
        learner.optimizer.learning_rate = 3e-3 if update < 60 else 5e-4
        update_critic(learner, make_batch(learner, rollout, config), config)
    values = learner.values(rollout.observations)
    if bootstrap:
        assert abs(float(values.mean()) - 100) < 1
        assert (values - 100).abs().max() < 5
    else:
        left = 500.0 - torch.arange(500)
        assert float((1 - 0.99**left).mean()) * 100 == pytest.approx(80.33, abs=0.01)
        assert 75 < float(values.mean()) < 90
