"""Importance weights and advantages within groups: plain loops, and the traps."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.kernels import (
    NaNInputError,
    effective_sample_size,
    group_relative_advantages,
    importance_weights,
    leave_one_out_advantages,
)
from tests import reference_losses as by_hand

NAN, INF = math.nan, math.inf
KINDS = ["per_step", "per_decision", "trajectory"]


class TestImportanceWeights:
    @settings(max_examples=80, deadline=None)
    @given(data=st.data())
    def test_are_products_of_plain_ratios(self, data):
        rows, steps = data.draw(st.sampled_from([(1, 1), (2, 3), (3, 6)]))
        kind = data.draw(st.sampled_from(KINDS))
        dtype = data.draw(st.sampled_from([torch.float64, torch.float32]))
        junk = data.draw(st.sampled_from([NAN, INF, -INF]))
        generator = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
        pi, b = torch.randn((2, rows, steps), generator=generator).to(dtype)
        mask = torch.rand((rows, steps), generator=generator) < 0.7
        expected = [
            by_hand.weights(*row, kind)
            for row in zip(pi.tolist(), b.tolist(), mask.tolist(), strict=True)
        ]
        pi = pi.masked_fill(~mask, junk).requires_grad_()
        got = importance_weights(pi, b.masked_fill(~mask, junk), mask=mask, kind=kind)
        assert got.dtype == dtype
        close = {"rtol": 1e-5, "atol": 1e-6}
        torch.testing.assert_close(got, torch.tensor(expected, dtype=dtype), **close)
        (grad,) = torch.autograd.grad(got.sum(), pi)
        assert grad.isfinite().all() and (grad[~mask] == 0).all()

    @pytest.mark.parametrize("kind", KINDS)
    def test_gradient_by_differences_to_the_target_policy_alone(self, kind):
        generator = torch.Generator().manual_seed(0)
        pi, b = torch.randn((2, 2, 4), generator=generator, dtype=torch.float64)
        mask = torch.tensor([[True, False, True, True], [True, True, True, False]])
        pi, b = pi.clone().requires_grad_(), b.clone().requires_grad_()
        assert torch.autograd.gradcheck(
            lambda x: importance_weights(x, b, mask=mask, kind=kind), pi
        )
        weights = importance_weights(pi, b, mask=mask, kind=kind).sum()
        assert torch.autograd.grad(weights, b, allow_unused=True) == (None,)

    @pytest.mark.parametrize(
        ("behaviour", "estimate", "band", "std", "ess"),
        [
            ([0.15, 0.2, 0.3, 0.35], 3.0, 0.02, 0.154303, 0.977),
            ([0.7, 0.2, 0.07, 0.03], 3.0, 0.12, 2.415229, 0.146),
        ],
    )
    def test_claims_14_and_15_near_and_far(self, behaviour, estimate, band, std, ess):
        """E_p of 1, 2, 3, 4 with p = .1, .2, .3, .4 from 100,000 samples of q."""
        p = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
        q = torch.tensor(behaviour, dtype=torch.float64)
        generator = torch.Generator().manual_seed(0)
        actions = torch.multinomial(q, 100_000, replacement=True, generator=generator)
        weights = importance_weights(p[actions].log(), q[actions].log())
        value = (weights * (actions + 1)).mean().item()
        assert value == pytest.approx(estimate, abs=band)
        noise = 0.002 if std < 1 else 0.07
        assert weights.std().item() == pytest.approx(std, abs=noise)
        share = effective_sample_size(weights).item() / 100_000
        assert share == pytest.approx(ess, abs=0.01)
        exact = math.sqrt((p**2 / q).sum().item() - 1)
        assert exact == pytest.approx(std, abs=1e-6)

    def test_claims_15_the_largest_weight(self):
        p, q = torch.tensor([0.4]).log(), torch.tensor([0.03]).log()
        assert importance_weights(p, q).item() == pytest.approx(13.33, abs=0.01)

    def test_k30_stale_data_keep_their_own_ratio(self):
        """tensorforce #312; torchforge PR 571; radixark/miles PR 1966."""
        ratio = importance_weights(torch.tensor([-1.0]), torch.tensor([-1.5]))
        assert ratio.item() == pytest.approx(1.648721, abs=1e-6)

    def test_k28_an_overflow_behind_the_mask_leaks_nothing(self):
        """radixark/miles PR 1363; THUDM/slime PR 2198."""
        pi = torch.tensor([[1000.0, -1.0, 1000.0]], requires_grad=True)
        mask = torch.tensor([[False, True, False]])
        for kind in KINDS:
            weights = importance_weights(pi, torch.zeros(1, 3), mask=mask, kind=kind)
            (grad,) = torch.autograd.grad(weights.sum(), pi)
            assert weights.sum().item() == pytest.approx(math.exp(-1))
            assert grad[0].tolist() == pytest.approx([0.0, math.exp(-1), 0.0])

    def test_a_product_that_overflows_later_than_a_hole_stays_out_of_it(self):
        pi = torch.tensor([60.0, 60.0, -60.0, -60.0], requires_grad=True)
        mask = torch.tensor([True, True, False, True])
        hole = importance_weights(pi, torch.zeros(4), mask=mask, kind="per_decision")
        assert hole.tolist()[1:3] == [INF, 0.0]
        (grad,) = torch.autograd.grad(hole[0] + hole[2], pi)
        assert grad.isfinite().all()

    def test_an_action_that_the_target_never_takes_has_weight_zero(self):
        pi, b = torch.tensor([-INF, -1.0, -1.0]), torch.full((3,), -1.0)
        assert importance_weights(pi, b, kind="per_decision").tolist() == [0.0] * 3
        assert importance_weights(pi, b, kind="trajectory") == 0

    def test_an_action_that_could_not_be_sampled_is_refused(self):
        with pytest.raises(ValueError, match=r"behaviour_log_probs must be above.*\[1"):
            importance_weights(torch.zeros(2), torch.tensor([0.0, -INF]))

    def test_narrow_floats_are_multiplied_in_float32(self):
        pi = torch.full((300,), 0.01, dtype=torch.bfloat16)
        step = pi[0].double().item()
        product = importance_weights(pi, torch.zeros_like(pi), kind="trajectory")
        assert product.dtype == torch.bfloat16
        assert product.item() == pytest.approx(math.exp(300 * step), rel=1e-2)


