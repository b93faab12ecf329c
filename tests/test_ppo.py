"""PPO's update: the first minibatch, its gradient, each detail, what it refuses."""

import copy
import dataclasses
import functools
import math

import pytest
import torch

from course_lib.algorithms.actor_critic import ActorCriticConfig, actor_critic
from course_lib.algorithms.batch import in_pieces, make_batch
from course_lib.algorithms.learner import Learner
from course_lib.algorithms.ppo import (
    STEPS,
    PPOConfig,
    adapted,
    moved,
    policy_objective,
    ppo,
    ppo_loss,
    update,
)
from course_lib.algorithms.rollout import collect_steps
from course_lib.envs import CartPole
from course_lib.exact.mdp import state_values
from course_lib.exact.policy_gradient import policy_gradient, softmax_policy
from course_lib.kernels import clipped_policy_loss, policy_gradient_loss, value_loss
from tests.layered_mdp import (
    LAYERS,
    agreement,
    layered,
    policy_slopes,
    random_logits,
    tabular_learner,
)

SMALL = PPOConfig(total_steps=1024, num_steps=64, num_epochs=2, minibatch_size=128)


def loss_with(config, price=None, **functions):
    return functools.partial(
        ppo_loss,
        config=config,
        policy_loss_fn=policy_objective(config, price, **functions),
    )


def learner_and_batch(config, num_envs=8):
    env = CartPole(num_envs, seeds=2, max_steps=40)
    learner = Learner(env, config, shared=config.shared)
    rollout, _ = collect_steps(env, learner.sampler, env.reset(), config.num_steps)
    return learner, make_batch(learner, rollout, config)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_on_the_first_minibatch_the_ratio_is_one_everywhere(shared, seeds):
    """CASES K26: every ratio 1, KL 0, nothing clipped, to 1e-6."""
    config = dataclasses.replace(SMALL, shared=shared, seeds=seeds)
    learner, batch = learner_and_batch(config)
    first = next(STEPS.minibatches(batch, config, learner.sampler.generators))
    seen = []

    def watched(log_probs, old_log_probs, advantages, *, clip_eps):
        seen.append((log_probs - old_log_probs).exp())
        return clipped_policy_loss(
            log_probs, old_log_probs, advantages, clip_eps=clip_eps
        )

    _, numbers = loss_with(config, policy_loss_fn=watched)(learner.agent, first)
    assert (seen[0] - 1).abs().max() < 1e-6
    assert abs(numbers["approx_kl"]) < 1e-6
    assert numbers["clip_frac"] == 0 and numbers["clip_frac_active"] == 0
    assert numbers["ratio_max"].item() == pytest.approx(1.0, abs=1e-6)


def test_the_loss_is_the_boxs_by_hand():
    """Policy, half the squared error, minus the entropy; advantages of variance 1."""
    config = dataclasses.replace(SMALL, minibatch_size=512)
    learner, batch = learner_and_batch(config)
    with torch.no_grad():  # somewhere else than where the data come from
        for one in learner.agent.parameters():
            one.add_(0.1 * torch.randn(one.shape, generator=torch.Generator()))
    (whole,) = in_pieces(batch, config)
    loss, numbers = loss_with(config)(learner.agent, whole)
    logits, values = (
        net(batch.observations)[0].double()
        for net in (learner.agent.policy_net, learner.agent.value_net)
    )
    policy = torch.distributions.Categorical(logits=logits)
    ratio = (policy.log_prob(batch.actions[0]) - batch.old_log_probs[0].double()).exp()
    advantages = batch.advantages[0].double()
    advantages = (advantages - advantages.mean()) / advantages.std(correction=0)
    gains = [
        min(r * a, min(max(r, 0.8), 1.2) * a)
        for r, a in zip(ratio.tolist(), advantages.tolist(), strict=True)
    ]
    policy_loss = -sum(gains) / len(gains)
    critic = (values[:, 0] - batch.returns[0].double()).square().mean() / 2
    entropy = policy.entropy().mean()
    assert numbers["policy_loss"].item() == pytest.approx(policy_loss, abs=1e-5)
    assert numbers["value_loss"].item() == pytest.approx(critic.item(), rel=1e-4)
    assert numbers["entropy"].item() == pytest.approx(entropy.item(), rel=1e-4)
    right = policy_loss + 0.5 * critic.item() - 0.01 * entropy.item()
    assert loss.item() == pytest.approx(right, rel=1e-4)
    assert numbers["clip_frac"] > numbers["clip_frac_active"] > 0


