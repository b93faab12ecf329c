"""TD errors and GAE, against sums written from their definitions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.kernels import (
    gae,
    td_errors,
)
from tests.engines import ENGINES, INTERPRETED, examples
from tests.given_steps import SEEDS, SHARES, WEIGHTS, random_steps
from tests.reference_kernels import (
    advantage,
    advantages_backwards,
    for_each_step,
    td_error,
)

INF, NAN = math.inf, math.nan


def draw_steps(data, shape, dtype=torch.float64):
    """Rewards, values, next values, two kinds of ends, and a mask or None."""
    seed = data.draw(SEEDS)
    steps = random_steps(seed, shape, data.draw(SHARES), dtype)
    share = data.draw(st.sampled_from([0.0, 0.5, 0.9]))
    real = torch.rand(shape, generator=torch.Generator().manual_seed(~seed)) < share
    return *steps, real if data.draw(st.booleans()) else None


SHAPES = st.sampled_from([(1,), (2,), (9,), (1, 1), (3, 5), (4, 7), (6, 33), (2, 3, 4)])


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), shape=SHAPES, gamma=WEIGHTS, lam=WEIGHTS)
def test_gae_is_the_weighted_sum_for_any_ends_and_any_mask(data, shape, gamma, lam):
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]))
    *steps, mask = draw_steps(data, shape, dtype)
    expected = for_each_step(
        advantage, torch.Size(shape), *steps, mask, gamma=gamma, lam=lam
    )
    targets = expected + steps[1]
    if mask is not None:
        targets = torch.where(mask, targets, 0.0)
        for x in steps[:3]:
            x[~mask] = data.draw(st.sampled_from([NAN, INF, -INF, 1e9]))
    for engine in ENGINES:
        advantages, returns = gae(
            *steps[:3],
            terminated=steps[3],
            truncated=steps[4],
            mask=mask,
            gamma=gamma,
            lam=lam,
            engine=engine,
            validate=True,
        )
        near = {"rtol": 1e-7, "atol": 1e-7 if dtype == torch.float64 else 1e-5}
        torch.testing.assert_close(advantages, expected.to(dtype), **near)
        torch.testing.assert_close(returns, targets.to(dtype), **near)


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data(), shape=SHAPES, gamma=WEIGHTS)
def test_td_errors_are_their_definition_for_any_ends(data, shape, gamma):
    rewards, values, after, terminated, truncated, _ = draw_steps(data, shape)
    expected = for_each_step(
        td_error, rewards.shape, rewards, values, after, terminated,
        truncated, None, gamma=gamma,
    )  # fmt: skip
    after[terminated] = data.draw(st.sampled_from([NAN, INF, -INF]))
    errors = td_errors(rewards, values, after, terminated=terminated, gamma=gamma)
    torch.testing.assert_close(errors, expected)


@settings(max_examples=examples(40), deadline=None)
@given(
    data=st.data(),
    shape=SHAPES,
    dtypes=st.lists(
        st.sampled_from(
            [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64]
        ),
        min_size=3,
        max_size=3,
    ),
)
def test_any_mixture_of_dtypes_gives_the_one_that_torch_promotes_to(
    data, shape, dtypes
):
    *steps, mask = draw_steps(data, shape, torch.float32)
    steps[:3] = [(3 * x).to(d) for x, d in zip(steps[:3], dtypes, strict=True)]
    wanted = (steps[0][:0] + steps[1][:0] + steps[2][:0]).dtype
    wanted = wanted if wanted.is_floating_point else torch.float32
    expected = for_each_step(
        advantage, torch.Size(shape), *steps, mask, gamma=0.9, lam=0.8
    )
    for engine in ENGINES:
        advantages, returns = gae(
            *steps[:3],
            terminated=steps[3],
            truncated=steps[4],
            mask=mask,
            gamma=0.9,
            lam=0.8,
            engine=engine,
        )
        assert advantages.dtype == returns.dtype == wanted
        # A narrow result is the float32 sum, rounded once; the sum is as accurate as
        # its largest number, since a small one may be a difference of two.
        rounding = torch.finfo(wanted).eps
        near = max(rounding / 8, 5e-7 * expected.abs().max().item())
        torch.testing.assert_close(
            advantages.double(), expected, rtol=rounding, atol=near
        )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("gamma", "lam", "tolerance"),
    [(0.99, 0.95, 5e-7), (1.0, 0.95, 5e-7), (0.95, 1.0, 5e-7), (1.0, 1.0, 4e-6)],
)
@pytest.mark.parametrize("rows", [1] if INTERPRETED else [1, 6])
@pytest.mark.parametrize("kind", ["random", "ones"])
def test_four_thousand_steps_keep_float32_accuracy(
    engine, gamma, lam, tolerance, rows, kind
):
    shape, generator = (rows, 4096), torch.Generator().manual_seed(3)
    if kind == "ones":  # the sum that grows longest
        rewards, values, after = torch.ones(shape), torch.zeros(shape), None
        after, ends = torch.zeros(shape), torch.zeros((2, *shape), dtype=torch.bool)
    else:
        rewards, values, after = torch.randn((3, *shape), generator=generator)
        ends = torch.rand((2, *shape), generator=generator) < 0.0005
    steps = (rewards, values, after, *ends)
    by_row = zip(*(x.tolist() for x in steps), strict=True)
    expected = torch.tensor(
        [advantages_backwards(*row, gamma, lam) for row in by_row], dtype=torch.float64
    )
    advantages, _ = gae(
        rewards,
        values,
        after,
        terminated=ends[0],
        truncated=ends[1],
        gamma=gamma,
        lam=lam,
        engine=engine,
    )
    worst = (advantages.double() - expected).abs().max() / expected.abs().max()
    # The interpreter adds one step after the other, where a GPU adds as a tree.
    assert worst < (4e-6 if INTERPRETED else tolerance)


def test_the_long_reference_is_the_definition():
    generator = torch.Generator().manual_seed(0)
    rewards, values, after = torch.randn((3, 1, 60), generator=generator).double()
    ends = torch.rand((2, 1, 60), generator=generator) < 0.1
    steps = (rewards, values, after, *ends)
    expected = for_each_step(advantage, rewards.shape, *steps, None, gamma=0.9, lam=0.7)
    rows = (x[0].tolist() for x in steps)
    torch.testing.assert_close(
        torch.tensor(advantages_backwards(*rows, 0.9, 0.7), dtype=torch.float64),
        expected[0],
    )


def test_numba_walks_any_number_of_rows_and_of_blocks_of_steps():
    generator = torch.Generator().manual_seed(5)
    shapes = [(rows, 9) for rows in (2, 3, 4, 5, 7, 8, 11)]
    for shape in [*shapes, (1, 4096), (1, 4097), (5, 9000)]:
        x = torch.randn((3, *shape), generator=generator, dtype=torch.float64)
        ends = torch.rand((2, *shape), generator=generator) < 0.0005
        advantages, returns = gae(
            *x, terminated=ends[0], truncated=ends[1], gamma=0.999, lam=1.0,
            engine="numba",
        )  # fmt: skip
        expected = [
            advantages_backwards(*(y[row].tolist() for y in (*x, *ends)), 0.999, 1.0)
            for row in range(shape[0])
        ]
        torch.testing.assert_close(
            advantages, torch.tensor(expected, dtype=torch.float64)
        )
        torch.testing.assert_close(returns, advantages + x[1])


TO_THE_RIGHT = [1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6]
# Values, then (lam, bias, standard deviation) of the advantage of (C, right).
RANDOM_WALK = [
    ([0.5] * 5, [(0, -0.1667, 0), (0.5, -0.1333, 0.0547), (0.9, -0.0397, 0.2542),
                 (0.95, -0.0210, 0.3311), (1, 0, 0.4714)]),
    (TO_THE_RIGHT, [(0, 0, 0), (0.5, 0, 0.0954), (0.9, 0, 0.2832),
                    (0.95, 0, 0.3501), (1, 0, 0.4714)]),
    (TO_THE_RIGHT[::-1], [(0, -1 / 3, 0)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "rows"), RANDOM_WALK, ids=["half", "exact", "wrong"]
)
def test_bias_and_spread_on_the_random_walk_are_the_exact_ones(values, rows):
    """CLAIMS row 33: states A to E, first from C to the right, 1 for leaving there."""
    walks, length = 40_000, 150
    generator = torch.Generator().manual_seed(7)
    moves = torch.randint(0, 2, (walks, length), generator=generator) * 2 - 1
    moves[:, 0] = 1
    places = 2 + moves.cumsum(-1)  # [walks, T], -1 and 5 lie outside
    outside = (places < 0) | (places > 4)
    ended = outside & (outside.cumsum(-1) == 1)
    mask = outside.cumsum(-1) - ended.long() == 0
    assert ended.any(-1).float().mean() > 0.9999
    table = torch.tensor(values)
    after = table[places.clamp(0, 4)]
    current = torch.cat([table[2].expand(walks, 1), after[:, :-1]], -1)
    rewards = (places == 5).float()
    for lam, bias, spread in rows:
        advantages, _ = gae(
            rewards, current, after, terminated=ended, mask=mask, gamma=1.0, lam=lam
        )
        first = advantages[:, 0]
        error = spread / math.sqrt(walks)
        assert abs(first.mean() - 1 / 6 - bias) < 4 * error + 1e-4
        assert abs(first.std() - spread) < 0.02 * spread + 1e-4
