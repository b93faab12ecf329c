"""The backward scan and the returns, against sums written from their definitions."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from course_lib.kernels import (
    NaNInputError,
    discounted_returns,
    reverse_scan,
    scan_engine,
)
from tests.engines import (
    ENGINES,
    INTERPRETED,
    LOOKING_FOR_NAN,
    MANY_ROWS,
    examples,
)

ROOT = Path(__file__).resolve().parent.parent
INF, NAN = math.inf, math.nan
# One shape for each way through the engines: few steps, many rows, doubling at a
# power of two, beside one, and over several batch axes.
SHAPES = [(1,), (2, 31), (MANY_ROWS, 70), (1, 2048), (5, 33), (3, 2, 127)]


def scan_by_hand(x, decay, init=0.0):
    """y_t of one row of floats, in float64; a decay of 0 looks no further."""
    y = [0.0] * len(x)
    for t in reversed(range(len(x))):
        later = y[t + 1] if t + 1 < len(x) else init
        y[t] = x[t] + (decay[t] * later if decay[t] != 0 else 0.0)
    return y


def return_by_hand(t, rewards, gamma, terminated, truncated, next_values):
    """G_t of one row, summed forwards: what is earned until the episode ends."""
    total, weight = 0.0, 1.0
    for k in range(t, len(rewards)):
        total += weight * rewards[k]
        weight *= gamma
        if terminated[k]:
            return total
        if truncated[k] or k == len(rewards) - 1:
            return total + weight * next_values[k]
    raise AssertionError("unreachable")


def largest_error(result: Tensor, rows: list[list[float]]) -> float:
    expected = torch.tensor(rows, dtype=torch.float64).reshape(result.shape)
    scale = expected.abs().max().clamp(min=1e-30)
    return ((result.double() - expected).abs().max() / scale).item()


def scan_rows(x: Tensor, decay: Tensor, init: Tensor) -> list[list[float]]:
    steps = x.shape[-1]
    rows = (x.reshape(-1, steps), decay.reshape(-1, steps), init.reshape(-1))
    return [scan_by_hand(*row) for row in zip(*(r.tolist() for r in rows), strict=True)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("largest_decay", "tolerance"), [(0.95, 5e-7), (1.0, 4e-6)], ids=["0.95", "1"]
)
def test_both_engines_match_the_float64_loop(engine, shape, largest_decay, tolerance):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator)
    init = torch.randn(shape[:-1], generator=generator)
    constant = torch.full(shape, largest_decay)
    ends = torch.rand(shape, generator=generator) < 0.05
    for decay in (constant, constant.masked_fill(ends, 0.0)):
        y = reverse_scan(x, decay, init=init, engine=engine)
        assert largest_error(y, scan_rows(x, decay, init)) < tolerance
    y = reverse_scan(x, largest_decay, init=init, engine=engine)
    in_full = torch.full(shape, largest_decay, dtype=torch.float64)
    assert largest_error(y, scan_rows(x, in_full, init)) < tolerance


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_scan_in_float64_is_the_loop(data):
    shape = data.draw(st.sampled_from([(), (1,), (3,), (2, 2), (260,)]))
    steps = data.draw(st.integers(0, 70))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    draw = {"generator": generator, "dtype": torch.float64}
    x, decay = torch.randn((2, *shape, steps), **draw)
    decay = decay.masked_fill(decay > 1, 0.0)
    init = torch.randn(shape, **draw)
    for engine in ENGINES:
        y = reverse_scan(x, decay, init=init, engine=engine)
        assert y.shape == x.shape and y.dtype == torch.float64
        if steps:
            expected = torch.tensor(scan_rows(x, decay, init), dtype=torch.float64)
            torch.testing.assert_close(y, expected.reshape(y.shape))


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_returns_are_forward_sums_for_any_ends_and_any_gamma(data):
    rows, steps = data.draw(st.sampled_from([(1, 1), (1, 2), (3, 7), (2, 40)]))
    gamma = data.draw(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1)))
    share = data.draw(st.sampled_from([0.0, 0.2, 1.0]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    shape = (rows, steps)
    rewards, values = torch.randn((2, *shape), generator=generator, dtype=torch.float64)
    terminated, truncated = torch.rand((2, *shape), generator=generator) < share
    expected = [
        [return_by_hand(t, *row) for t in range(steps)]
        for row in zip(
            rewards.tolist(),
            [gamma] * rows,
            terminated.tolist(),
            truncated.tolist(),
            values.tolist(),
            strict=True,
        )
    ]
    for engine in ENGINES:
        returns = discounted_returns(
            rewards,
            gamma,
            terminated=terminated,
            truncated=truncated,
            next_values=values,
            engine=engine,
        )
        torch.testing.assert_close(returns, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("engine", ENGINES)
class TestWhatPeopleGetWrong:
    def test_the_worked_example(self, engine):
        """CLAIMS row 1: r = [1, 0, 2, 3], gamma .9."""
        rewards = torch.tensor([1, 0, 2, 3], dtype=torch.float64)
        expected = torch.tensor([4.807, 4.23, 4.7, 3.0], dtype=torch.float64)
        returns = discounted_returns(rewards, 0.9, engine=engine)
        torch.testing.assert_close(returns, expected, rtol=0, atol=1e-12)

    def test_k01_the_sum_stops_at_an_episode_end(self, engine):
        """datawhalechina/easy-rl #114; philtabor/Youtube-Code-Repository PR 58."""
        ended = torch.tensor([False, True, False, False])
        returns = discounted_returns(
            torch.ones(4), 0.9, terminated=ended, engine=engine
        )
        torch.testing.assert_close(returns, torch.tensor([1.9, 1.0, 1.9, 1.0]))

    def test_k02_a_row_cut_in_mid_episode_bootstraps(self, engine):
        """nikhilbarhate99/PPO-PyTorch #38; openai/spinningup #388."""
        returns = discounted_returns(
            torch.ones(2), 0.9, next_values=torch.tensor([0.0, 10.0]), engine=engine
        )
        torch.testing.assert_close(returns, torch.tensor([10.0, 10.0]))

    def test_k13_integer_rewards_keep_their_fractions(self, engine):
        """thu-ml/tianshou #85."""
        returns = discounted_returns(torch.tensor([1, 0, 2]), 0.5, engine=engine)
        torch.testing.assert_close(returns, torch.tensor([1.5, 1.0, 2.0]))

    def test_l18_an_advantage_takes_the_return_and_not_the_reward(self, engine):
        """natolambert/rlhf-book PR 216."""
        rewards = torch.tensor([0.0, 0.0, 1.0])
        returns = discounted_returns(rewards, 1.0, engine=engine)
        torch.testing.assert_close(returns - 0.5, torch.full((3,), 0.5))

    def test_truncation_bootstraps_from_the_state_it_reached(self, engine):
        cut = torch.tensor([False, True, False])
        values = torch.tensor([0.0, 10.0, 2.0])
        returns = discounted_returns(
            torch.ones(3), 0.9, truncated=cut, next_values=values, engine=engine
        )
        torch.testing.assert_close(returns, torch.tensor([10.0, 10.0, 2.8]))

    def test_truncation_without_values_only_cuts(self, engine):
        cut = torch.tensor([False, True, False])
        returns = discounted_returns(torch.ones(3), 0.9, truncated=cut, engine=engine)
        torch.testing.assert_close(returns, torch.tensor([1.9, 1.0, 1.0]))

    def test_terminated_rules_where_both_flags_are_set(self, engine):
        both = torch.tensor([True, False, True])
        returns = discounted_returns(
            torch.ones(3),
            0.9,
            terminated=both,
            truncated=both,
            next_values=torch.full((3,), 100.0),
            engine=engine,
        )
        torch.testing.assert_close(returns, torch.tensor([1.0, 1.9, 1.0]))

    @pytest.mark.parametrize("junk", [INF, -INF, NAN])
    def test_a_value_that_is_not_used_reaches_no_return(self, engine, junk):
        ended = torch.tensor([False, False, True, False])
        cut = torch.tensor([False, True, False, False])
        values = torch.tensor([junk, 10.0, junk, 5.0])
        returns = discounted_returns(
            torch.ones(4),
            0.9,
            terminated=ended,
            truncated=cut,
            next_values=values,
            engine=engine,
            validate=True,
        )
        torch.testing.assert_close(returns, torch.tensor([10.0, 10.0, 1.0, 5.5]))

    def test_gamma_zero_looks_at_no_value_at_all(self, engine):
        returns = discounted_returns(
            torch.ones(2), 0.0, next_values=torch.full((2,), INF), engine=engine
        )
        assert returns.tolist() == [1.0, 1.0]

    def test_a_decay_of_zero_cuts_off_infinity(self, engine):
        for steps in (4, 400):
            x, decay = torch.ones(steps), torch.full((steps,), 0.5)
            x[2:], decay[1] = INF, 0.0
            y = reverse_scan(x, decay, init=torch.tensor(-1.0), engine=engine)
            assert y[:2].tolist() == [1.5, 1.0]
            assert y[2] == INF
            decay[-1], x[2:] = 0.0, 1.0
            y = reverse_scan(x, decay, init=torch.tensor(INF), engine=engine)
            assert y.isfinite().all()

    def test_a_constant_decay_of_zero_gives_x(self, engine):
        x = torch.tensor([1.0, INF, 2.0])
        y = reverse_scan(x, 0.0, init=torch.tensor(INF), engine=engine)
        assert y.tolist() == [1.0, INF, 2.0]

    def test_nothing_stays_nothing_however_far_a_decay_beyond_one_grows(self, engine):
        """2^128 is no float32: 0 times it was NaN where decays are multiplied first.

        The earliest decays are small, so that a look at the row's first sum alone does
        not show it.
        """
        nothing = torch.zeros(1, 300)
        grows = torch.full_like(nothing, -2.0)
        grows[0, :40] = 2.0**-8
        for decay in (2.0, -2.0, grows):
            assert not reverse_scan(nothing, decay, engine=engine).any()

    def test_a_product_of_decays_may_overflow_and_the_sum_may_not(self, engine):
        length = 100 if INTERPRETED else 200  # triton multiplies the decays first
        x = torch.zeros(1, length)
        x[0, -1] = 2.0**-120
        for decay in (2.0, torch.full_like(x, 2.0)):
            y = reverse_scan(x, decay, engine=engine)
            assert y[0].tolist() == [2.0 ** (length - 121 - t) for t in range(length)]

    def test_narrow_floats_are_summed_in_float32(self, engine):
        # In bf16 itself the sum of ones would stand still at 256, and .99 be .988.
        for dtype in (torch.bfloat16, torch.float16):
            x = torch.ones(1024, dtype=dtype)
            y = reverse_scan(x, 1.0, engine=engine)
            assert y.dtype == dtype and y[0] == 1024
        rewards = torch.ones(600, dtype=torch.bfloat16)
        no_end = torch.zeros(600, dtype=torch.bool)
        returns = discounted_returns(rewards, 0.99, truncated=no_end, engine=engine)
        assert returns.dtype == torch.bfloat16
        assert abs(returns[0].item() - (1 - 0.99**600) / 0.01) < 0.5

    def test_nothing_is_changed_in_place(self, engine):
        for shape in [(3, 50), (MANY_ROWS, 50), (3, 8)]:
            for transposed in (False, True):
                x, decay = torch.rand((2, *shape))
                if transposed:  # the layout in which a lazy copy would be none
                    x, decay = torch.rand((2, *shape[::-1])).transpose(1, 2)
                init = torch.rand(shape[0])
                before = [a.clone() for a in (x, decay, init)]
                y = reverse_scan(x, decay, init=init, engine=engine)
                reverse_scan(x, 0.9, init=init, engine=engine)
                for argument, copy in zip((x, decay, init), before, strict=True):
                    assert torch.equal(argument, copy)
                assert y.data_ptr() != x.data_ptr()
                again = reverse_scan(
                    x.contiguous(), decay.contiguous(), init=init, engine=engine
                )
                torch.testing.assert_close(y, again)

    def test_strided_input_is_read_where_it_lies(self, engine):
        x = torch.arange(12.0).reshape(2, 6)[:, ::2]  # [[0, 2, 4], [6, 8, 10]]
        y = reverse_scan(x, 1.0, engine=engine)
        assert y.tolist() == [[6.0, 6.0, 4.0], [24.0, 18.0, 10.0]]

    @pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 3)])
    def test_nothing_in_gives_nothing_out(self, engine, shape):
        y = reverse_scan(torch.ones(shape), 0.9, engine=engine)
        assert y.shape == shape
        flags = torch.ones(shape, dtype=torch.bool)
        returns = discounted_returns(
            torch.ones(shape, dtype=torch.long),
            0.9,
            terminated=flags,
            next_values=torch.ones(shape),
            engine=engine,
        )
        assert returns.shape == shape and returns.dtype == torch.float32

    def test_results_carry_no_gradient(self, engine):
        x = torch.ones(3, requires_grad=True)
        decay = torch.full((3,), 0.5, requires_grad=True)
        assert not reverse_scan(x, decay, engine=engine).requires_grad
        returns = discounted_returns(x, 0.9, next_values=decay, engine=engine)
        assert not returns.requires_grad