class TestEffectiveSampleSize:
    def test_counts_and_does_not_mind_the_scale(self):
        w = torch.tensor(
            [[1.0, 1.0, 1.0, 1.0], [5.0, 0.0, 0.0, 0.0], [2.0, 1.0, 1.0, 0]]
        )
        expected = torch.tensor([4.0, 1.0, 16 / 6])
        for scale in (1.0, 1e-30, 1e30):  # whose squares are no float32
            torch.testing.assert_close(effective_sample_size(w * scale), expected)
        each = torch.tensor([[1.0], [1e-30], [1e30]])  # and of its own row's alone
        torch.testing.assert_close(effective_sample_size(w * each), expected)

    def test_no_weight_at_all_is_no_sample(self):
        assert effective_sample_size(torch.zeros(3)) == 0
        assert effective_sample_size(torch.zeros(2, 0)).tolist() == [0.0, 0.0]

    def test_bfloat16_counts_beyond_256(self):
        assert effective_sample_size(torch.ones(1024, dtype=torch.bfloat16)) == 1024


@st.composite
def grouped(draw):
    number = draw(st.integers(1, 12))
    groups = [draw(st.integers(-2, 3)) for _ in range(number)]
    scores = [float(draw(st.integers(-3, 3))) for _ in range(number)]
    valid = [draw(st.booleans()) for _ in range(number)]
    return scores, groups, valid


