"""Whole runs of PPO: repeatable, many seeds at once, each detail a switch, learning."""

import dataclasses

import gymnasium
import pytest
import torch

from course_lib.algorithms.ppo import PPOConfig, ppo
from course_lib.envs import CartPole, GymnasiumVector

SMALL = PPOConfig(
    total_steps=1536, num_steps=64, num_epochs=3, minibatch_size=64, learning_rate=3e-3
)


def run(config=SMALL, num_envs=8, max_steps=40, **options):
    return ppo(CartPole(num_envs, seeds=2, max_steps=max_steps), config, **options)


def weights(history):
    return torch.cat([one.detach().flatten() for one in history.agent.parameters()])


def numbers(history):
    """All records without their times."""
    return [
        {name: value for name, value in one.items() if name != "cpu_seconds"}
        for one in history.records
    ]


def test_a_run_is_a_function_of_its_seed():
    first, second = run(), run()
    assert str(numbers(first)) == str(numbers(second))  # as text, for NaN's sake
    assert torch.equal(weights(first), weights(second))
    assert first.episodes == second.episodes
    other = run(dataclasses.replace(SMALL, seeds=(1,)))
    assert other.returns() != first.returns()


def test_global_random_numbers_are_neither_read_nor_moved():
    torch.manual_seed(5)
    first, drawn = run(), torch.rand(3)
    torch.manual_seed(5)
    torch.testing.assert_close(torch.rand(3), drawn, rtol=0, atol=0)
    assert torch.equal(weights(first), weights(run()))


def test_three_agents_side_by_side_do_what_each_does_alone():
    """To 1e-5 over the first updates, given the same environments and noise."""
    seeds, rows = (3, 1, 8), [[11, 12], [13, 14], [15, 16]]
    small = PPOConfig(total_steps=384, num_steps=64, num_epochs=2, minibatch_size=32)
    config = dataclasses.replace(small, seeds=seeds)
    together = ppo(CartPole(6, seeds=[*rows[0], *rows[1], *rows[2]]), config)
    alone = [
        ppo(CartPole(2, seeds=own), dataclasses.replace(small, seeds=(seed,)))
        for seed, own in zip(seeds, rows, strict=True)
    ]
    for place, one in enumerate(alone):
        for ours, theirs in zip(
            one.agent.parameters(), together.agent.parameters(), strict=True
        ):
            torch.testing.assert_close(
                theirs[place : place + 1], ours, atol=1e-5, rtol=0
            )
        assert together.returns(place) == one.returns()
        mine = [e.env_steps for e in together.episodes if e.seed == place]
        assert mine == [e.env_steps for e in one.episodes]
    for name in ("policy_loss", "value_loss", "entropy", "grad_norm", "approx_kl"):
        mean = sum(torch.tensor(one.column(name)) for one in alone) / 3
        found = torch.tensor(together.column(name))
        torch.testing.assert_close(found, mean, atol=1e-5, rtol=1e-3)
    largest = torch.tensor([one.column("ratio_max") for one in alone]).amax(0)
    assert together.column("ratio_max") == pytest.approx(largest.tolist(), abs=1e-5)


DETAILS = {
    "num_epochs": 2,
    "minibatch_size": 128,
    "num_steps": 32,
    "gamma": 0.9,
    "lam": 0.5,
    "clip_eps": 0.02,
    "vf_coef": 1.0,
    "ent_coef": 0.0,
    "learning_rate": 1e-3,
    "anneal_learning_rate": False,
    "max_grad_norm": float("inf"),
    "value_clip": 0.1,
    "target_kl": 1e-3,
    "penalty": 1.0,
    "bootstrap_truncated": False,
    "hidden": (16,),
    "shared": True,
    "orthogonal": False,
    "policy_gain": 1.0,
}


@pytest.fixture(scope="module")
def usual():
    return run()


@pytest.mark.parametrize("name", DETAILS)
def test_each_detail_can_be_switched_and_makes_another_run(name, usual):
    other = run(dataclasses.replace(SMALL, **{name: DETAILS[name]}))
    assert str(numbers(other)) != str(numbers(usual))
    assert other.env_steps == usual.env_steps == [1536]


def test_each_scope_of_normalisation_makes_another_run(usual):
    runs = [
        weights(run(dataclasses.replace(SMALL, normalize_advantages=scope)))
        for scope in ("batch", "none")
    ]
    assert not torch.equal(runs[0], runs[1])
    assert all(not torch.equal(one, weights(usual)) for one in runs)


def test_no_detail_is_left_untried():
    tried = {*DETAILS, "normalize_advantages"}
    elsewhere = {"total_steps", "penalty_target", "seeds"}
    assert tried | elsewhere == {one.name for one in dataclasses.fields(PPOConfig)}


def test_the_learning_rate_falls_in_a_straight_line():
    rates = run().column("learning_rate")
    assert rates == pytest.approx([3e-3, 2e-3, 1e-3])
    steady = run(dataclasses.replace(SMALL, anneal_learning_rate=False))
    assert steady.column("learning_rate") == [3e-3] * 3