class TestNaN:
    @pytest.mark.parametrize("place", ["x", "decay", "init"])
    @pytest.mark.parametrize("how", LOOKING_FOR_NAN)
    def test_is_refused_by_name_and_place(self, place, how):
        arguments = {"x": torch.ones(2, 3), "decay": torch.ones(2, 3)}
        arguments["init"] = torch.ones(2)
        arguments[place].view(-1)[1] = NAN
        with pytest.raises(NaNInputError, match=rf"{place} must not hold NaN.*index"):
            reverse_scan(**arguments, **how)

    def test_behind_a_cut_is_still_refused(self):
        x, decay = torch.tensor([1.0, NAN]), torch.zeros(2)
        with pytest.raises(NaNInputError, match="x must not"):
            reverse_scan(x, decay, engine="numba")
        with pytest.raises(NaNInputError, match="init must not"):
            reverse_scan(x[:1], decay[:1], init=torch.tensor(NAN), engine="numba")

    @pytest.mark.parametrize("shape", [(1, 40), (MANY_ROWS, 40), (1, 9)])
    def test_stays_within_its_episode_on_torch(self, shape):
        x, decay = torch.ones(shape), torch.full(shape, 0.5)
        x[..., 6:], decay[..., 7:] = NAN, NAN
        decay[..., 4] = 0.0
        y = reverse_scan(x, decay, engine="torch")
        assert y[..., :5].isfinite().all() and y[..., 5:].isnan().all()

    def test_in_the_returns_is_told_in_the_callers_words(self):
        rewards, values = torch.ones(3), torch.ones(3)
        rewards[1] = NAN
        with pytest.raises(NaNInputError, match=r"rewards must not .* index \[1\]"):
            discounted_returns(rewards, 0.9, engine="numba")
        values[2] = NAN
        with pytest.raises(NaNInputError, match=r"next_values must not .* \[2\]"):
            discounted_returns(torch.ones(3), 0.9, next_values=values, engine="numba")

    def test_made_of_infinities_is_the_callers_own(self):
        y = reverse_scan(torch.tensor([INF, -INF]), 1.0, engine="numba")
        assert y[0].isnan() and y[1] == -INF
        cut = torch.tensor([True, False])
        returns = discounted_returns(
            torch.tensor([INF, 1.0]),
            0.5,
            truncated=cut,
            next_values=torch.tensor([-INF, 2.0]),
            engine="numba",
        )
        assert returns[0].isnan() and returns[1] == 2.0


