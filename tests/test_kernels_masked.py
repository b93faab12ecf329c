"""Masked reductions and whitening: beside plain loops, and where people go wrong."""

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.kernels import (
    NaNInputError,
    Reduction,
    masked_mean,
    masked_sum,
    masked_var,
    reduce_steps,
    whiten,
)
from tests import reference_losses as by_hand

NAN, INF = math.nan, math.inf
REDUCTIONS = get_args(Reduction)
JUNK = st.sampled_from([NAN, INF, -INF, 1e30, 0.0])


@st.composite
def masked_rows(draw, dtype=torch.float64):
    """Rows of numbers, and a mask with holes over junk that must not be read."""
    rows, steps = draw(st.sampled_from([(1, 1), (1, 5), (3, 4), (2, 7)]))
    numbers = st.floats(-10, 10, width=32)
    x = torch.tensor(
        [[draw(numbers) for _ in range(steps)] for _ in range(rows)], dtype=dtype
    )
    mask = torch.tensor(
        [[draw(st.booleans()) for _ in range(steps)] for _ in range(rows)]
    )
    return x.masked_fill(~mask, draw(JUNK)), mask


@settings(max_examples=150, deadline=None)
@given(data=masked_rows())
def test_reductions_are_those_of_plain_loops_and_read_no_junk(data):
    x, mask = data
    x.requires_grad_()
    real = by_hand.real_entries(x.tolist(), mask.tolist())
    assert masked_sum(x, mask).item() == pytest.approx(math.fsum(real), abs=1e-12)
    assert masked_mean(x, mask).item() == pytest.approx(by_hand.mean(real), abs=1e-12)
    for unbiased in (False, True):
        assert masked_var(x, mask, unbiased=unbiased).item() == pytest.approx(
            by_hand.variance(real, unbiased), abs=1e-9
        )
    rows = list(zip(x.tolist(), mask.tolist(), strict=True))
    for kernel, plain in ((masked_mean, by_hand.mean), (masked_var, by_hand.variance)):
        expected = [plain(by_hand.real_entries([a], [m])) for a, m in rows]
        assert kernel(x, mask, -1).tolist() == pytest.approx(expected, abs=1e-9)
    for reduction in REDUCTIONS:
        length = 7 if reduction == "constant" else None
        loss = reduce_steps(x, mask, reduction, length)
        assert loss.item() == pytest.approx(
            by_hand.reduced(x.tolist(), mask.tolist(), reduction, length), abs=1e-12
        )
        (grad,) = torch.autograd.grad(loss, x)
        assert grad.isfinite().all() and (grad[~mask] == 0).all()


