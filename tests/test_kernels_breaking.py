"""What a breaker with fresh eyes got wrong numbers from, each with its smallest input.

Most of it is 0 * inf: behind a mask, past the end of a row, or in the second pass of
a gradient. What needs an engine stands with the tests of `reverse_scan` and `vtrace`.
"""

import math

import pytest
import torch

from course_lib.kernels import (
    NaNInputError,
    categorical_kl,
    clipped_policy_loss,
    clipped_value_loss,
    discounted_returns,
    importance_weights,
    kl_estimates,
    kl_penalty_policy_loss,
    kl_shaped_rewards,
    masked_mean,
    masked_sum,
    masked_var,
    reduce_steps,
    reverse_scan,
    scan_engine,
    shift_values,
    token_log_probs,
    value_loss,
    whiten,
)

NAN, INF = math.nan, math.inf
TOO_LARGE = 10**400
REDUCTIONS = ["token_mean", "sequence_mean", "sequence_sum", "constant"]


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


class TestGradientsOfGradients:
    @pytest.mark.parametrize("vocabulary", [4, 20])
    @pytest.mark.parametrize("junk", [NAN, INF, -INF])
    def test_a_masked_row_of_junk_reaches_neither_of_them(self, vocabulary, junk):
        logits = torch.linspace(-1, 1, 3 * vocabulary).view(3, vocabulary)
        logits[1] = junk
        logits.requires_grad_()
        log_probs = token_log_probs(logits, torch.tensor([0, 1, 2]))
        loss = masked_mean(log_probs, torch.tensor([True, False, True]))
        (once,) = torch.autograd.grad(loss, logits, create_graph=True)
        (twice,) = torch.autograd.grad(once.square().sum(), logits)
        for grad in (once, twice):
            assert grad.isfinite().all() and not grad[1].any() and grad[0].any()

    @pytest.mark.parametrize("vocabulary", [4, 20])
    @pytest.mark.parametrize("junk", [NAN, INF, -INF])
    @pytest.mark.parametrize("create_graph", [False, True])
    def test_a_row_without_a_distribution_takes_none_even_where_it_is_asked(
        self, vocabulary, junk, create_graph
    ):
        logits = torch.zeros(2, vocabulary)
        logits[1] = junk
        log_probs = token_log_probs(logits.requires_grad_(), torch.tensor([0, 1]))
        assert log_probs[1].isnan()
        (grad,) = torch.autograd.grad(
            log_probs.sum(), logits, create_graph=create_graph
        )
        assert grad.isfinite().all() and not grad[1].any() and grad[0].any()

    @pytest.mark.parametrize(
        ("kind", "derivative"),
        [("k1", 1.0), ("k2", 2.0), ("k3", 1 - math.exp(-2.0))],
    )
    def test_a_directional_derivative_starts_from_a_gradient_of_zero(
        self, kind, derivative
    ):
        """torch takes it through the gradient of a gradient, at an upstream 0."""
        at, along = numbers(1.0), numbers(3.0)
        _, got = torch.autograd.functional.jvp(
            lambda x: kl_estimates(x, numbers(-1.0), kind), at, along
        )
        assert got.item() == pytest.approx(3 * derivative, rel=1e-12)

    @pytest.mark.parametrize("kind", ["per_step", "per_decision", "trajectory"])
    def test_so_does_that_of_an_importance_weight(self, kind):
        _, got = torch.autograd.functional.jvp(
            lambda x: importance_weights(x, numbers(0.0), kind=kind).sum(),
            numbers(math.log(2)), numbers(3.0),
        )  # fmt: skip
        assert got.item() == pytest.approx(6.0, rel=1e-12)

    def test_a_hessian_counts_a_slope_where_the_loss_stands_still(self):
        """(k2 - 1/2)^2 at k1 = 1 is flat, and 2 * k1^2 = 2 is its second derivative."""
        hessian = torch.autograd.functional.hessian(
            lambda x: (kl_estimates(x, numbers(0.0), "k2") - 0.5).square().sum(),
            numbers(1.0),
        )
        assert hessian.item() == pytest.approx(2.0, rel=1e-12)