def test_one_epoch_of_one_minibatch_is_actor_critics_step():
    """CLAIMS error 39: the ratio is 1, the clip asleep, the gradient the same."""
    common = dict(
        num_steps=32,
        lam=0.95,
        learning_rate=1e-3,
        ent_coef=0.01,
        vf_coef=0.5,
        seeds=(4, 5),
    )
    config = PPOConfig(
        total_steps=256,
        num_epochs=1,
        minibatch_size=256,
        anneal_learning_rate=False,
        normalize_advantages="none",
        policy_gain=0.01,
        **common,
    )
    theirs = actor_critic(
        CartPole(16, seeds=0), ActorCriticConfig(total_steps=256, **common)
    )
    ours = ppo(CartPole(16, seeds=0), config)
    assert len(ours.records) == len(theirs.records) == 1
    for a, b in zip(ours.agent.parameters(), theirs.agent.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    assert ours.column("grad_norm") == pytest.approx(theirs.column("grad_norm"))
    # With a second epoch it is not.
    more = ppo(CartPole(16, seeds=0), dataclasses.replace(config, num_epochs=2))
    assert any(
        (a - b).abs().max() > 1e-4
        for a, b in zip(more.agent.parameters(), theirs.agent.parameters(), strict=True)
    )


def test_the_gradient_of_that_step_is_actor_critics_to_the_last_digits():
    config = PPOConfig(normalize_advantages="none", num_steps=32, seeds=(4, 5))
    learner, batch = learner_and_batch(config)
    found = []
    loss, _ = loss_with(config)(learner.agent, batch)
    learner.parameters.zero_gradients()
    loss.backward()
    found.append(learner.parameters.gradients.clone())
    policy, values = learner.agent.policy_and_values(batch.observations)
    plain, _ = policy_gradient_loss(
        policy.log_probs(batch.actions), batch.advantages, reduction="token_mean"
    )
    critic, _ = value_loss(values, batch.returns)
    learner.parameters.zero_gradients()
    entropy = policy.entropies().mean()
    (2 * (plain + 0.5 * critic - 0.01 * entropy)).backward()
    found.append(learner.parameters.gradients)
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("minibatch_size", [3000, 750])
def test_a_first_minibatch_agrees_with_the_exact_gradient_in_expectation(
    minibatch_size,
):
    """Exact values and lambda = .5; four standard errors, over 30 rollouts."""
    mdp, logits = layered(), random_logits()
    config = PPOConfig(
        gamma=1.0,
        lam=0.5,
        ent_coef=0.0,
        num_epochs=1,
        num_steps=LAYERS,
        minibatch_size=minibatch_size,
        normalize_advantages="none",
        max_grad_norm=math.inf,
        learning_rate=0.0,  # so that the last minibatch is as the first
        hidden=(),
    )
    values = state_values(mdp, softmax_policy(logits), 1.0)
    learner, env = tabular_learner(config, 1000, logits=logits, values=values, seed=3)
    found, observations = [], env.reset()
    for _ in range(30):
        rollout, observations = collect_steps(
            env, learner.sampler, observations, LAYERS
        )
        batch = make_batch(learner, rollout, config)
        update(learner, batch, config, loss_with(config))
        found.append(-policy_slopes(learner))
    assert agreement(found, policy_gradient(mdp, logits, 1.0) / LAYERS) < 4


def test_the_price_of_a_nat_is_doubled_when_it_was_too_cheap():
    """As CASES K46: up when the KL is above its target, down when below."""
    assert adapted(0.2, 0.0151, 0.01) == 0.4
    assert adapted(0.2, 0.0149, 0.01) == 0.2
    assert adapted(0.2, 0.0067, 0.01) == 0.2
    assert adapted(0.2, 0.0066, 0.01) == 0.1
    with pytest.raises(ValueError, match="penalty_target must be > 0"):
        PPOConfig(penalty_target=0.0)


def test_the_price_follows_the_kl_of_the_whole_update():
    learner, batch = learner_and_batch(SMALL)
    assert moved(learner, batch) == pytest.approx(0.0, abs=1e-7)
    with torch.no_grad():
        learner.agent.policy_net[-1].bias += torch.tensor([0.4, 0.0])
    policy = torch.distributions.Categorical(
        logits=learner.agent.policy_net(batch.observations)
    )
    log_ratio = policy.log_prob(batch.actions) - batch.old_log_probs
    right = (log_ratio.exp() - 1 - log_ratio).mean().item()
    assert moved(learner, batch) == pytest.approx(right, rel=1e-4)
    config = dataclasses.replace(
        SMALL, total_steps=4096, penalty=1e-3, penalty_target=1e-5, learning_rate=0.01
    )
    prices = ppo(CartPole(8, seeds=0), config).column("penalty")
    assert prices == [pytest.approx(1e-3 * 2**n) for n in range(8)]
    lazy = dataclasses.replace(config, penalty_target=10.0)
    assert ppo(CartPole(8, seeds=0), lazy).column("penalty")[-1] == pytest.approx(
        1e-3 / 2**7
    )


def test_a_high_price_holds_the_policy_back():
    config = dataclasses.replace(SMALL, learning_rate=3e-3, num_epochs=8)
    found = []
    for price in (0.0, 3.0, 100.0):
        learner, batch = learner_and_batch(config)
        update(learner, batch, config, loss_with(config, price))
        found.append(moved(learner, batch))
    assert found[0] > 2 * found[1] > 4 * found[2] > 0


def test_target_kl_stops_the_epochs():
    """CASES K45: the statistic is never negative, so a large move always stops."""
    counted = []
    for target in (None, 1e-9, 1e9):
        config = dataclasses.replace(SMALL, num_epochs=10, target_kl=target)
        learner, batch = learner_and_batch(config)
        losses = []

        def counting(agent, minibatch, config=config, losses=losses):
            losses.append(1)
            return loss_with(config)(agent, minibatch)

        update(learner, batch, config, counting)
        counted.append(len(losses))
    # With a target of next to nothing the first epoch of 4 minibatches is the last.
    assert counted == [40, 4, 40]


def test_a_value_clip_holds_the_critics_loss_back():
    learner, batch = learner_and_batch(SMALL)
    batch = dataclasses.replace(batch, returns=batch.old_values + 1.0)
    with torch.no_grad():
        learner.agent.value_net[-1].bias += 0.5
    for clip, right in ((None, 0.125), (0.2, 0.32), (0.7, 0.125)):
        config = dataclasses.replace(SMALL, value_clip=clip)
        _, numbers = loss_with(config)(learner.agent, batch)
        # The error is .5; held to a move of .2 it is .8, and the larger one counts.
        assert numbers["value_loss"].item() == pytest.approx(right, rel=1e-3)


@pytest.mark.parametrize("advantages", [[[3.0]], [[2.0, 2.0, 2.0]]])
def test_a_minibatch_of_one_or_of_equals_has_advantages_of_zero(advantages):
    """CASES K33: no 0 / 0, as the last minibatch of 1 of n k + 1 would make."""
    learner, batch = learner_and_batch(SMALL)
    count = len(advantages[0])
    few = dataclasses.replace(
        batch, **{name: one[:, :count] for name, one in vars(batch).items()}
    )
    few = dataclasses.replace(few, advantages=torch.tensor(advantages))
    (few,) = in_pieces(few, SMALL)
    loss, numbers = loss_with(SMALL)(learner.agent, few)
    assert numbers["policy_loss"] == 0
    learner.step(loss)
    assert all(one.isfinite().all() for one in learner.agent.parameters())


def test_the_entropy_is_the_whole_distributions_and_rewarded():
    """CASES K40: p = [.5, .5] adds -.01 ln 2; p = [.9, .1] has .325083, not .105."""
    learner, batch = learner_and_batch(SMALL)
    batch = dataclasses.replace(batch, advantages=0 * batch.advantages)
    for chances, right in (([0.5, 0.5], math.log(2)), ([0.9, 0.1], 0.325083)):
        with torch.no_grad():
            for one in learner.agent.policy_net.parameters():
                one.zero_()
            learner.agent.policy_net[-1].bias += torch.tensor(chances).log()
        found = []
        for coef in (0.0, 0.01):
            config = dataclasses.replace(SMALL, ent_coef=coef)
            loss, numbers = loss_with(config)(learner.agent, batch)
            found.append(loss.item())
            assert numbers["entropy"].item() == pytest.approx(right, rel=1e-5)
        assert found[1] - found[0] == pytest.approx(-0.01 * right, rel=1e-2)


def test_targets_of_another_shape_do_not_broadcast():
    """CASES K39: [B] against [B, 1]."""
    learner, batch = learner_and_batch(SMALL)
    wrong = dataclasses.replace(batch, returns=batch.returns.unsqueeze(-1))
    with pytest.raises(ValueError, match="returns must have shape"):
        loss_with(SMALL)(learner.agent, wrong)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"total_steps": 100}, "total_steps must be at least the 512 of one rollout"),
        ({"num_steps": 0}, "num_steps must be at least 1"),
        ({"num_epochs": 0}, "num_epochs must be at least 1"),
        ({"minibatch_size": 0}, "minibatch_size must be at least 1"),
        ({"normalize_advantages": "mini"}, "normalize_advantages must be one of"),
        ({"clip_eps": -0.2}, "clip_eps"),
        ({"value_clip": -1.0}, "clip"),
        ({"gamma": 1.01}, "gamma"),
        ({"lam": -0.1}, "lam"),
        ({"penalty": -1.0}, "beta"),
        ({"seeds": ()}, "seeds must be as many"),
        ({"seeds": (0, 1), "target_kl": 0.01}, "target_kl follows the KL of one agent"),
        ({"seeds": (0, 1), "penalty": 1.0}, "penalty follows the KL of one agent"),
    ],
)
def test_a_config_that_means_nothing_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        ppo(CartPole(8, seeds=0), dataclasses.replace(SMALL, **changes))


def test_target_kl_with_a_loss_that_tells_no_kl_is_refused():
    def own(log_probs, old_log_probs, advantages, *, clip_eps):
        return -((log_probs - old_log_probs).exp() * advantages).mean(), {}

    env = CartPole(8, seeds=0)
    assert ppo(env, SMALL, policy_loss_fn=own).env_steps == [1024]
    config = dataclasses.replace(SMALL, target_kl=0.01)
    with pytest.raises(ValueError, match="returns an approx_kl"):
        ppo(env, config, policy_loss_fn=own)


def test_a_batch_is_not_changed_by_its_update():
    learner, batch = learner_and_batch(SMALL)
    before = copy.deepcopy(batch)
    update(learner, batch, SMALL, loss_with(SMALL))
    for name, value in vars(batch).items():
        assert torch.equal(value, getattr(before, name))