class TestGroups:
    @settings(max_examples=150, deadline=None)
    @given(data=grouped(), junk=st.sampled_from([NAN, INF, 7.0]))
    def test_leave_one_out_is_that_of_plain_loops(self, data, junk):
        scores, groups, valid = data
        expected = by_hand.leave_one_out(scores, groups, valid)
        given_scores = torch.tensor(scores, dtype=torch.float64)
        real = torch.tensor(valid)
        got = leave_one_out_advantages(
            given_scores.masked_fill(~real, junk), torch.tensor(groups), real
        )
        assert got.tolist() == pytest.approx(expected, abs=1e-12)

    @settings(max_examples=150, deadline=None)
    @given(data=grouped(), scale=st.booleans(), unbiased=st.booleans())
    def test_group_relative_is_that_of_plain_loops(self, data, scale, unbiased):
        scores, groups, _ = data
        for eps in (1e-4, 0.5):
            got = group_relative_advantages(
                torch.tensor(scores, dtype=torch.float64),
                torch.tensor(groups),
                scale=scale,
                unbiased=unbiased,
                eps=eps,
            )
            expected = by_hand.group_relative(scores, groups, scale, unbiased, eps)
            assert got.tolist() == pytest.approx(expected, abs=1e-10)

    def test_a_row_is_a_group_and_ids_say_the_same_in_any_order(self):
        generator = torch.Generator().manual_seed(0)
        scores = torch.randn((5, 4), generator=generator)
        ids = torch.arange(5)[:, None].expand(5, 4)
        order = torch.randperm(20, generator=generator)
        valid = torch.rand((5, 4), generator=generator) < 0.6
        for kernel, extra in (
            (leave_one_out_advantages, (None,)),
            (leave_one_out_advantages, (valid,)),
            (group_relative_advantages, ()),
        ):
            rows = kernel(scores, None, *extra)
            torch.testing.assert_close(kernel(scores, ids, *extra), rows)
            mixed = [x.reshape(-1)[order] for x in extra if x is not None]
            flat = kernel(scores.view(-1)[order], ids.reshape(-1)[order], *mixed)
            torch.testing.assert_close(flat, rows.view(-1)[order])

    def test_k47_leave_one_out_is_not_centring(self):
        """redai-studio/Relax #174; areal-project/AReaL PR 354."""
        scores = torch.tensor([3.0, 1.0, 0.0, 0.0])
        assert leave_one_out_advantages(scores).tolist() == pytest.approx(
            [2.666667, 0.0, -1.333333, -1.333333], abs=1e-6
        )
        centred = group_relative_advantages(scores, scale=False)
        assert centred.tolist() == [2.0, 0.0, -1.0, -1.0]

    @pytest.mark.parametrize("score", [0.7, 0.1, 1e4 + 0.3, -1e-3])
    @pytest.mark.parametrize("size", [3, 7, 1000])
    def test_k49_equal_scores_are_exactly_zero(self, score, size):
        """jsboige/CoursIA #10603: a mean off by a rounding, over an eps of 1e-4."""
        scores = torch.full((size,), score)
        for groups in (None, torch.zeros(size, dtype=torch.long)):
            assert leave_one_out_advantages(scores, groups).abs().max() == 0
            for eps in (1e-4, 0.0):
                got = group_relative_advantages(scores, groups, eps=eps)
                assert got.abs().max() == 0

    def test_trap_8_a_group_of_one_gets_zero(self):
        """KERNELS trap 8: verl's GRPO and its RLOO loop give the raw score 2."""
        scores, groups = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0, 0, 1])
        assert leave_one_out_advantages(scores, groups).tolist() == [1.0, -1.0, 0.0]
        got = group_relative_advantages(scores, groups, eps=0.0)
        assert got.tolist() == pytest.approx([0.70711, -0.70711, 0.0], abs=1e-5)
        alone = torch.tensor([5.0])
        assert leave_one_out_advantages(alone) == 0
        assert group_relative_advantages(alone) == 0
        valid = torch.tensor([True, False, True])
        assert leave_one_out_advantages(scores, groups, valid).tolist() == [0.0] * 3

    def test_claims_26_two_scores_three_conventions(self):
        scores = torch.tensor([3.0, 1.0])
        centred = group_relative_advantages(scores, scale=False)
        assert centred.tolist() == [1.0, -1.0]
        assert leave_one_out_advantages(scores).tolist() == [2.0, -2.0]
        for unbiased, expected in ((True, 0.7071), (False, 1.0)):
            got = group_relative_advantages(scores, unbiased=unbiased)
            assert got.tolist() == pytest.approx([expected, -expected], abs=2e-4)

    def test_claims_35_three_right_of_eight(self):
        scores = torch.tensor([1.0] * 3 + [0.0] * 5, dtype=torch.float64)
        for got, right, wrong in (
            (group_relative_advantages(scores, scale=False), 0.625, -0.375),
            (leave_one_out_advantages(scores), 0.7143, -0.4286),
            (group_relative_advantages(scores), 1.2074, -0.7244),
            (group_relative_advantages(scores, eps=0.0), 1.20761, -0.72457),
        ):
            expected = [right] * 3 + [wrong] * 5
            assert got.tolist() == pytest.approx(expected, abs=5e-5)

    @pytest.mark.parametrize(
        ("size", "centred", "grpo", "without_eps"),
        [
            (2, 0.125, 0.1768, 0.17678),
            (4, 0.1875, 0.3498, 0.34988),
            (8, 0.21875, 0.4339, 0.43395),
        ],
    )
    def test_claims_34_what_each_baseline_does_to_the_expected_gradient(
        self, size, centred, grpo, without_eps
    ):
        """Exact over all 2^K draws of a fair bandit with rewards 10 and 11."""
        actions = torch.tensor(
            [[(draw >> k) & 1 for k in range(size)] for draw in range(2**size)],
            dtype=torch.float64,
        )  # [2^K, K]
        score = actions - 0.5  # d log pi(a) / d logit of action 1

        def expected_gradient(advantages):
            return (score * advantages).mean().item()

        rewards = 10 + actions
        for got, value, tolerance in (
            (leave_one_out_advantages(rewards), 0.25, 1e-12),
            (group_relative_advantages(rewards, scale=False), centred, 1e-12),
            (group_relative_advantages(rewards), grpo, 1e-4),
            (group_relative_advantages(rewards, eps=0.0), without_eps, 1e-5),
        ):
            assert expected_gradient(got) == pytest.approx(value, abs=tolerance)

    def test_dtypes_shapes_and_no_gradient(self):
        half = torch.tensor([[1.0, 3.0]], dtype=torch.bfloat16, requires_grad=True)
        for kernel in (leave_one_out_advantages, group_relative_advantages):
            got = kernel(half)
            assert got.dtype == torch.bfloat16 and not got.requires_grad
            whole = kernel(torch.tensor([3, 1, 0, 0]))
            assert whole.dtype == torch.float32
            assert kernel(torch.ones(0)).shape == (0,)
            assert kernel(torch.ones(3, 0)).shape == (3, 0)
            ids = torch.zeros(0, dtype=torch.long)
            assert kernel(torch.ones(0), ids).shape == (0,)
        assert leave_one_out_advantages(torch.tensor([3, 1, 0, 0]))[0] == pytest.approx(
            8 / 3
        )

    def test_nan_is_named_and_infinity_stays_in_its_group(self):
        scores = torch.tensor([[1.0, 2.0], [INF, 0.0]])
        for kernel in (leave_one_out_advantages, group_relative_advantages):
            assert kernel(scores)[0].isfinite().all()
            groups = torch.tensor([[0, 0], [1, 1]])
            assert kernel(scores, groups)[0].isfinite().all()
            with pytest.raises(NaNInputError, match=r"scores must not.*\[0, 1\]"):
                kernel(torch.tensor([[1.0, NAN]]))