class TestInfinitelyFar:
    @pytest.mark.parametrize("vocabulary", [3, 20])
    @pytest.mark.parametrize("create_graph", [False, True])
    def test_behind_a_mask_it_reaches_no_gradient(self, vocabulary, create_graph):
        p = torch.linspace(-1, 1, 2 * vocabulary).view(2, vocabulary).requires_grad_()
        q = torch.zeros(2, vocabulary)
        q[1, 0] = -INF
        kl = categorical_kl(p, q.requires_grad_())
        assert kl[0].isfinite() and kl[1] == INF
        mask, nothing = torch.tensor([True, False]), torch.zeros(2)
        for loss in (
            masked_mean(kl, mask),
            kl_penalty_policy_loss(
                nothing, nothing, nothing, kl, beta=1.0, mask=mask
            )[0],
        ):  # fmt: skip
            for grad in torch.autograd.grad(
                loss, (p, q), create_graph=create_graph, retain_graph=True
            ):
                assert grad.isfinite().all() and not grad[1].any() and grad[0].any()

    @pytest.mark.parametrize("vocabulary", [2, 20])
    def test_a_probability_that_underflows_is_still_forbidden_by_q(self, vocabulary):
        p, q = torch.zeros(2, vocabulary)
        p[0], q[0] = -200.0, -INF  # e^-200 is 0 in float32
        assert categorical_kl(p, q) == INF

    def test_k3_of_an_action_that_the_policy_never_takes_is_not_nan(self):
        never, likely = torch.tensor([-INF]), torch.tensor([-1.0])
        assert kl_estimates(never, likely, "k3") == INF
        assert kl_estimates(likely, never, "k3") == INF

    def test_an_action_that_old_never_took_is_told_by_the_ratio_and_not_by_a_nan(self):
        for advantage, loss in ((1.0, -1.2), (0.0, 0.0)):
            got, seen = clipped_policy_loss(
                numbers(-1.0), numbers(-INF), numbers(advantage), clip_eps=0.2
            )
            assert got.item() == pytest.approx(loss)
            assert seen["approx_kl"] == seen["ratio_max"] == INF

    def test_an_action_that_neither_takes_has_no_ratio_and_is_named(self):
        for call in (
            lambda x: clipped_policy_loss(x, x, numbers(0.0), clip_eps=0.2),
            lambda x: kl_penalty_policy_loss(
                x, x, numbers(1.0), numbers(0.0), beta=1.0
            ),
        ):
            with pytest.raises(NaNInputError):
                call(numbers(-INF))
        with pytest.raises(NaNInputError, match=r"^log_probs - old_log_probs must"):
            clipped_policy_loss(
                numbers(-INF), numbers(-INF), numbers(1.0), clip_eps=0.2
            )

    def test_values_and_targets_that_are_infinite_are_the_callers_own(self):
        far = numbers(INF, 1.0)
        assert value_loss(far, far)[0].isnan()
        loss, seen = clipped_value_loss(far, numbers(0.0, 0.0), far, clip=0.1)
        assert loss == INF and seen["explained_variance"].isnan()

    @pytest.mark.parametrize("beta", [INF, TOO_LARGE])
    def test_an_infinite_price_of_nothing_is_refused(self, beta):
        x, mask = numbers(-1.0), torch.tensor([True])
        with pytest.raises(ValueError, match="beta "):
            kl_shaped_rewards(x, x, numbers(1.0)[0], beta=beta, mask=mask)
        with pytest.raises(ValueError, match="beta "):
            kl_penalty_policy_loss(x, x, x, x, beta=beta)

    def test_a_nan_in_a_kl_that_costs_nothing_is_named_as_kl(self):
        nothing = numbers(0.0, 0.0)
        with pytest.raises(NaNInputError, match=r"^kl must not hold NaN"):
            kl_penalty_policy_loss(
                nothing, nothing, nothing, numbers(0.0, NAN), beta=0.0
            )


class TestReduceSteps:
    """It is public too, and has to refuse what the losses refuse before it."""

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_float16_is_summed_beyond_its_range(self, reduction):
        x = torch.full((1, 1000), 100.0, dtype=torch.float16)
        length = 1000 if reduction == "constant" else None
        got = reduce_steps(x, torch.ones_like(x).bool(), reduction, length)
        assert got.dtype == torch.float16
        assert got == (INF if reduction == "sequence_sum" else 100.0)

    @pytest.mark.parametrize("reduction", REDUCTIONS[:3])
    @pytest.mark.parametrize(
        ("x", "mask", "error", "words"),
        [
            (torch.ones(2, 3), torch.ones(3).bool(), ValueError, r"^mask must have sh"),
            (torch.ones(2, 3), torch.ones(2, 1).bool(), ValueError, "^mask must have"),
            (torch.ones(2, 3), torch.ones(2, 3), TypeError, "^mask must have dtype"),
            (torch.ones(3).int(), None, TypeError, "^x must have a floating dtype"),
            (torch.tensor(1.0), None, ValueError, "^x must have at least 1 axis"),
            ([1.0], None, TypeError, "^x must be a torch.Tensor"),
            (torch.tensor([1.0, NAN]), None, NaNInputError, r"^x .* index \[1\]"),
        ],
    )
    def test_a_bad_argument_is_refused_by_name(self, reduction, x, mask, error, words):
        with pytest.raises(error, match=words):
            reduce_steps(x, mask, reduction)


@pytest.mark.parametrize("kernel", [masked_sum, masked_mean, masked_var, whiten])
@pytest.mark.parametrize(
    ("shape", "dim", "error", "words"),
    [
        ((2, 3), 2, ValueError, r"^dim must be an axis of shape \[2, 3\], got 2"),
        ((2, 3), -3, ValueError, "^dim must be an axis"),
        ((), 0, ValueError, r"^dim must be an axis of shape \[\], got 0"),
        ((2, 3), (0, 1), TypeError, "^dim must be an integer, got tuple"),
        ((2, 3), True, TypeError, "^dim must be an integer, got bool"),
        ((2, 3), 1.0, TypeError, "^dim must be an integer, got float"),
    ],
)
def test_an_axis_that_is_none_is_refused_by_name(kernel, shape, dim, error, words):
    with pytest.raises(error, match=words):
        kernel(torch.ones(shape), None, dim=dim)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: discounted_returns(x, TOO_LARGE), "gamma"),
        (lambda x: reverse_scan(x, TOO_LARGE), "decay"),
        (lambda x: whiten(x, eps=TOO_LARGE), "eps"),
        (lambda x: clipped_value_loss(x, x, x, clip=TOO_LARGE), "clip"),
        (lambda x: token_log_probs(x, torch.tensor(0), temperature=TOO_LARGE),
         "temperature"),
    ],
)  # fmt: skip
def test_an_integer_beyond_all_floats_is_refused_by_name(call, name):
    with pytest.raises(ValueError, match=f"^{name} is an integer too large"):
        call(torch.ones(3))


def test_the_last_value_keeps_its_fraction_beside_integer_values():
    got = shift_values(torch.tensor([1, 2, 3]), torch.tensor(0.75))
    assert got.tolist() == [2.0, 3.0, 0.75]
    assert got.dtype == torch.get_default_dtype()


def test_asking_for_the_engine_of_no_tensor_is_refused_by_name():
    with pytest.raises(TypeError, match=r"^x must be a torch.Tensor, got list"):
        scan_engine([1.0])