ONES = torch.ones(2, 3)
FLAGS = torch.zeros(2, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: reverse_scan([1.0], 0.9), TypeError, "x must be a torch.Tensor"),
        (lambda: reverse_scan(torch.tensor(1.0), 0.9), ValueError, "x must have"),
        (lambda: reverse_scan(ONES + 1j, 0.9), TypeError, "x must be real"),
        (lambda: reverse_scan(ONES, ONES[:1]), ValueError, "decay must have shape"),
        (lambda: reverse_scan(ONES, ONES[:, :1]), ValueError, "decay must have shape"),
        (lambda: reverse_scan(ONES, ONES[0, 0]), ValueError, "decay must have shape"),
        (lambda: reverse_scan(ONES, "1"), TypeError, "decay must be a number"),
        (lambda: reverse_scan(ONES, NAN), NaNInputError, "decay must not be NaN"),
        (lambda: reverse_scan(ONES, INF), ValueError, "decay must be finite"),
        (
            lambda: reverse_scan(ONES, 0.9, init=torch.ones(2, 1)),
            ValueError,
            r"init must have shape \[2\], got \[2, 1\]",
        ),
        (
            lambda: reverse_scan(ONES, ONES.to("meta")),
            ValueError,
            "decay must be on cpu, got meta",
        ),
        (lambda: reverse_scan(ONES, 0.9, engine="c"), ValueError, "engine must be"),
        (lambda: scan_engine(ONES.to("meta"), "numba"), ValueError, "on the CPU"),
        (lambda: discounted_returns(ONES, 1.01), ValueError, "gamma must lie in"),
        (lambda: discounted_returns(ONES, -0.1), ValueError, "gamma must lie in"),
        (lambda: discounted_returns(ONES, NAN), ValueError, "gamma must lie in"),
        (lambda: discounted_returns(ONES, True), TypeError, "gamma must be a number"),
        (lambda: discounted_returns([1.0], 0.9), TypeError, "rewards must be"),
        (
            lambda: discounted_returns(ONES, 0.9, terminated=FLAGS.float()),
            TypeError,
            "terminated must have dtype torch.bool",
        ),
        (
            lambda: discounted_returns(ONES, 0.9, truncated=FLAGS[0]),
            ValueError,
            r"truncated must have shape \[2, 3\], got \[3\]",
        ),
        (
            lambda: discounted_returns(ONES, 0.9, next_values=ONES[:, -1]),
            ValueError,
            r"next_values must have shape \[2, 3\], got \[2\]",
        ),
    ],
)
def test_a_bad_argument_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_the_engine_can_be_seen_and_forced():
    x = torch.ones(2)
    assert scan_engine(x) == "numba"
    assert scan_engine(x, "torch") == "torch"
    assert scan_engine(x.to("meta")) == "torch"


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_numba_the_torch_engine_serves():
    said = run_python(
        "import sys; sys.modules['numba'] = None\n"
        "import torch\n"
        "from course_lib.kernels import discounted_returns, gae, scan_engine\n"
        "rewards = torch.tensor([1.0, 0.0, 2.0, 3.0])\n"
        "print(scan_engine(rewards))\n"
        "print([round(g, 3) for g in discounted_returns(rewards, 0.9).tolist()])\n"
        "ended = torch.tensor([False, False, False, True])\n"
        "steps = rewards, 0 * rewards, 0 * rewards\n"
        "print(gae(*steps, terminated=ended, gamma=0.5, lam=1.0)[0].tolist())\n"
        "try:\n"
        "    discounted_returns(rewards, 0.9, engine='numba')\n"
        "except RuntimeError as refusal:\n"
        "    print(refusal)\n"
    )
    engine, returns, advantages, refusal = said.splitlines()
    assert engine == "torch"
    assert returns == "[4.807, 4.23, 4.7, 3.0]"
    assert advantages == "[1.875, 1.75, 3.5, 3.0]"
    assert refusal.startswith("engine='numba' cannot run here")


def test_importing_the_library_is_cheap_and_loads_nothing_heavy():
    said = run_python(
        "import sys, time, torch\n"
        "start = time.process_time()\n"
        "import course_lib.algorithms, course_lib.envs, course_lib.exact\n"
        "import course_lib.kernels\n"
        "print(time.process_time() - start)\n"
        "heavy = {'numba', 'triton', 'matplotlib', 'gymnasium', 'ipywidgets'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    seconds, loaded = said.splitlines()
    assert float(seconds) < 0.5
    assert loaded == "[]"
