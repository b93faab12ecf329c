"""What GAE, TD errors and shifted values keep and refuse, on every engine."""

import math

import pytest
import torch

from course_lib.kernels import NaNInputError, gae, shift_values, td_errors
from tests.engines import ENGINES, LOOKING_FOR_NAN, MANY_ROWS
from tests.given_steps import flags, numbers

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("engine", ENGINES)
class TestContract:
    def test_nothing_is_changed_in_place_whatever_the_strides(self, engine):
        generator = torch.Generator().manual_seed(0)
        for shape in [(3, 50), (MANY_ROWS, 50), (5, 8)]:
            steps = torch.randn((3, *shape), generator=generator)
            ends = torch.rand((3, *shape), generator=generator) < 0.3
            flat = gae(
                *steps, terminated=ends[0], truncated=ends[1], mask=ends[2],
                gamma=0.9, lam=0.8, engine=engine,
            )  # fmt: skip
            for mask in (True, False):
                turned = [x.t().contiguous().t() for x in (*steps, *ends)]
                before = [x.clone() for x in turned]
                result = gae(
                    *turned[:3], terminated=turned[3], truncated=turned[4],
                    mask=turned[5] if mask else None,
                    gamma=0.9, lam=0.8, engine=engine,
                )  # fmt: skip
                for x, copy in zip(turned, before, strict=True):
                    assert torch.equal(x, copy)
                for x in result:
                    assert x.is_contiguous() and x.shape == shape
                    assert all(x.data_ptr() != y.data_ptr() for y in turned)
                if mask:
                    torch.testing.assert_close(result, flat)

    def test_any_number_of_batch_axes_is_rows(self, engine):
        generator = torch.Generator().manual_seed(0)
        steps = torch.randn((3, 12, 9), generator=generator)
        ends = torch.rand((2, 12, 9), generator=generator) < 0.2
        options = {"gamma": 0.9, "lam": 0.8, "engine": engine}
        flat = gae(*steps, terminated=ends[0], truncated=ends[1], **options)
        for shape in [(2, 6, 9), (12, 1, 9), (2, 3, 2, 9)]:
            deep = gae(
                *steps.reshape(3, *shape), terminated=ends[0].reshape(shape),
                truncated=ends[1].reshape(shape), **options,
            )  # fmt: skip
            for one, other in zip(deep, flat, strict=True):
                assert one.shape == shape
                torch.testing.assert_close(one.reshape(12, 9), other)

    @pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 3)])
    def test_nothing_in_gives_nothing_out(self, engine, shape):
        nothing = torch.ones(shape, dtype=torch.long)
        for mask in (None, nothing.bool()):
            for x in gae(
                nothing, nothing, nothing, terminated=nothing.bool(), mask=mask,
                gamma=0.9, lam=0.8, engine=engine, validate=True,
            ):  # fmt: skip
                assert x.shape == shape and x.dtype == torch.float32

    def test_results_carry_no_gradient(self, engine):
        steps = torch.ones((3, 5), requires_grad=True)
        for mask in (None, flags(1, 0, 1, 1, 0)):
            for x in gae(
                *steps, terminated=flags(0, 0, 1, 0, 0), mask=mask,
                gamma=0.9, lam=0.8, engine=engine,
            ):  # fmt: skip
                assert not x.requires_grad

    def test_a_row_without_a_real_step_is_zero(self, engine):
        junk = torch.full((2, 4), NAN)
        for x in gae(
            junk, junk, junk, terminated=junk.bool(), mask=torch.zeros(2, 4).bool(),
            gamma=0.9, lam=0.8, engine=engine, validate=True,
        ):  # fmt: skip
            assert x.tolist() == [[0.0] * 4] * 2

    def test_narrow_floats_are_summed_in_float32(self, engine):
        # In bf16 itself the sum of ones would stand still at 256.
        for dtype in (torch.bfloat16, torch.float16):
            nothing = torch.zeros(1024, dtype=dtype)
            advantages, _ = gae(
                nothing + 1, nothing, nothing, terminated=nothing.bool(),
                gamma=1.0, lam=1.0, engine=engine,
            )  # fmt: skip
            assert advantages.dtype == dtype and advantages[0] == 1024


