"""PPO with one thing wrong: each fault is what its source says, and it shows."""

import dataclasses
import math
import subprocess
import sys

import gymnasium
import pytest
import torch

from course_lib.algorithms.batch import Batch
from course_lib.algorithms.faults import FAULTS, faulty_ppo
from course_lib.algorithms.learner import Learner
from course_lib.algorithms.ppo import STEPS, PPOConfig, policy_objective, ppo
from course_lib.algorithms.rollout import Rollout, collect_steps
from course_lib.envs import CartPole, GymnasiumVector
from course_lib.kernels import gae, value_loss

SMALL = PPOConfig(
    total_steps=1536, num_steps=64, num_epochs=3, minibatch_size=64, learning_rate=3e-3
)


def told(history):
    """All records without their times, as text, for NaN's sake."""
    return str(
        [
            {name: value for name, value in one.items() if name != "cpu_seconds"}
            for one in history.records
        ]
    )


def small_env():
    return CartPole(8, seeds=2, max_steps=30)  # episodes of both kinds of end


@pytest.fixture(scope="module")
def clean():
    return ppo(small_env(), SMALL)


def test_there_are_a_dozen_and_each_names_where_people_made_it():
    assert len(FAULTS) >= 12
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert len(fault.source) > 10


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_makes_another_run_and_is_watched_by_the_same_numbers(name, clean):
    wrong = faulty_ppo(name, small_env(), SMALL)
    assert told(wrong) != told(clean)
    assert wrong.records[0].keys() == clean.records[0].keys()
    assert told(faulty_ppo(name, small_env(), SMALL)) == told(wrong)