def test_the_callback_is_given_each_record_when_it_is_made():
    seen = []
    history = run(callback=lambda update, record: seen.append((update, record)))
    assert [record for _, record in seen] == history.records
    assert [update for update, _ in seen] == [0, 1, 2]
    assert [record["update"] for _, record in seen] == [0, 1, 2]
    watched = {
        "update", "env_steps", "episode_return", "episode_length", "cpu_seconds",
        "policy_loss", "value_loss", "entropy", "approx_kl", "clip_frac",
        "clip_frac_active", "ratio_max", "grad_norm", "explained_variance",
        "learning_rate",
    }  # fmt: skip
    assert history.records[-1].keys() == watched


def test_a_learners_own_functions_run_inside_and_make_the_same_run(usual):
    called = []

    def own_gae(rewards, values, next_values, *, terminated, truncated, gamma, lam):
        called.append("advantages")
        advantages, running = torch.zeros_like(rewards), torch.zeros(len(rewards))
        for t in reversed(range(rewards.shape[1])):
            target = rewards[:, t] + gamma * next_values[:, t] * ~terminated[:, t]
            goes_on = ~(terminated[:, t] | truncated[:, t])
            running = target - values[:, t] + gamma * lam * goes_on * running
            advantages[:, t] = running
        return advantages, advantages + values

    def own_policy_loss(log_probs, old_log_probs, advantages, *, clip_eps):
        called.append("policy")
        ratio = (log_probs - old_log_probs).exp()
        clipped = ratio.clamp(1 - clip_eps, 1 + clip_eps)
        return -torch.minimum(ratio * advantages, clipped * advantages).mean(), {
            "mine": ratio.detach().mean()
        }

    def own_value_loss(values, returns):
        called.append("value")
        return 0.5 * (values - returns).square().mean(), {}

    history = run(
        advantage_fn=own_gae,
        policy_loss_fn=own_policy_loss,
        value_loss_fn=own_value_loss,
    )
    per_update = ["advantages", *["policy", "value"] * (3 * 8)]
    assert called == per_update * 3
    assert history.returns() == usual.returns()
    for name in ("policy_loss", "value_loss", "entropy", "grad_norm"):
        assert history.column(name) == pytest.approx(
            usual.column(name), rel=1e-2, abs=1e-4
        )
    assert all(0.9 < ratio < 1.1 for ratio in history.column("mine"))


def test_cartpole_is_solved_within_forty_thousand_steps():
    """CLAIMS rows 17, 31; two seeds, whose clip bounds no ratio."""
    config = PPOConfig(total_steps=40_960, anneal_learning_rate=False, seeds=(0, 1))
    history = ppo(CartPole(16, seeds=1), config)
    for seed in (0, 1):
        assert history.solved_at(seed=seed) is not None
        first = history.returns(seed)[:20]
        assert sum(first) / 20 < 60
    assert max(history.column("ratio_max")) > 1.2
    for inside, outside in zip(
        history.column("clip_frac_active"), history.column("clip_frac"), strict=True
    ):
        assert 0 <= inside <= outside < 0.3


def vector(name, num_envs):
    env = gymnasium.make_vec(name, num_envs=num_envs, vectorization_mode="sync")
    return GymnasiumVector(env, seeds=0)


def thirds(returns):
    third = len(returns) // 3
    return sum(returns[:third]) / third, sum(returns[-third:]) / third


def test_acrobot_is_learned_through_gymnasium():
    """Of three agents one may not have swung up by chance yet."""
    config = PPOConfig(
        total_steps=24_576,
        num_steps=64,
        num_epochs=4,
        learning_rate=1e-3,
        anneal_learning_rate=False,
        seeds=(0, 1, 2),
    )
    history = ppo(vector("Acrobot-v1", 48), config)
    found = [thirds(history.returns(seed)) for seed in range(3)]
    assert sum(after > before + 100 for before, after in found) >= 2
    assert max(after for _, after in found) > -200


def test_a_shared_trunk_learns_as_well():
    config = PPOConfig(
        total_steps=20_480,
        num_epochs=5,
        learning_rate=1e-3,
        anneal_learning_rate=False,
        shared=True,
    )
    before, after = thirds(ppo(CartPole(8, seeds=1), config).returns())
    assert before < 40 and after > 2 * before


def test_pendulum_is_learned_with_continuous_actions():
    config = PPOConfig(
        total_steps=24_576,
        num_steps=128,
        learning_rate=1e-3,
        anneal_learning_rate=False,
        gamma=0.9,
        ent_coef=0.0,
        seeds=(1,),
    )
    history = ppo(vector("Pendulum-v1", 8), config)
    before, after = thirds(history.returns())
    assert after > before + 150
    spread = history.agent.log_std.detach().exp()
    assert spread.shape == (1, 1, 1) and 0.05 < float(spread) < 2