class TestNaN:
    @pytest.mark.parametrize("how", LOOKING_FOR_NAN)
    @pytest.mark.parametrize("place", ["rewards", "values", "next_values"])
    @pytest.mark.parametrize("rows", [2, 6])
    @pytest.mark.parametrize("masked", [False, True])
    def test_is_refused_by_name_and_place(self, how, place, rows, masked):
        steps = {
            name: torch.ones(rows, 3) for name in ("rewards", "values", "next_values")
        }
        mask = torch.ones(rows, 3, dtype=torch.bool) if masked else None
        column = 2 if place == "next_values" else 1
        steps[place][1, column] = NAN
        with pytest.raises(
            NaNInputError, match=rf"^{place} must not hold NaN.*index \[1, {column}\]"
        ):
            gae(
                **steps, terminated=torch.zeros(rows, 3, dtype=torch.bool), gamma=0.9,
                lam=0.8, mask=mask, **how,
            )  # fmt: skip

    @pytest.mark.parametrize("how", LOOKING_FOR_NAN)
    def test_behind_an_end_is_still_refused(self, how):
        with pytest.raises(NaNInputError, match=r"rewards must not .* \[2\]"):
            gae(
                numbers(1, 1, NAN), numbers(1, 1, 1), numbers(1, 1, 1),
                terminated=flags(0, 1, 0), gamma=0.9, lam=0.8, **how,
            )  # fmt: skip

    @pytest.mark.parametrize("how", LOOKING_FOR_NAN)
    @pytest.mark.parametrize("masked", [False, True])
    def test_in_the_value_that_a_truncated_step_reached_is_refused(self, how, masked):
        mask = flags(1, 1, 1) if masked else None
        with pytest.raises(NaNInputError, match=r"^next_values must not .* \[0\]"):
            gae(
                numbers(1, 1, 1), numbers(1, 1, 1), numbers(NAN, 1, 1),
                terminated=flags(0, 0, 1), truncated=flags(1, 0, 0), gamma=0.9,
                lam=0.8, mask=mask, **how,
            )  # fmt: skip

    @pytest.mark.parametrize("how", LOOKING_FOR_NAN)
    @pytest.mark.parametrize("rows", [1, 5])
    def test_in_a_next_value_that_is_not_used_is_let_through(self, how, rows):
        after = torch.ones(rows, 3)
        after[:, 1] = NAN
        for x in gae(
            torch.ones(rows, 3), torch.ones(rows, 3), after,
            terminated=flags(0, 1, 0).expand(rows, 3), gamma=0.9, lam=0.8, **how,
        ):  # fmt: skip
            assert x.isfinite().all()

    @pytest.mark.parametrize("shape", [(1, 40), (MANY_ROWS, 40), (1, 9)])
    def test_stays_within_its_episode_on_torch(self, shape):
        steps = torch.ones((3, *shape))
        steps[:, ..., 6:] = NAN
        ended = torch.arange(shape[1]).expand(shape) == 4
        steps[0][..., 5:6] = NAN
        advantages, _ = gae(
            *steps, terminated=ended, gamma=0.9, lam=0.8, engine="torch"
        )
        assert advantages[..., :5].isfinite().all()
        assert advantages[..., 5:].isnan().all()

    def test_made_of_infinities_is_the_callers_own(self):
        advantages, _ = gae(
            numbers(INF, -INF), numbers(0, 0), numbers(0, 0), terminated=flags(0, 0),
            gamma=0.9, lam=0.8, engine="numba",
        )  # fmt: skip
        assert advantages[0].isnan() and advantages[1] == -INF

    def test_in_td_errors_is_refused_on_the_cpu(self):
        with pytest.raises(NaNInputError, match=r"next_values must not .* \[0\]"):
            td_errors(
                numbers(1), numbers(1), numbers(NAN), terminated=flags(0), gamma=0.9
            )


