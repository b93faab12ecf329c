"""Actor-critic: its gradient against the exact one, its runs, what it refuses."""

import pytest
import torch

from course_lib.algorithms.actor_critic import (
    ActorCriticConfig,
    actor_critic,
    estimate_advantages,
    update,
)
from course_lib.algorithms.rollout import collect_steps
from course_lib.envs import CartPole
from course_lib.exact.mdp import state_values
from course_lib.exact.policy_gradient import policy_gradient, softmax_policy
from course_lib.kernels import gae, policy_gradient_loss, value_loss
from tests.layered_mdp import (
    LAYERS,
    agreement,
    layered,
    policy_slopes,
    random_logits,
    tabular_learner,
)
from tests.reference_rollout import by_hand, learner_and_rollout


def estimates(lam, values, repeats=25):
    """Gradients of one update each, from 1,000 episodes of 3 steps each."""
    config = ActorCriticConfig(
        gamma=1.0,
        lam=lam,
        learning_rate=0.0,
        max_grad_norm=float("inf"),
        hidden=(),
        num_steps=LAYERS,
    )
    learner, env = tabular_learner(
        config, 1000, logits=random_logits(), values=values, seed=2
    )
    found, observations = [], env.reset()
    for _ in range(repeats):
        rollout, observations = collect_steps(
            env, learner.sampler, observations, LAYERS
        )
        judged = estimate_advantages(learner, rollout, config)
        update(learner, rollout, *judged, config, policy_gradient_loss, value_loss)
        found.append(-policy_slopes(learner))
    return found


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_with_an_exact_critic_an_update_follows_the_exact_gradient(lam):
    """In expectation, for any lambda; a mean over steps is J's gradient over T."""
    mdp, logits = layered(), random_logits()
    values = state_values(mdp, softmax_policy(logits), 1.0)
    exact = policy_gradient(mdp, logits, 1.0) / LAYERS
    assert agreement(estimates(lam, values), exact) < 4


def test_with_a_wrong_critic_only_lambda_one_is_unbiased():
    exact = policy_gradient(layered(), random_logits(), 1.0) / LAYERS
    wrong = torch.tensor([2.0, -1.0, 0.0, 3.0, -2.0, 1.0, 0.0])
    assert agreement(estimates(1.0, wrong), exact) < 4
    assert agreement(estimates(0.0, wrong), exact) > 20


def test_agents_side_by_side_take_the_steps_they_would_take_alone():
    seeds = (3, 8)
    both = CartPole(4, seeds=[11, 12, 13, 14])
    runs = {seeds: actor_critic(both, ActorCriticConfig(total_steps=640, seeds=seeds))}
    norms = []
    for place, seed in enumerate(seeds):
        env = CartPole(2, seeds=[[11, 12], [13, 14]][place])
        alone = actor_critic(env, ActorCriticConfig(total_steps=640, seeds=(seed,)))
        for ours, theirs in zip(
            alone.agent.parameters(), runs[seeds].agent.parameters(), strict=True
        ):
            torch.testing.assert_close(
                theirs[place : place + 1], ours, atol=1e-5, rtol=1e-4
            )
        assert alone.returns() == runs[seeds].returns(place)
        norms.append(torch.tensor(alone.column("grad_norm")))
    together = torch.tensor(runs[seeds].column("grad_norm"))
    torch.testing.assert_close(together, (norms[0] + norms[1]) / 2)


def test_advantages_tell_the_two_kinds_of_end_apart():
    config = ActorCriticConfig(seeds=(0, 1))
    learner, rollout = learner_and_rollout(config)
    with torch.no_grad():
        learner.agent.value_net[-1].bias += torch.tensor([[[3.0]], [[-5.0]]])
    found = estimate_advantages(learner, rollout, config)
    right = by_hand(learner, rollout, config.gamma, config.lam, bootstrap=True)
    for ours, theirs in zip(found, right, strict=True):
        torch.testing.assert_close(ours, theirs.float(), atol=1e-4, rtol=1e-5)


def test_it_learns():
    history = actor_critic(
        CartPole(16, seeds=0), ActorCriticConfig(total_steps=40_960, seeds=(1, 2))
    )
    for seed in (0, 1):
        returns = history.returns(seed)
        assert sum(returns[:20]) / 20 < 50
        assert sum(returns[-20:]) / 20 > 100
    assert history.env_steps == [40_960] * 2
    assert len(history.records) == 320


def test_the_entropy_is_rewarded():
    found = [
        actor_critic(
            CartPole(8, seeds=0),
            ActorCriticConfig(total_steps=8192, ent_coef=coef, seeds=(0,)),
        ).column("entropy")[-1]
        for coef in (-1.0, 0.0, 1.0)
    ]
    assert found == sorted(found)


def test_a_learners_own_functions_run_inside_and_the_callback_sees_every_record():
    called, records = [], []

    def own_gae(rewards, values, next_values, *, terminated, truncated, gamma, lam):
        called.append("advantages")
        advantages, running = torch.zeros_like(rewards), torch.zeros(len(rewards))
        for t in reversed(range(rewards.shape[1])):
            target = rewards[:, t] + gamma * next_values[:, t] * ~terminated[:, t]
            goes_on = ~(terminated[:, t] | truncated[:, t])
            running = target - values[:, t] + gamma * lam * goes_on * running
            advantages[:, t] = running
        return advantages, advantages + values

    def own_policy_loss(log_probs, weights, *, reduction):
        called.append("policy")
        assert reduction == "token_mean"
        return -(log_probs * weights).mean(), {}

    def own_value_loss(values, returns):
        called.append("value")
        return 0.5 * (values - returns).square().mean(), {}

    config = ActorCriticConfig(total_steps=1024)
    history = actor_critic(
        CartPole(8, seeds=0),
        config,
        advantage_fn=own_gae,
        policy_loss_fn=own_policy_loss,
        value_loss_fn=own_value_loss,
        callback=lambda _, record: records.append(record),
    )
    assert called == ["advantages", "policy", "value"] * 8
    assert records == history.records
    theirs = actor_critic(CartPole(8, seeds=0), config, advantage_fn=gae)
    assert history.returns() == theirs.returns()
    for name in ("policy_loss", "value_loss", "grad_norm"):
        assert history.column(name) == pytest.approx(theirs.column(name), rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"total_steps": 127}, "total_steps must be at least the 128 of one rollout"),
        ({"num_steps": 0}, "num_steps must be at least 1"),
        ({"seeds": (0, 1, 2)}, "seeds must be as many as share out 8"),
        ({"gamma": 1.5}, "gamma"),
    ],
)
def test_a_config_that_means_nothing_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        actor_critic(CartPole(8, seeds=0), ActorCriticConfig(**changes))