def test_the_algorithm_knows_nothing_of_its_faults(clean):
    """A process that never imports them makes the same run, and so does one after."""
    script = f"""
import sys
from course_lib.algorithms.ppo import PPOConfig, ppo
from course_lib.envs import CartPole
config = PPOConfig(**{dataclasses.asdict(SMALL)!r})
history = ppo(CartPole(8, seeds=2, max_steps=30), config)
assert "course_lib.algorithms.faults" not in sys.modules
print([f"{{x:.6f}}" for x in history.column("value_loss")], history.returns())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    right = [f"{x:.6f}" for x in clean.column("value_loss")], clean.returns()
    assert done.stdout.strip() == f"{right[0]} {right[1]}", done.stderr
    assert told(ppo(small_env(), SMALL)) == told(clean)


def test_an_unknown_fault_is_refused_with_the_names_there_are():
    with pytest.raises(ValueError, match=r"no fault 'typo'.*advantage-sign"):
        faulty_ppo("typo", small_env(), SMALL)


def test_faults_in_how_a_choice_is_drawn_ask_for_a_choice():
    env = GymnasiumVector(gymnasium.make_vec("Pendulum-v1", num_envs=2), seeds=0)
    config = dataclasses.replace(SMALL, total_steps=128)
    with pytest.raises(ValueError, match=r"greedy-sampling.*continuous"):
        faulty_ppo("greedy-sampling", env, config)


def test_the_worst_learn_nothing_where_the_right_one_learns():
    config = PPOConfig(
        total_steps=8_192,
        num_epochs=5,
        learning_rate=1e-3,
        anneal_learning_rate=False,
        seeds=(0, 1, 2),
    )

    def last(history):
        return [sum(history.returns(seed)[-20:]) / 20 for seed in range(3)]

    right = last(ppo(CartPole(24, seeds=1), config))
    assert min(right) > 45
    for name in ("advantage-sign", "ratio-upside-down"):
        assert max(last(faulty_ppo(name, CartPole(24, seeds=1), config))) < 30
    # A step that is too large makes the policy sure of itself at once, by luck not
    # always of the worst: what shows it is the distance that it went.
    wrong = faulty_ppo("step-too-large", CartPole(24, seeds=1), config)
    assert sum(last(wrong)) < sum(right)
    assert wrong.column("approx_kl")[0] > 1 and wrong.column("entropy")[-1] < 0.1


class Table:
    """A learner whose critic is a table; observations are [state], [S, B, T, 1]."""

    def __init__(self, values):
        self.table = torch.tensor(values)
        self.agent = self

    def values(self, observations):
        return self.table[observations[..., 0].long()]

    def policy(self, observations):
        return self

    def log_probs(self, actions):
        return torch.zeros(actions.shape)


def rollout(rewards, terminated):
    """One episode or more through the states 0, 1, 2, ..."""
    steps = len(rewards)
    state = torch.arange(steps + 1).view(1, 1, -1, 1).float()
    flags = torch.tensor(terminated).bool().view(1, 1, -1)
    return Rollout(
        observations=state[:, :, :-1],
        actions=torch.zeros(1, 1, steps, dtype=torch.int64),
        rewards=torch.tensor(rewards).float().view(1, 1, -1),
        terminated=flags,
        truncated=torch.zeros_like(flags),
        next_observations=state[:, :, 1:],
        mask=torch.ones_like(flags),
    )


def batch_of(name, values, rewards, terminated, gamma=0.9, lam=0.8):
    config = PPOConfig(gamma=gamma, lam=lam, normalize_advantages="none")
    made = (STEPS if name is None else FAULTS[name].steps()).make_batch
    return made(Table(values), rollout(rewards, terminated), config, gae)


@pytest.mark.parametrize(
    ("name", "case", "right", "wrong"),
    [
        # CASES K08
        (
            "end-read-late",
            ([1.0, 2.0, 3.0, 4.0], [1, 1, 1], [0, 1, 0]),
            [1.08, -1.0, 1.6],
            [0.0, 2.852, 1.6],
        ),
        # CASES K11 at lambda .8: nothing is left of the only reward.
        (
            "reward-shifted",
            ([0.0, 0.0, 0.0, 0.0], [0, 0, 1], [0, 0, 1]),
            [0.72**2, 0.72, 1.0],
            [0.0, 0.0, 0.0],
        ),
        # An episode after it begins with 0, not with what the one before lost.
        (
            "reward-shifted",
            ([0.0, 0.0, 0.0, 0.0, 0.0], [5, 7, 2, 3], [0, 1, 0, 1]),
            [5 + 0.72 * 7, 7.0, 2 + 0.72 * 3, 3.0],
            [0.72 * 5, 5.0, 0.72 * 2, 2.0],
        ),
    ],
)
def test_what_is_read_wrong_gives_the_numbers_of_the_case(name, case, right, wrong):
    for fault, numbers in ((None, right), (name, wrong)):
        found = batch_of(fault, *case).advantages[0]
        torch.testing.assert_close(found, torch.tensor(numbers), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (None, [4.0, 6.0]),
        ("stale-value-target", [3.0, 4.0]),  # CASES K12
        ("target-of-whitened", [2.0, 5.0]),  # [1, 2] whitened is [-1, 1]
        ("rewards-for-returns", [4.0, 6.0]),  # here the last rewards, by construction
    ],
)
def test_targets_of_a_critic_that_are_none(name, wrong):
    """Advantages [1, 2] and values [3, 4], from two episodes of one step."""
    batch = batch_of(name, [3.0, 4.0, 0.0], [4, 6], [1, 1])
    torch.testing.assert_close(batch.advantages[0], torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(batch.returns[0], torch.tensor(wrong), atol=1e-4, rtol=0)


def test_a_reward_is_no_return():
    batch = batch_of("rewards-for-returns", [0.0] * 4, [1, 1, 1], [0, 0, 1])
    assert batch.returns[0].tolist() == [1.0, 1.0, 1.0]


def test_the_sign_of_an_advantage_is_turned():
    case = ([1.0, 2.0, 3.0, 4.0], [1, 1, 1], [0, 1, 0])
    right, wrong = batch_of(None, *case), batch_of("advantage-sign", *case)
    assert torch.equal(wrong.advantages, -right.advantages)
    assert torch.equal(wrong.returns, right.returns)


def test_the_state_after_a_reset_is_taken_for_the_state_reached():
    env = CartPole(4, seeds=2, max_steps=20)
    learner = Learner(env, SMALL)
    real, _ = collect_steps(env, learner.sampler, env.reset(), 50)
    seen = []

    def spy(rewards, values, next_values, **flags):
        seen.append((values, next_values))
        return rewards, rewards

    for name in (None, "reset-state-bootstrapped"):
        made = (STEPS if name is None else FAULTS[name].steps()).make_batch
        made(learner, real, SMALL, spy)
    (values, right), (_, wrong) = seen
    ended = (real.terminated | real.truncated)[0]
    torch.testing.assert_close(wrong[:, :-1], values[:, 1:], rtol=0, atol=1e-6)
    same = (right - wrong).abs() < 1e-6
    assert same[~ended].all() and not same[:, :-1][ended[:, :-1]].any()


def sampled_batch(size=64):
    generator = torch.Generator().manual_seed(0)
    learner = Learner(CartPole(1, seeds=0), SMALL)
    seen = torch.randn(1, size, 4, generator=generator)
    number = torch.arange(size).view(1, -1)
    with torch.no_grad():
        log_probs = learner.agent.policy(seen).log_probs(number % 2)
    scores = number.float()
    return learner, Batch(seen, number % 2, log_probs, scores, scores, 10 * scores)


def test_two_permutations_pair_advantages_with_other_steps():
    """CASES K60: each sum of a pair should be 11 times a number."""
    config = dataclasses.replace(SMALL, normalize_advantages="none")
    _, batch = sampled_batch()
    for name, paired in ((None, True), ("two-permutations", False)):
        split = (STEPS if name is None else FAULTS[name].steps()).minibatches
        generators = [torch.Generator().manual_seed(1)]
        pieces = list(split(batch, config, generators))
        sums = torch.cat([one.advantages + one.returns for one in pieces], 1)
        assert (torch.remainder(sums, 11) == 0).all().item() == paired
        assert sums.sum() == (batch.advantages + batch.returns).sum()


def test_what_is_not_shuffled_comes_as_it_was():
    _, batch = sampled_batch()
    config = dataclasses.replace(SMALL, minibatch_size=20)
    split = FAULTS["not-shuffled"].steps().minibatches
    pieces = list(split(batch, config, [torch.Generator()]))
    assert [one.advantages.shape[1] for one in pieces] == [20, 20, 20, 4]
    assert torch.equal(
        torch.cat([x.observations for x in pieces], 1), batch.observations
    )


def loss_of(name, agent, batch, config):
    loss_fn = (STEPS if name is None else FAULTS[name].steps()).loss
    return loss_fn(
        agent,
        batch,
        config=config,
        policy_loss_fn=policy_objective(config, None),
        value_loss_fn=value_loss,
    )


def at_ratio(learner, batch, ratio):
    return dataclasses.replace(
        batch, old_log_probs=batch.old_log_probs - math.log(ratio)
    )


@pytest.mark.parametrize(
    ("ratio", "advantage", "right", "maximum", "upside_down"),
    [
        (1.5, 1.0, -1.2, -1.5, -1 / 1.5),
        (1.5, -1.0, 1.5, 1.2, 0.8),
        (0.5, -1.0, 0.8, 0.5, 2.0),
        (0.5, 1.0, -0.5, -0.8, -1.2),
    ],
)
def test_the_wrong_surrogates_have_the_values_of_the_case(
    ratio, advantage, right, maximum, upside_down
):
    """CASES K31: the minimum of ratio A and clipped ratio A, to be maximised."""
    config = dataclasses.replace(SMALL, normalize_advantages="none")
    learner, batch = sampled_batch()
    batch = at_ratio(learner, batch, ratio)
    batch = dataclasses.replace(
        batch, advantages=torch.full_like(batch.advantages, advantage)
    )
    for name, value in (
        (None, right),
        ("maximum-for-minimum", maximum),
        ("ratio-upside-down", upside_down),
    ):
        _, numbers = loss_of(name, learner.agent, batch, config)
        assert numbers["policy_loss"].item() == pytest.approx(value, abs=1e-5)


def test_the_critic_is_trained_by_the_policys_loss_when_not_detached():
    config = dataclasses.replace(SMALL, vf_coef=0.0, ent_coef=0.0)
    learner, batch = sampled_batch()
    for name, reaches in ((None, False), ("advantages-not-detached", True)):
        learner.parameters.zero_gradients()
        loss, _ = loss_of(name, learner.agent, batch, config)
        loss.backward()
        slopes = [one.grad for one in learner.agent.value_net.parameters()]
        assert any(one.abs().max() > 1e-4 for one in slopes) == reaches


def test_every_value_is_trained_on_every_return():
    """CASES K39: values [1, 2] against returns [1, 2] as a table cost 1/4, not 0."""
    learner, batch = sampled_batch(2)
    values = learner.agent.values(batch.observations).detach()
    batch = dataclasses.replace(batch, returns=values)
    spread = float((values[0, 0] - values[0, 1]) ** 2) / 4
    for name, cost in ((None, 0.0), ("values-against-a-table", spread)):
        _, numbers = loss_of(name, learner.agent, batch, SMALL)
        assert numbers["value_loss"].item() == pytest.approx(cost, abs=1e-7)
    assert spread > 1e-4


def test_the_ratio_to_the_reference_is_one_only_while_nothing_has_moved():
    env = small_env()
    learner = Learner(env, SMALL)
    steps = FAULTS["ratio-to-the-reference"].steps()
    rollout_, _ = collect_steps(env, learner.sampler, env.reset(), 20)
    right, wrong = (
        made(learner, rollout_, SMALL, gae)
        for made in (STEPS.make_batch, steps.make_batch)
    )
    torch.testing.assert_close(right.old_log_probs, wrong.old_log_probs)
    with torch.no_grad():
        learner.agent.policy_net[-1].bias += torch.tensor([1.0, 0.0])
    right, again = (
        made(learner, rollout_, SMALL, gae)
        for made in (STEPS.make_batch, steps.make_batch)
    )
    torch.testing.assert_close(again.old_log_probs, wrong.old_log_probs)
    assert (right.old_log_probs - again.old_log_probs).abs().max() > 0.1
    # Another run has a reference of its own.
    fresh = FAULTS["ratio-to-the-reference"].steps()
    other = fresh.make_batch(learner, rollout_, SMALL, gae)
    torch.testing.assert_close(other.old_log_probs, right.old_log_probs)


@pytest.mark.parametrize(
    ("name", "share"),
    [(None, 0.9), ("softmax-twice", 0.6900), ("greedy-sampling", 1.0)],
)
def test_actions_are_drawn_from_another_policy_than_the_one_that_is_scored(name, share):
    """p = [.9, .1]: softmax of that once more is [.69, .31]; its mode is sure."""
    env = CartPole(200, seeds=0)
    learner = Learner(env, SMALL)
    with torch.no_grad():
        for one in learner.agent.policy_net.parameters():
            one.zero_()
        learner.agent.policy_net[-1].bias += torch.tensor([0.9, 0.1]).log()
    collect = (STEPS if name is None else FAULTS[name].steps()).collect
    made, _ = collect(env, learner.sampler, env.reset(), 100)
    error = (share * (1 - share) / 20_000) ** 0.5
    assert abs((made.actions == 0).float().mean().item() - share) <= 4 * error
    assert type(learner.agent).__name__ == "ActorCritic"