ONES, IDS = torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.long)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: importance_weights(ONES, ONES[0]), ValueError, "behaviour_log_probs"),
        (lambda: importance_weights(ONES, ONES.double()), TypeError, "behaviour_log"),
        (lambda: importance_weights(ONES, ONES, kind="token"), ValueError, "kind must"),
        (lambda: importance_weights(ONES, ONES, mask=IDS), TypeError, "mask must have"),
        (lambda: importance_weights(IDS, IDS), TypeError, "log_probs must have a flo"),
        (lambda: importance_weights(ONES, ONES * NAN), NaNInputError, "behaviour_log"),
        (lambda: effective_sample_size(ONES - 2), ValueError, "weights must be finite"),
        (lambda: effective_sample_size(ONES * INF), ValueError, "weights must be fin"),
        (lambda: effective_sample_size(ONES * NAN), NaNInputError, "weights must not"),
        (lambda: effective_sample_size(IDS), TypeError, "weights must have a float"),
        (lambda: leave_one_out_advantages([1.0]), TypeError, "scores must be a torch"),
        (lambda: leave_one_out_advantages(ONES[0, 0]), ValueError, "scores must have"),
        (lambda: leave_one_out_advantages(ONES, ONES), TypeError, "groups must have"),
        (
            lambda: leave_one_out_advantages(ONES, IDS[0]),
            ValueError,
            "groups must have",
        ),
        (
            lambda: leave_one_out_advantages(ONES, None, IDS),
            TypeError,
            "valid must hav",
        ),
        (lambda: group_relative_advantages(ONES, eps=-1), ValueError, "eps must be at"),
        (
            lambda: group_relative_advantages(ONES, IDS[:, :1]),
            ValueError,
            "groups must",
        ),
    ],
)
def test_a_bad_argument_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()
