"""n-step advantages, against their definition and as the parts of GAE."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.kernels import (
    NaNInputError,
    discounted_returns,
    gae,
    n_step_advantages,
    shift_values,
    td_errors,
)
from tests.given_steps import SEEDS, SHARES, WEIGHTS, random_steps
from tests.reference_kernels import for_each_step, n_step_advantage

SHAPES = st.sampled_from([(1,), (2,), (9,), (3, 5), (2, 20), (2, 3, 4)])


@settings(max_examples=100, deadline=None)
@given(
    seed=SEEDS,
    shape=SHAPES,
    share=SHARES,
    gamma=WEIGHTS,
    n=st.integers(1, 25),
)
def test_it_is_n_rewards_and_then_a_value(seed, shape, share, gamma, n):
    steps = random_steps(seed, shape, share)
    expected = for_each_step(
        n_step_advantage, torch.Size(shape), *steps, gamma=gamma, n=n
    )
    steps[2][steps[3]] = math.nan  # behind a termination nothing is looked at
    result = n_step_advantages(
        *steps[:3], terminated=steps[3], truncated=steps[4], gamma=gamma, n=n
    )
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.95, 1.0])
def test_gae_is_their_mean_with_geometric_weights(lam):
    """(1 - lam) lam^(n-1) for each n short of the row, the rest on the return."""
    length = 12
    rewards, values, last, terminated, truncated = random_steps(0, (3, length), 0.1)
    after = shift_values(values, last[:, 0])
    options = {"terminated": terminated, "truncated": truncated, "gamma": 0.9}
    mean = torch.zeros_like(rewards)
    for n in range(1, length):
        part = n_step_advantages(rewards, values, after, n=n, **options)
        mean += (1 - lam) * lam ** (n - 1) * part
    whole = n_step_advantages(rewards, values, after, n=length, **options)
    mean += lam ** (length - 1) * whole
    advantages, _ = gae(rewards, values, after, lam=lam, **options)
    torch.testing.assert_close(mean, advantages)


def test_the_ends_of_the_scale_are_the_td_error_and_the_return():
    rewards, values, after, terminated, truncated = random_steps(1, (4, 15), 0.1)
    options = {"terminated": terminated, "gamma": 0.9}
    torch.testing.assert_close(
        n_step_advantages(rewards, values, after, n=1, truncated=truncated, **options),
        td_errors(rewards, values, after, **options),
    )
    options |= {"truncated": truncated}
    whole = discounted_returns(rewards, next_values=after, **options)
    for n in (15, 16, 10**9):
        result = n_step_advantages(rewards, values, after, n=n, **options)
        torch.testing.assert_close(result, whole - values)


def test_the_five_step_episode_two_steps_ahead():
    rewards = torch.tensor([0.0, 4, 6, -8, 16])
    values = torch.tensor([4.0, 2, 2, 2, 8])
    ended = torch.tensor([False, False, False, False, True])
    result = n_step_advantages(
        rewards, values, shift_values(values, values[0]), terminated=ended,
        gamma=0.5, n=2,
    )  # fmt: skip
    assert result.tolist() == [-1.5, 5.5, 2.0, -2.0, 8.0]


def test_infinity_stays_in_its_own_episode():
    steps = torch.ones((3, 8))
    steps[:, 4:] = math.inf
    for kind in ("terminated", "truncated"):
        ends = {"terminated": torch.zeros(8, dtype=torch.bool)}
        ends[kind] = torch.arange(8) == 3
        result = n_step_advantages(*steps, **ends, gamma=0.9, n=3)
        assert result[:4].isfinite().all() and not result[4:].isfinite().any()


def test_dtypes_follow_the_house_and_nothing_changes_in_place():
    rewards = torch.ones(600, dtype=torch.bfloat16)
    nothing = torch.zeros_like(rewards)
    result = n_step_advantages(
        rewards, nothing, nothing, terminated=nothing.bool(), gamma=1.0, n=600
    )
    assert result.dtype == torch.bfloat16
    assert result[0] == 600  # in bf16 itself the sum would stand still at 256
    assert rewards.sum(dtype=torch.float32) == 600 and not nothing.any()
    counts = torch.tensor([1, 0, 2])
    result = n_step_advantages(
        counts, 0 * counts, 0 * counts, terminated=counts == 2, gamma=0.5, n=3
    )
    assert result.tolist() == [1.5, 1.0, 2.0]
    empty = torch.ones(2, 0)
    result = n_step_advantages(
        empty, empty, empty, terminated=empty.bool(), gamma=0.5, n=3
    )
    assert result.shape == (2, 0)


ONES, NEVER = torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"n": 0}, ValueError, "n must be at least 1, got 0"),
        ({"n": 1.0}, TypeError, "n must be an integer, got float"),
        ({"gamma": 1.5}, ValueError, "gamma must lie in"),
        ({"values": ONES[0]}, ValueError, r"values must have shape \[2, 3\]"),
        ({"truncated": ONES}, TypeError, "truncated must have dtype torch.bool"),
        ({"rewards": ONES * math.nan}, NaNInputError, "rewards must not hold NaN"),
        ({"next_values": ONES * math.nan}, NaNInputError, "next_values must not"),
    ],
)
def test_a_bad_argument_is_refused_by_name(changed, error, words):
    arguments = {
        "rewards": ONES, "values": ONES, "next_values": ONES, "terminated": NEVER,
        "gamma": 0.9, "n": 2,
    }  # fmt: skip
    with pytest.raises(error, match=words):
        n_step_advantages(**(arguments | changed))