ONES = torch.ones(2, 3)
NEVER = torch.zeros(2, 3, dtype=torch.bool)


def call_gae(**changed):
    arguments = {
        "rewards": ONES, "values": ONES, "next_values": ONES, "terminated": NEVER,
        "gamma": 0.9, "lam": 0.8,
    }  # fmt: skip
    return gae(**(arguments | changed))


@pytest.mark.parametrize("engine", ["auto", *ENGINES])
@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"rewards": [1.0]}, TypeError, "rewards must be a torch.Tensor, got list"),
        ({"rewards": torch.tensor(1.0)}, ValueError, "rewards must have at least 1"),
        ({"rewards": ONES + 1j}, TypeError, "rewards must be real"),
        ({"values": ONES.to_sparse()}, TypeError, "values must be dense"),
        ({"values": ONES[0]}, ValueError, r"values must have shape \[2, 3\], got \[3"),
        ({"values": ONES[:1]}, ValueError, "values must have shape"),
        ({"values": ONES[..., None]}, ValueError, "values must have shape"),
        ({"next_values": ONES[:, -1]}, ValueError, r"next_values .* got \[2\]"),
        ({"next_values": ONES.to("meta")}, ValueError, "next_values .* got meta"),
        ({"next_values": None}, TypeError, "next_values must be a torch.Tensor"),
        ({"terminated": NEVER.int()}, TypeError, "terminated must have dtype torch.bo"),
        ({"terminated": NEVER[0]}, ValueError, "terminated must have shape"),
        ({"truncated": NEVER[:, :1]}, ValueError, "truncated must have shape"),
        ({"truncated": ONES}, TypeError, "truncated must have dtype torch.bool"),
        ({"mask": ONES}, TypeError, "mask must have dtype torch.bool"),
        ({"mask": NEVER[0]}, ValueError, "mask must have shape"),
        ({"gamma": 1.01}, ValueError, r"gamma must lie in \[0, 1\], got 1.01"),
        ({"gamma": NAN}, ValueError, "gamma must lie in"),
        ({"gamma": None}, TypeError, "gamma must be a number, got NoneType"),
        ({"gamma": torch.tensor(0.9)}, TypeError, "gamma must be a number"),
        ({"lam": -0.1}, ValueError, r"lam must lie in \[0, 1\], got -0.1"),
        ({"lam": True}, TypeError, "lam must be a number, got bool"),
    ],
)
def test_a_bad_argument_is_refused_by_name_on_every_engine(
    engine, changed, error, words
):
    with pytest.raises(error, match=words):
        call_gae(engine=engine, **changed)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: call_gae(engine="c"), ValueError, "engine must be"),
        (lambda: td_errors(ONES, ONES, ONES[0], terminated=NEVER, gamma=1), ValueError,
         r"next_values must have shape \[2, 3\], got \[3\]"),
        (lambda: td_errors(ONES, ONES, ONES, terminated=NEVER, gamma=2), ValueError,
         "gamma must lie in"),
        (lambda: shift_values(ONES, torch.ones(2, 1)), ValueError,
         r"last_value must have shape \[2\], got \[2, 1\]"),
        (lambda: shift_values(torch.tensor(1.0), torch.tensor(1.0)), ValueError,
         "values must have at least 1 axis"),
    ],
)  # fmt: skip
def test_a_bad_argument_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_shifted_values_are_the_next_slots_and_a_copy():
    values = torch.arange(6.0).reshape(2, 3).requires_grad_()
    shifted = shift_values(values, torch.tensor([8, 9]))
    assert shifted.tolist() == [[1, 2, 8], [4, 5, 9]] and not shifted.requires_grad
    assert shift_values(torch.ones(2, 0), torch.ones(2)).shape == (2, 0)
    assert values.tolist() == [[0, 1, 2], [3, 4, 5]]