@settings(max_examples=100, deadline=None)
@given(
    data=masked_rows(),
    unbiased=st.booleans(),
    eps=st.sampled_from([1e-8, 1e-2]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_whitening_is_that_of_plain_loops(data, unbiased, eps, dtype):
    x, mask = data
    x = x.to(dtype)
    result = whiten(x, mask, unbiased=unbiased, eps=eps)
    expected = by_hand.whitened(x.tolist(), mask.tolist(), unbiased, eps)
    assert result.dtype == dtype and result.shape == x.shape
    assert (result[~mask] == 0).all()
    tolerance = {torch.float64: 1e-9, torch.float32: 2e-3, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(
        result.double(),
        torch.tensor(expected, dtype=torch.float64),
        rtol=tolerance,
        atol=tolerance,
    )


@pytest.mark.parametrize("shape", [(40, 3), (200, 100)])  # by where, by bits
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_both_ways_to_select_agree_with_picking(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(dtype)
    mask = torch.rand(shape, generator=generator) < 0.6
    junk = x.masked_fill(~mask, NAN).requires_grad_()
    picked = x[mask].double()
    close = {"rtol": 1e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    for kernel, expected in (
        (masked_sum, picked.sum()),
        (masked_mean, picked.mean()),
        (masked_var, picked.var(correction=0)),
    ):
        result = kernel(junk, mask)
        torch.testing.assert_close(result, expected.to(dtype), **close)
        (grad,) = torch.autograd.grad(result, junk)
        assert grad.isfinite().all() and (grad[~mask] == 0).all()
    strided = torch.stack([junk, junk], -1)[..., 1]  # every other number in memory
    assert torch.equal(masked_sum(strided, mask), masked_sum(junk, mask))
    first, second = (
        torch.func.grad(lambda v: masked_var(v, mask))(v) for v in (x, junk.detach())
    )
    torch.testing.assert_close(first, second)


class TestWhatPeopleGetWrong:
    def test_k34_the_denominator_counts_real_entries(self):
        """natolambert/rlhf-book PR 216; areal-project/AReaL PR 1346."""
        x, mask = torch.tensor([2.0, 4.0, 100.0]), torch.tensor([True, True, False])
        assert masked_mean(x, mask) == 3
        assert masked_mean(
            torch.tensor([1.0, 1.0, 10.0, 10.0]), torch.arange(4) < 2
        ) == 1  # fmt: skip

    def test_k36_four_averages_four_numbers(self):
        """sail-sg/understand-r1-zero #10, #11; huggingface/trl PR 3138."""
        losses = torch.tensor([[1.0, 1.0, 1.0, 1.0], [4.0, 0.0, 0.0, 0.0]])
        mask = torch.tensor([[True] * 4, [True, False, False, False]])
        values = [
            reduce_steps(
                losses, mask, reduction, 4 if reduction == "constant" else None
            )
            for reduction in REDUCTIONS
        ]
        torch.testing.assert_close(
            torch.stack(values), torch.tensor([1.6, 2.5, 4.0, 1.0])
        )

    def test_claims_29_the_books_two_rows_of_5_and_10(self):
        rows = [[2.8] * 5 + [0.0] * 5, [1.9] * 10]  # sums 14 and 19
        losses = torch.tensor(rows, dtype=torch.float64)
        mask = torch.arange(10) < torch.tensor([[5], [10]])
        by = {r: reduce_steps(losses, mask, r) for r in REDUCTIONS[:3]}
        assert by["sequence_mean"].item() == pytest.approx(2.35)
        assert by["token_mean"].item() == pytest.approx(2.2)
        assert by["sequence_sum"].item() == pytest.approx(16.5)
        constant = reduce_steps(losses, mask, "constant", 10)
        assert constant.item() == pytest.approx(1.65)
        per_row = reduce_steps(losses[:1], mask[:1], "constant", 10)
        assert per_row.item() == pytest.approx(1.4)

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_k49_a_dropped_row_leaves_every_denominator(self, reduction):
        """NousResearch/atropos PR 481; huggingface/trl PR 7068."""
        losses = torch.tensor([[1.0, 1.0], [3.0, 3.0]])
        mask = torch.tensor([[False, False], [True, True]])
        length = 2 if reduction == "constant" else None
        expected = 6.0 if reduction == "sequence_sum" else 3.0
        assert reduce_steps(losses, mask, reduction, length) == expected

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_nothing_real_is_zero_with_gradient_zero(self, reduction):
        losses = torch.full((2, 3), NAN, requires_grad=True)
        mask = torch.zeros(2, 3, dtype=torch.bool)
        length = 3 if reduction == "constant" else None
        loss = reduce_steps(losses, mask, reduction, length)
        (grad,) = torch.autograd.grad(loss, losses)
        assert loss == 0 and (grad == 0).all()
        assert masked_mean(losses, mask) == 0
        assert (whiten(losses, mask) == 0).all()

    def test_trap_5_both_standard_deviations_and_an_empty_masked_slot(self):
        """KERNELS trap 5: TRL and verl leave 2.1213 in the masked slot."""
        x, mask = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, True, False])
        torch.testing.assert_close(whiten(x, mask), torch.tensor([-1.0, 1.0, 0.0]))
        torch.testing.assert_close(
            whiten(x, mask, unbiased=True), torch.tensor([-0.70711, 0.70711, 0.0])
        )

    @pytest.mark.parametrize("unbiased", [False, True])
    def test_k33_one_sample_and_equal_samples_are_zero(self, unbiased):
        """DLR-RM/stable-baselines3 #325, PR 1028; deep_rl_zoo #17."""
        assert whiten(torch.tensor([3.0]), unbiased=unbiased).tolist() == [0.0]
        for eps in (1e-8, 0.0):
            x = torch.full((3,), 2.0)
            assert whiten(x, unbiased=unbiased, eps=eps).tolist() == [0.0] * 3
        one = torch.tensor([True, False])
        assert whiten(torch.tensor([3.0, NAN]), one, unbiased=unbiased).tolist() == [
            0.0,
            0.0,
        ]
        assert masked_var(torch.tensor([3.0]), None, unbiased=unbiased) == 0

    def test_k32_the_bracket(self):
        """Omegastick/pytorch-cpp-rl #14."""
        x = torch.tensor([1.0, 3.0])
        torch.testing.assert_close(whiten(x), torch.tensor([-1.0, 1.0]))
        torch.testing.assert_close(
            whiten(x, unbiased=True), torch.tensor([-0.70711, 0.70711])
        )

    def test_claims_error_21_mask_first_then_whiten(self):
        x, mask = torch.tensor([1.0, 2, 3, 0, 0, 0]), torch.arange(6) < 3
        for unbiased, masked, naive in (
            (False, [-1.2247, 0.0, 1.2247], [0.0, 0.8660, 1.7321]),
            (True, [-1.0, 0.0, 1.0], [0.0, 0.7906, 1.5811]),
        ):
            right = whiten(x, mask, unbiased=unbiased)[:3]
            wrong = whiten(x, unbiased=unbiased)[:3]  # padding taken for real
            assert right.tolist() == pytest.approx(masked, abs=1e-4)
            assert wrong.tolist() == pytest.approx(naive, abs=1e-4)

    def test_misconception_10_standardised_is_not_bias(self):
        expected = [-0.925820, -0.462910, 1.388730]
        assert whiten(torch.tensor([1.0, 2.0, 6.0])).tolist() == pytest.approx(expected)

    def test_a_mean_of_10_000_leaves_the_variance_alone(self):
        """KERNELS trap 5: in one pass, E[x^2] - E[x]^2, it is 0 for 1.25."""
        x = torch.tensor([1.0, 2.0, 3.0, 4.0]) + 1e4
        assert masked_var(x, None) == 1.25
        torch.testing.assert_close(whiten(x), whiten(x - 1e4))

    @pytest.mark.parametrize("number", [0.1, 1234.567, 1e4 + 0.1, -3e7])
    def test_equal_advantages_stay_zero_whatever_their_size(self, number):
        # The first mean is off by a rounding, which eps = 1e-8 would magnify to 1.
        x = torch.full((999,), number)
        assert whiten(x).abs().max() < 1e-3
        mask = torch.rand(999, generator=torch.Generator().manual_seed(0)) < 0.5
        assert whiten(x, mask).abs().max() < 1e-3

    def test_narrow_floats_are_summed_in_float32(self):
        x = torch.ones(4096, dtype=torch.bfloat16)  # in bf16 the sum stops at 256
        assert masked_sum(x, None) == 4096
        assert masked_mean(x, torch.ones(4096, dtype=torch.bool)) == 1

    def test_integers_are_promoted(self):
        x, mask = torch.tensor([1, 2, 9]), torch.tensor([True, True, False])
        mean = masked_mean(x, mask)
        assert mean == 1.5 and mean.dtype == torch.float32
        assert whiten(x, mask).tolist() == pytest.approx([-1.0, 1.0, 0.0])

    def test_nothing_is_changed_in_place_and_whitening_has_no_gradient(self):
        x = torch.randn(100, 100, requires_grad=True)
        mask = torch.rand(100, 100) < 0.5
        before, mask_before = x.detach().clone(), mask.clone()
        result = whiten(x, mask)
        assert not result.requires_grad
        assert torch.equal(x, before) and torch.equal(mask, mask_before)

    @pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
    def test_nothing_in_gives_zero_or_nothing_out(self, shape):
        x, mask = torch.ones(shape), torch.ones(shape, dtype=torch.bool)
        assert masked_sum(x, mask) == 0 and masked_mean(x, None) == 0
        assert whiten(x, mask).shape == shape


class TestNaN:
    @pytest.mark.parametrize("kernel", [masked_sum, masked_mean, masked_var, whiten])
    def test_at_a_real_entry_is_named(self, kernel):
        x, mask = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)
        x[0, 0], mask[0, 0] = NAN, False  # this one may stay
        kernel(x, mask)
        x[1, 2] = NAN
        with pytest.raises(NaNInputError, match=r"x must not hold NaN.*\[1, 2\]"):
            kernel(x, mask)

    def test_made_of_infinities_is_the_callers_own(self):
        assert masked_sum(torch.tensor([INF, -INF]), None).isnan()


ONES = torch.ones(2, 3)
FLAGS = torch.ones(2, 3, dtype=torch.bool)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: masked_mean([1.0], None), TypeError, "x must be a torch.Tensor"),
        (lambda: masked_mean(ONES, FLAGS.int()), TypeError, "mask must have dtype"),
        (lambda: masked_sum(ONES, FLAGS[0]), ValueError, r"mask must have shape"),
        (lambda: masked_var(ONES, FLAGS[:, :1]), ValueError, r"got \[2, 1\]"),
        (lambda: whiten(ONES, FLAGS.float()), TypeError, "mask must have dtype"),
        (lambda: whiten(ONES, eps=-1.0), ValueError, "eps must be at least 0"),
        (lambda: whiten(3.0), TypeError, "x must be a torch.Tensor"),
        (lambda: reduce_steps(ONES, None, "mean"), ValueError, "reduction must be"),
        (lambda: reduce_steps(ONES, None, "constant"), ValueError, "constant_length"),
        (
            lambda: reduce_steps(ONES, None, "token_mean", 3),
            ValueError,
            "constant_length=3 fits",
        ),
        (
            lambda: reduce_steps(ONES, None, "constant", 0),
            ValueError,
            "constant_length must be at least 1",
        ),
    ],
)
def test_a_bad_argument_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("unbiased", [False, True])
def test_whitening_along_an_axis_is_whitening_each_row_by_itself(unbiased):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 5, generator=generator) * 3 + 100
    mask = torch.rand(3, 4, 5, generator=generator) < 0.6
    mask[0, 0] = False
    x = torch.where(mask, x, torch.nan)
    for dim in (0, 1, 2, -1):
        found = whiten(x, mask, dim=dim, unbiased=unbiased)
        rows = zip(
            found.movedim(dim, -1).reshape(-1, x.shape[dim]),
            x.movedim(dim, -1).reshape(-1, x.shape[dim]),
            mask.movedim(dim, -1).reshape(-1, x.shape[dim]),
            strict=True,
        )
        for got, row, real in rows:
            alone = whiten(row, real, unbiased=unbiased)
            torch.testing.assert_close(got, alone, atol=1e-5, rtol=1e-5)
    assert whiten(x, mask, dim=-1)[0, 0].abs().max() == 0
