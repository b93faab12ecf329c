"""device="auto", and an update that never waits for the device it runs on."""

import dataclasses
import functools

import gymnasium
import pytest
import torch

from benchmarks.device_ppo import time_ppo
from course_lib.algorithms.batch import Batch, in_pieces
from course_lib.algorithms.learner import Learner
from course_lib.algorithms.ppo import PPOConfig, policy_objective, ppo_loss, update
from course_lib.envs import CartPole, GymnasiumVector, best_device, devices
from course_lib.models import Adam, FlatParameters

SMALL = PPOConfig(num_epochs=2, minibatch_size=16)


@pytest.fixture
def machine(monkeypatch):
    def with_devices(cuda, mps):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return with_devices


@pytest.mark.parametrize(
    ("cuda", "mps", "chosen"),
    [
        (True, True, "cuda"),
        (True, False, "cuda"),
        (False, True, "mps"),
        (False, False, "cpu"),
    ],
)
def test_cuda_comes_before_mps_and_mps_before_the_cpu(machine, cuda, mps, chosen):
    machine(cuda, mps)
    assert best_device() == torch.device(chosen)


def test_auto_is_the_cpu_where_there_is_nothing_else(machine):
    machine(False, False)
    env = CartPole(2, seeds=0, device="auto")
    assert env.device.type == env.reset().device.type == "cpu"


@pytest.mark.parametrize("given", ["auto", "meta"])
def test_both_environments_live_where_they_are_told_or_on_the_best(monkeypatch, given):
    # "meta" stands in for an accelerator: it has shapes and no numbers.
    monkeypatch.setattr(devices, "best_device", lambda: torch.device("meta"))
    assert CartPole(2, seeds=0, device=given).device.type == "meta"
    vector = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    env = GymnasiumVector(vector, seeds=0, device=given)
    assert env.device.type == env.reset().device.type == "meta"
    env.close()


def learner_and_batch_without_numbers(config):
    """On "meta", where reading a number back is an error, as it is a wait on a GPU."""
    learner = Learner(CartPole(4, seeds=0), config, shared=config.shared)
    learner.parameters = FlatParameters(learner.agent.to("meta"))
    learner.optimizer = Adam(learner.parameters, config.learning_rate)
    numbers = torch.empty(len(config.seeds), 40, device="meta")
    observations = torch.empty(len(config.seeds), 40, 4, device="meta")
    actions = numbers.long()
    return learner, Batch(observations, actions, *[numbers] * 4)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"seeds": (0, 1), "shared": True},
        {"value_clip": 0.2, "normalize_advantages": "none"},
        {"penalty": 1.0},
    ],
    ids=["plain", "shared", "value-clip", "penalty"],
)
def test_an_update_reads_no_number_back_from_its_device(changes):
    config = dataclasses.replace(SMALL, **changes)
    learner, batch = learner_and_batch_without_numbers(config)
    loss = functools.partial(
        ppo_loss, config=config, policy_loss_fn=policy_objective(config, config.penalty)
    )
    numbers = update(learner, batch, config, loss, lambda b, c, _: in_pieces(b, c))
    assert {one.device.type for one in numbers.values()} == {"meta"}
    assert learner.optimizer.steps == 2 * 3  # epochs of minibatches


def test_that_would_be_seen():
    config = dataclasses.replace(SMALL, target_kl=0.01)
    learner, batch = learner_and_batch_without_numbers(config)
    loss = functools.partial(
        ppo_loss, config=config, policy_loss_fn=policy_objective(config, None)
    )
    with pytest.raises((RuntimeError, NotImplementedError)):
        update(learner, batch, config, loss, lambda b, c, _: in_pieces(b, c))


def test_the_device_benchmark_trains_where_it_is_told():
    (row,) = time_ppo(torch.device("cpu"), ((4, 16),), updates=1)
    assert row["name"] == "PPO on CartPole" and row["shape"] == [4, 16]
    assert row["steps_per_second"] > 0
    assert row["microseconds"].keys() == {"a rollout", "an update's minibatch"}
