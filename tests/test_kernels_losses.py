"""The losses: beside plain loops, at their kinks, and where people go wrong."""

import math
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.kernels import (
    NaNInputError,
    Reduction,
    bradley_terry_loss,
    clipped_policy_loss,
    clipped_value_loss,
    entropy,
    entropy_bonus,
    kl_estimates,
    kl_penalty_policy_loss,
    policy_gradient_loss,
    pretraining_loss,
    token_log_probs,
    value_loss,
)
from tests import reference_losses as by_hand

NAN, INF = math.nan, math.inf
REDUCTIONS = get_args(Reduction)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def one_step(ratio, advantage, clip_eps=0.2):
    """Loss and its gradient to the log-probability, for a single step."""
    log_prob = torch.tensor([ratio], dtype=torch.float64).log().requires_grad_()
    loss, seen = clipped_policy_loss(
        log_prob, numbers(0.0), numbers(advantage), clip_eps=clip_eps
    )
    (grad,) = torch.autograd.grad(loss, log_prob)
    return loss.item(), grad.item(), seen


@st.composite
def batch(draw, terms):
    """`terms` tensors [B, T] with junk behind the mask, and how to reduce."""
    rows, steps = draw(st.sampled_from([(1, 1), (1, 4), (3, 2), (2, 7)]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 9999)))
    share = draw(st.sampled_from([0.0, 0.5, 1.0]))
    mask = torch.rand((rows, steps), generator=generator) < share
    junk = draw(st.sampled_from([NAN, INF, -INF, 1e3]))
    x = torch.randn((terms, rows, steps), generator=generator, dtype=torch.float64)
    reduction = draw(st.sampled_from(REDUCTIONS))
    how = {"mask": mask, "reduction": reduction}
    if reduction == "constant":
        how["constant_length"] = draw(st.integers(1, 9))
    return [y.masked_fill(~mask, junk) for y in x], how


def expected_loss(term, tensors, how):
    rows = [
        [term(*step) for step in zip(*row, strict=True)]
        for row in zip(*(x.tolist() for x in tensors), strict=True)
    ]
    return by_hand.reduced(
        rows, how["mask"].tolist(), how["reduction"], how.get("constant_length")
    )


def checked(loss, trained, mask):
    """The loss as a float, after its gradient was seen to end at the mask."""
    (grad,) = torch.autograd.grad(loss, trained)
    assert grad.isfinite().all() and (grad[~mask] == 0).all()
    return loss.item()


def read_if_real(term):
    """The term, or 0 for junk: it is masked, and a plain loop would stumble on it."""

    def at(*values):
        return term(*values) if all(map(math.isfinite, values)) else 0.0

    return at


@settings(max_examples=80, deadline=None)
@given(data=batch(4), width=st.sampled_from([0.0, 0.2, 1.5]))
def test_every_stepwise_loss_is_that_of_plain_loops(data, width):
    (a, b, c, d), how = data
    mask = how["mask"]
    a.requires_grad_()
    cases = (
        (
            policy_gradient_loss(a, b, **how),
            lambda lp, w, _c, _d: by_hand.policy_gradient_term(lp, w),
        ),
        (
            clipped_policy_loss(a, b, c, clip_eps=width, **how),
            lambda lp, old, adv, _: by_hand.clipped_term(lp, old, adv, width),
        ),
        (
            kl_penalty_policy_loss(a, b, c, d, beta=width, **how),
            lambda lp, old, adv, kl: by_hand.kl_penalty_term(lp, old, adv, kl, width),
        ),
        (
            value_loss(a, b, **how),
            lambda v, target, _c, _d: by_hand.value_term(v, target),
        ),
        (
            clipped_value_loss(a, b, c, clip=width, **how),
            lambda v, old, target, _: by_hand.clipped_value_term(v, old, target, width),
        ),
        (entropy_bonus(a, **how), lambda h, *_: h),
    )
    for (loss, seen), term in cases:
        assert loss.dim() == 0
        assert checked(loss, a, mask) == pytest.approx(
            expected_loss(read_if_real(term), (a, b, c, d), how), abs=1e-10
        )
        for value in seen.values():
            assert value.dim() == 0 and not value.requires_grad


@settings(max_examples=60, deadline=None)
@given(data=batch(3), clip_eps=st.sampled_from([0.0, 0.2, 0.9, 1.5]))
def test_the_clips_gradient_and_shares_are_those_of_the_six_cases(data, clip_eps):
    (new, old, advantages), how = data
    mask = how["mask"]
    new.requires_grad_()
    how = {"mask": mask, "reduction": "token_mean"}
    loss, seen = clipped_policy_loss(new, old, advantages, clip_eps=clip_eps, **how)
    (grad,) = torch.autograd.grad(loss, new)
    steps = [
        by_hand.real_entries(x.tolist(), mask.tolist()) for x in (new, old, advantages)
    ]
    steps = list(zip(*steps, strict=True))
    slopes = [by_hand.clipped_slope(*step, clip_eps) for step in steps]
    count = max(len(steps), 1)
    assert (grad[mask] * count).tolist() == pytest.approx(slopes, abs=1e-10)
    ratios = [math.exp(a - b) for a, b, _ in steps]
    outside = [abs(r - 1) > clip_eps for r in ratios]
    assert seen["clip_frac"].item() == pytest.approx(sum(outside) / count)
    dead = [slope == 0 for slope in slopes]
    assert seen["clip_frac_active"].item() == pytest.approx(sum(dead) / count)
    assert seen["ratio_max"].item() == pytest.approx(max(ratios, default=0.0))
    k3 = [r - 1 - math.log(r) for r in ratios]
    assert seen["approx_kl"].item() == pytest.approx(by_hand.mean(k3), abs=1e-10)


class TestGradientsByDifferences:
    new = torch.tensor([[-1.0, -0.5, -2.0], [-0.9, -1.1, -1.0]], dtype=torch.float64)
    old = new + torch.tensor([[0.05, -0.4, 0.5], [0.3, -0.05, 0.1]])
    advantages = torch.tensor([[1.0, -1.0, 1.0], [-0.5, 2.0, 0.3]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False], [True, True, True]])

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    def test_of_every_loss_where_it_is_smooth(self, reduction):
        how = {"mask": self.mask, "reduction": reduction}
        if reduction == "constant":
            how["constant_length"] = 4
        new = self.new.clone().requires_grad_()
        kl = self.advantages.abs().requires_grad_()
        old, adv = self.old, self.advantages
        for loss, inputs in (
            (lambda x: policy_gradient_loss(x, adv, **how)[0], new),
            (lambda x: clipped_policy_loss(x, old, adv, clip_eps=0.2, **how)[0], new),
            (
                lambda x, k: kl_penalty_policy_loss(x, old, adv, k, beta=2.0, **how)[0],
                (new, kl),
            ),
            (lambda x: value_loss(x, adv, **how)[0], new),
            (lambda x: clipped_value_loss(x, old, adv, clip=0.2, **how)[0], new),
            (lambda x: entropy_bonus(x, **how)[0], new),
        ):
            assert torch.autograd.gradcheck(loss, inputs)
            assert torch.autograd.gradgradcheck(loss, inputs)

    def test_of_the_losses_of_whole_models(self):
        generator = torch.Generator().manual_seed(0)
        draw = {"generator": generator, "dtype": torch.float64}
        chosen, rejected = torch.randn((2, 5), **draw)
        pair = chosen.clone().requires_grad_(), rejected.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda a, b: bradley_terry_loss(a, b)[0], pair)
        for vocabulary in (4, 20):
            logits = torch.randn((2, 3, vocabulary), **draw).requires_grad_()
            tokens = torch.randint(vocabulary, (2, 3), generator=generator)
            assert torch.autograd.gradcheck(
                lambda z, t=tokens: pretraining_loss(z, t, self.mask)[0], logits
            )


class TestTheClip:
    @pytest.mark.parametrize(
        ("ratio", "advantage", "loss", "gradient"),
        [
            (1.5, 1.0, -1.2, 0.0),  # gone far enough up
            (1.0, 1.0, -1.0, -1.0),
            (0.5, 1.0, -0.5, -0.5),  # gone the wrong way: pulled back
            (0.5, -1.0, 0.8, 0.0),  # gone far enough down
            (1.0, -1.0, 1.0, 1.0),
            (1.5, -1.0, 1.5, 1.5),  # gone the wrong way: pulled back
        ],
    )
    def test_k31_six_cases(self, ratio, advantage, loss, gradient):
        """takuseno/ppo #3; openai/baselines #1156; rsl_rl #46; rlevo #469."""
        value, slope, _ = one_step(ratio, advantage)
        assert value == pytest.approx(loss)
        assert slope == pytest.approx(gradient)

    def test_claims_16_ratio_of_root_e(self):
        for advantage, gradient in ((1.0, 0.0), (-1.0, 1.6487213)):
            _, slope, _ = one_step(math.exp(0.5), advantage)
            assert slope == pytest.approx(gradient, abs=1e-6)

    @pytest.mark.parametrize(
        ("ratio", "advantage", "loss", "gradient"),
        [(10.0, -1.0, 10.0, 10.0), (10.0, 1.0, -1.2, 0.0), (0.5, -1.0, 0.8, 0.0)],
    )
    def test_l16_the_negative_side_is_unbounded(self, ratio, advantage, loss, gradient):
        """ray-project/ray #37334; tensorlayer/TensorLayer #1072; spinningup #255."""
        assert one_step(ratio, advantage)[:2] == pytest.approx((loss, gradient))

    def test_the_edge_of_the_band_still_has_its_gradient(self):
        # Ratios that a float hits exactly: 1 +- 1/4.
        assert one_step(1.25, 1.0, 0.25)[:2] == pytest.approx((-1.25, -1.25))
        assert one_step(0.75, -1.0, 0.25)[:2] == pytest.approx((0.75, 0.75))
        assert one_step(1.0, 1.0, 0.0)[:2] == (-1.0, -1.0)

    def test_the_five_step_episode(self):
        ratios = numbers(1.0, 1.5, 0.5, 0.5, 1.5)
        advantages = numbers(-2.0, 4.0, 4.0, -4.0, 8.0)
        terms = [
            -one_step(ratio, advantage, 0.25)[0]
            for ratio, advantage in zip(
                ratios.tolist(), advantages.tolist(), strict=True
            )
        ]
        assert terms == pytest.approx([-2, 5, 2, -3, 10])
        loss, seen = clipped_policy_loss(
            ratios.log(), torch.zeros_like(ratios), advantages, clip_eps=0.25
        )
        assert loss.item() == pytest.approx(-12 / 5)
        assert seen["clip_frac"].item() == pytest.approx(4 / 5)
        assert seen["clip_frac_active"].item() == pytest.approx(3 / 5)
        assert seen["ratio_max"].item() == pytest.approx(1.5)

    def test_k31_a_negative_width_is_refused_and_a_wide_one_is_not(self):
        with pytest.raises(ValueError, match="clip_eps must be at least 0"):
            one_step(1.0, 1.0, -0.2)
        assert one_step(0.01, -1.0, 1.5)[1] == pytest.approx(0.01)
        assert one_step(3.0, 1.0, 1.5)[:2] == pytest.approx((-2.5, 0.0))
        assert one_step(3.0, 1.0, INF)[:2] == pytest.approx((-3.0, -3.0))

    def test_k32_the_minimum_is_taken_before_the_mean(self):
        """Omegastick/pytorch-cpp-rl #14, with the input that separates the fault."""
        loss, _ = clipped_policy_loss(
            numbers(1.5, 1.5).log(), numbers(0.0, 0.0), numbers(1.0, -1.0), clip_eps=0.2
        )
        assert loss.item() == pytest.approx(0.15)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
    def test_k28_a_huge_log_ratio(self, dtype):
        """radixark/miles PR 1363; THUDM/slime PR 2198."""
        for advantage, expected in ((0.0, 0.0), (1.0, -1.2)):
            log_prob = torch.tensor([1000.0], dtype=dtype, requires_grad=True)
            loss, _ = clipped_policy_loss(
                log_prob,
                torch.zeros(1, dtype=dtype),
                torch.tensor([advantage], dtype=dtype),
                clip_eps=0.2,
            )
            (grad,) = torch.autograd.grad(loss, log_prob)
            assert loss.item() == pytest.approx(expected) and grad.item() == 0

    def test_k28_in_the_other_losses(self):
        far = torch.tensor([1000.0, -1.0], requires_grad=True)
        silent = torch.tensor([0.0, 1.0])
        zero = torch.zeros(2)
        loss, _ = kl_penalty_policy_loss(far, zero, silent, zero, beta=1.0)
        (grad,) = torch.autograd.grad(loss, far)
        assert loss.isfinite() and grad[0] == 0 and grad[1].isfinite()
        never = torch.tensor([-INF, -1.0], requires_grad=True)
        loss, _ = policy_gradient_loss(never, silent)
        (grad,) = torch.autograd.grad(loss, never)
        assert loss == 1 and grad.tolist() == [0.0, -1.0]
        # beta = 0 charges nothing, not even for an infinite distance.
        loss, _ = kl_penalty_policy_loss(
            zero, zero, silent, torch.tensor([INF, 0.0]), beta=0.0
        )
        assert loss == -0.5

    def test_k29_the_ratio_is_to_the_sampler_and_not_to_the_reference(self):
        """natolambert/rlhf-book PR 488."""
        new, old, ref = (torch.tensor([x]) for x in (-1.0, -1.0, -2.0))
        new.requires_grad_()
        for behind, expected, active in ((old, -1.0, 0.0), (ref, 0.0, 1.0)):
            loss, seen = clipped_policy_loss(new, behind, torch.ones(1), clip_eps=0.2)
            (grad,) = torch.autograd.grad(loss, new)
            assert grad == expected and seen["clip_frac_active"] == active

    def test_k30_l07_old_is_a_constant_and_new_is_not(self):
        """tensorforce #312; torchforge PR 571; minimalRL #33; SLM-Lab PR 133."""
        logits = torch.zeros(1, 2, requires_grad=True)
        live = token_log_probs(logits, torch.tensor([0]))
        loss, _ = clipped_policy_loss(live, live, torch.ones(1), clip_eps=0.2)
        (grad,) = torch.autograd.grad(loss, logits)
        assert grad.tolist() == [[-0.5, 0.5]]  # [0, 0] if old were live

    def test_l08_the_second_epoch_has_another_ratio(self):
        """AI4Finance-Foundation/ElegantRL #243; openai/baselines #87."""
        logits, action = torch.zeros(1, 2), torch.tensor([0])
        old = token_log_probs(logits, action)
        seen_ratios, slopes = [], []
        for _ in range(2):
            logits.requires_grad_()
            loss, seen = clipped_policy_loss(
                token_log_probs(logits, action), old, torch.ones(1), clip_eps=0.2
            )
            (grad,) = torch.autograd.grad(loss, logits)
            seen_ratios.append(seen["ratio_max"].item())
            slopes.append(grad[0].tolist())
            logits = (logits - grad).detach()
        assert seen_ratios == pytest.approx([1.0, 1.462117], abs=1e-6)
        assert slopes == [[-0.5, 0.5], [0.0, 0.0]]

    def test_l09_l10_k26_one_update_is_the_policy_gradient_and_loss_0_is_no_end(self):
        """verl #791; huggingface/trl #2703, #3452, #454; CarperAI/trlx #107."""
        logits = torch.zeros(1, 2, requires_grad=True)
        log_probs = token_log_probs(logits.expand(2, 2), torch.tensor([0, 1]))
        advantages = torch.tensor([1.0, -1.0])
        loss, seen = clipped_policy_loss(
            log_probs, log_probs.detach(), advantages, clip_eps=0.2
        )
        assert loss == 0 and seen["ratio_max"] == 1 and seen["clip_frac"] == 0
        assert seen["approx_kl"] == 0
        (grad,) = torch.autograd.grad(loss, logits, retain_graph=True)
        plain, _ = policy_gradient_loss(log_probs, advantages, reduction="token_mean")
        (same,) = torch.autograd.grad(plain, logits)
        assert grad.tolist() == same.tolist() == [[-0.5, 0.5]]

    def test_k45_the_stopping_statistic_is_never_negative(self):
        """openai/spinningup #137; DLR-RM/stable-baselines3 #417."""
        moved = numbers(0.5, -0.1)
        _, seen = clipped_policy_loss(
            moved, numbers(0.0, 0.0), numbers(1.0, 1.0), clip_eps=0.2
        )
        assert seen["approx_kl"].item() == pytest.approx(0.0767793, abs=1e-6)
        assert (-moved).mean().item() == pytest.approx(-0.2)  # what never stops

    def test_trap_13_two_clip_fractions(self):
        """KERNELS trap 13; huggingface/trl #3032: outside is not without gradient."""
        _, seen = clipped_policy_loss(
            numbers(1.5, 1.5, 0.5, 0.5, 0.5).log(),
            torch.zeros(5, dtype=torch.float64),
            numbers(1.0, -1.0, 1.0, -1.0, 0.0),  # the last has no gradient to lose
            clip_eps=0.2,
        )
        assert seen["clip_frac"] == 1
        assert seen["clip_frac_active"].item() == pytest.approx(0.4)

    def test_diagnostics_are_of_real_steps_whatever_the_reduction(self):
        new = torch.tensor([[0.5, 9.0], [-0.5, 9.0]])
        mask = torch.tensor([[True, False], [True, False]])
        for reduction in REDUCTIONS[:3]:
            _, seen = clipped_policy_loss(
                new,
                torch.zeros(2, 2),
                torch.ones(2, 2),
                clip_eps=0.2,
                mask=mask,
                reduction=reduction,
            )
            assert seen["clip_frac"] == 1 and seen["clip_frac_active"] == 0.5
            assert seen["ratio_max"].item() == pytest.approx(math.exp(0.5))

    def test_the_largest_ratio_may_be_below_one(self):
        _, seen = clipped_policy_loss(
            torch.tensor([-1.0, 0.0]),
            torch.zeros(2),
            torch.ones(2),
            clip_eps=0.2,
            mask=torch.tensor([True, False]),
        )
        assert seen["ratio_max"].item() == pytest.approx(math.exp(-1))

    def test_chapter_08_a_token_worked_by_hand(self):
        log_prob = numbers(0.6).log().requires_grad_()
        loss, _ = clipped_policy_loss(
            log_prob, numbers(0.5).log(), numbers(0.8), clip_eps=0.3
        )
        (grad,) = torch.autograd.grad(loss, log_prob)
        assert grad.item() == pytest.approx(-0.96)


class TestPolicyGradient:
    def test_l02_each_log_prob_has_its_own_return(self):
        """Farama-Foundation/Gymnasium #1336."""
        log_probs, returns = numbers(0.5, 0.25).log(), numbers(2.0, 1.0)
        loss, _ = policy_gradient_loss(log_probs, returns)
        assert loss.item() == pytest.approx(2.772589, abs=1e-6)

    def test_l05_the_value_is_not_the_quality(self):
        """datascience.stackexchange.com/questions/57114."""
        for reward in (1.0, -1.0):
            logits = torch.zeros(1, 2, requires_grad=True)
            log_probs = token_log_probs(logits, torch.tensor([0]))
            loss, _ = policy_gradient_loss(log_probs, torch.tensor([reward]))
            (grad,) = torch.autograd.grad(loss, logits)
            assert loss.item() == pytest.approx(0.693147 * reward, abs=1e-6)
            assert grad[0, 0].item() == pytest.approx(-0.5 * reward)

    def test_l06_it_does_not_train_the_critic(self):
        """keras-team/keras-io #194; nikhilbarhate99/PPO-PyTorch #29."""
        log_probs = numbers(0.5).log().requires_grad_()
        value = numbers(0.0).requires_grad_()
        for loss in (
            policy_gradient_loss(log_probs, 1 - value)[0],
            clipped_policy_loss(log_probs, log_probs, 1 - value, clip_eps=0.2)[0],
            kl_penalty_policy_loss(log_probs, log_probs, 1 - value, value, beta=0.0)[0],
        ):
            grad = torch.autograd.grad(loss, value, allow_unused=True)[0]
            assert grad is None or grad == 0  # -0.693147 if it did

    def test_claims_7_the_bandits_gradient(self):
        logit = numbers(0.0).requires_grad_()
        logits = torch.stack([torch.zeros_like(logit), logit], -1)  # [1, 2]
        log_probs = logits.log_softmax(-1)[0]  # both actions
        loss, _ = policy_gradient_loss(log_probs, numbers(10.0, 11.0) / 2)
        (grad,) = torch.autograd.grad(loss, logit)
        assert -grad.item() == pytest.approx(0.25)

    def test_claims_error_1_one_over_t_is_another_estimator(self):
        """Action L ends (return 1), R goes on (return 2): .25, and 0 with the mean."""
        slopes = {}
        for reduction in ("sequence_sum", "sequence_mean"):
            logit = numbers(0.0).requires_grad_()
            log_p = torch.stack([-logit, logit], -1).mul(0.5).log_softmax(-1)[0]
            left = torch.stack([log_p[0], log_p[0] * 0])
            right = torch.stack([log_p[1], log_p[1] * 0])
            rows = torch.stack([left, right])
            mask = torch.tensor([[True, False], [True, True]])
            returns = torch.stack([numbers(1.0, 0.0), numbers(2.0, 1.0)])
            loss, _ = policy_gradient_loss(
                rows, returns, mask=mask, reduction=reduction
            )
            (grad,) = torch.autograd.grad(loss, logit)
            slopes[reduction] = -grad.item()
        assert slopes["sequence_sum"] == pytest.approx(0.25)
        assert slopes["sequence_mean"] == pytest.approx(0.0)


class TestValueLosses:
    def test_claims_23_values_at_the_start(self):
        loss, _ = value_loss(numbers(0.0, 0.0), numbers(1.0, 1.0))
        assert loss.item() == pytest.approx(0.5)
        policy, _ = clipped_policy_loss(
            numbers(-1.0, -2.0), numbers(-1.0, -2.0), numbers(3.0, 1.0), clip_eps=0.2
        )
        assert policy.item() == pytest.approx(-2.0)  # ratio 1: minus the mean of A

    def test_k39_a_column_against_a_row_is_refused(self):
        """RLinf/RLinf #1568; RITCHIEHuang/DeepRL_Algorithms #13."""
        column = torch.tensor([[1.0], [2.0]])
        flat = column[:, 0]
        assert value_loss(flat, flat)[0] == 0
        for call in (
            lambda: value_loss(flat, column),
            lambda: clipped_value_loss(flat, flat, column, clip=0.2),
            lambda: clipped_value_loss(flat, column, flat, clip=0.2),
            lambda: policy_gradient_loss(flat, column),
            lambda: clipped_policy_loss(flat, column, flat, clip_eps=0.2),
            lambda: clipped_policy_loss(flat, flat, column, clip_eps=0.2),
            lambda: kl_penalty_policy_loss(flat, flat, flat, column, beta=1.0),
            lambda: kl_estimates(flat, column),
            lambda: bradley_terry_loss(flat, column),
            lambda: pretraining_loss(torch.zeros(2, 3), column.long(), column > 0),
        ):
            with pytest.raises(ValueError, match=r"got \[2, 1\]"):
                call()

    def test_claims_error_14_the_clip_stops_a_value_that_has_overshot(self):
        value = numbers(0.5).requires_grad_()
        loss, seen = clipped_value_loss(value, numbers(0.0), numbers(0.4), clip=0.2)
        (grad,) = torch.autograd.grad(loss, value)
        assert loss.item() == pytest.approx(0.02) and grad.item() == 0
        assert seen["value_clip_frac_active"] == 1
        plain, _ = value_loss(value, numbers(0.4))
        (grad,) = torch.autograd.grad(plain, value)
        assert grad.item() == pytest.approx(0.1)

    @pytest.mark.parametrize(
        ("value", "old", "target", "loss", "gradient", "active"),
        [
            (0.25, 0.0, 1.0, 0.28125, -0.75, 0.0),  # on the edge of the band
            (0.5, 0.0, 1.0, 0.28125, 0.0, 1.0),  # on its way, held back
            (0.5, 0.0, -1.0, 1.125, 1.5, 0.0),  # gone the wrong way
            (0.75, 0.0, 0.5, 0.03125, 0.25, 0.0),  # equally far: the plain one
        ],
    )
    def test_kinks_by_hand(self, value, old, target, loss, gradient, active):
        value = numbers(value).requires_grad_()
        got, seen = clipped_value_loss(value, numbers(old), numbers(target), clip=0.25)
        (grad,) = torch.autograd.grad(got, value)
        assert got.item() == loss and grad.item() == gradient
        assert seen["value_clip_frac_active"] == active

    def test_a_wide_clip_is_no_clip(self):
        values, old, returns = torch.randn((3, 20))
        found = clipped_value_loss(values, old, returns, clip=INF)[0]
        torch.testing.assert_close(found, value_loss(values, returns)[0])

    def test_targets_and_old_values_are_constants(self):
        values, old, returns = torch.randn((3, 4)).requires_grad_().unbind()
        loss = clipped_value_loss(values, old, returns, clip=0.1)[0]
        loss = loss + value_loss(values, returns)[0]
        grads = torch.autograd.grad(loss, (old, returns), allow_unused=True)
        assert grads == (None, None)

    def test_explained_variance(self):
        returns = torch.tensor([1.0, 2.0, 3.0, 99.0])
        mask = torch.tensor([True, True, True, False])

        def explained(values):
            seen = value_loss(values, returns, mask=mask)[1]
            return seen["explained_variance"]

        assert explained(returns) == 1
        assert explained(torch.full((4,), 2.0)).item() == pytest.approx(0.0)
        assert explained(-returns).item() == pytest.approx(-3.0)
        level = value_loss(returns, torch.ones(4))[1]["explained_variance"]
        assert level.isnan()


class TestModelLosses:
    def test_k40_the_bonus_is_subtracted(self):
        """DLR-RM/stable-baselines3 #127; omnisafe PR 133; noahfarr/rlx PR 3."""
        bonus, _ = entropy_bonus(entropy(torch.zeros(1, 2)))
        assert (0.0 - 0.01 * bonus).item() == pytest.approx(-0.00693147, abs=1e-8)

    def test_the_bonus_names_the_mean_entropy_whatever_the_reduction(self):
        entropies = torch.tensor([[1.0, 2.0], [3.0, NAN]])
        mask = torch.tensor([[True, True], [True, False]])
        bonus, seen = entropy_bonus(entropies, mask=mask, reduction="sequence_sum")
        assert bonus == 3 and seen["entropy"] == 2

    def test_k52_each_answer_is_read_at_its_own_end(self):
        """deepspeedai/DeepSpeedExamples #316; sunzeyeah/RLHF #17."""
        chosen, rejected = torch.tensor([0.0, 2, 99]), torch.tensor([0.0, 1, 1.5])
        loss, seen = bradley_terry_loss(chosen[1:2], rejected[2:3])
        assert loss.item() == pytest.approx(0.474077, abs=1e-6)
        assert seen["margin"] == 0.5

    def test_preferences_begin_at_log_2_and_do_not_overflow(self):
        loss, seen = bradley_terry_loss(torch.zeros(3), torch.zeros(3))
        assert loss.item() == pytest.approx(0.693147, abs=1e-6)
        assert seen["accuracy"] == 0.5
        chosen = torch.tensor([-1e4, 1e4, 1.0], requires_grad=True)
        loss, seen = bradley_terry_loss(chosen, torch.zeros(3))
        (grad,) = torch.autograd.grad(loss, chosen)
        assert loss.item() == pytest.approx((1e4 + math.log1p(math.exp(-1))) / 3)
        assert grad.tolist()[:2] == pytest.approx([-1 / 3, 0.0])
        assert seen["accuracy"].item() == pytest.approx(2 / 3)

    @settings(max_examples=40, deadline=None)
    @given(seed=st.integers(0, 999), shape=st.sampled_from([(1,), (7,), (2, 3)]))
    def test_preferences_are_those_of_plain_loops(self, seed, shape):
        generator = torch.Generator().manual_seed(seed)
        draw = {"generator": generator, "dtype": torch.float64}
        chosen, rejected = 3 * torch.randn((2, *shape), **draw)
        pairs = chosen.flatten().tolist(), rejected.flatten().tolist()
        for shift in (0.0, 5.0):  # only differences matter
            loss, _ = bradley_terry_loss(chosen + shift, rejected + shift)
            assert loss.item() == pytest.approx(by_hand.bradley_terry(*pairs))

    @pytest.mark.parametrize("vocabulary", [4, 20])
    def test_pretraining_reads_no_masked_token(self, vocabulary):
        generator = torch.Generator().manual_seed(0)
        logits = torch.randn((2, 3, vocabulary), generator=generator)
        tokens = torch.randint(vocabulary, (2, 3), generator=generator)
        mask = torch.tensor([[True, True, False], [False, True, True]])
        expected = by_hand.mean(
            [
                -by_hand.log_prob(logits[b, t].tolist(), tokens[b, t].item(), 1.0)
                for b, t in mask.nonzero().tolist()
            ]
        )
        logits = logits.masked_fill(~mask[..., None], NAN).requires_grad_()
        loss, seen = pretraining_loss(logits, tokens.masked_fill(~mask, -100), mask)
        (grad,) = torch.autograd.grad(loss, logits)
        assert loss.item() == pytest.approx(expected, rel=1e-5)
        assert grad.isfinite().all() and (grad[~mask] == 0).all()
        assert seen["perplexity"].item() == pytest.approx(math.exp(expected), rel=1e-5)


STEPS, FLAGS = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
A_NAN = STEPS.clone()
A_NAN[1, 0] = NAN


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_losses_sum_narrow_floats_in_float32_and_change_nothing(dtype):
    ones = torch.ones(2, 600, dtype=dtype, requires_grad=True)
    before = ones.detach().clone()
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for loss, expected in (
        (policy_gradient_loss(ones, ones)[0], -600.0),
        (clipped_policy_loss(ones, ones, ones, clip_eps=0.2)[0], -1.0),
        (kl_penalty_policy_loss(ones, ones, ones, ones, beta=0.5)[0], -0.5),
        (value_loss(ones, 0 * ones, reduction="sequence_sum")[0], 300.0),
        (clipped_value_loss(ones, ones, 0 * ones, clip=0.2)[0], 0.5),
        (entropy_bonus(ones, reduction="sequence_sum")[0], 600.0),
    ):
        assert loss.dtype == wide and loss.item() == expected
        (grad,) = torch.autograd.grad(loss, ones)
        assert grad.dtype == dtype
        assert torch.equal(ones.detach(), before)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: policy_gradient_loss(A_NAN, STEPS), "log_probs"),
        (lambda: policy_gradient_loss(STEPS, A_NAN), "weights"),
        (
            lambda: clipped_policy_loss(A_NAN, STEPS, STEPS, clip_eps=0.2),
            "log_probs",
        ),
        (
            lambda: clipped_policy_loss(STEPS, A_NAN, STEPS, clip_eps=0.2),
            "old_log_probs",
        ),
        (lambda: clipped_policy_loss(STEPS, STEPS, A_NAN, clip_eps=0.2), "advantages"),
        (lambda: kl_penalty_policy_loss(STEPS, STEPS, STEPS, A_NAN, beta=1.0), "kl"),
        (lambda: value_loss(A_NAN, STEPS), "values"),
        (lambda: value_loss(STEPS, A_NAN), "returns"),
        (lambda: clipped_value_loss(STEPS, A_NAN, STEPS, clip=0.2), "old_values"),
        (lambda: entropy_bonus(A_NAN), "entropies"),
        (lambda: bradley_terry_loss(STEPS, A_NAN), "rejected"),
    ],
)
def test_a_nan_at_a_real_step_is_named(call, name):
    with pytest.raises(NaNInputError, match=rf"^{name} must not hold NaN.*\[1, 0\]"):
        call()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: policy_gradient_loss([1.0], STEPS), TypeError, "log_probs must be a"),
        (
            lambda: policy_gradient_loss(FLAGS, STEPS),
            TypeError,
            "log_probs must have a",
        ),
        (
            lambda: policy_gradient_loss(STEPS[0, 0], STEPS),
            ValueError,
            "log_probs must",
        ),
        (
            lambda: policy_gradient_loss(STEPS[:0], STEPS),
            ValueError,
            "at least one entr",
        ),
        (
            lambda: policy_gradient_loss(STEPS, STEPS, reduction="sum"),
            ValueError,
            "reduction must be one of",
        ),
        (
            lambda: policy_gradient_loss(STEPS, STEPS, mask=FLAGS.float()),
            TypeError,
            "mask must have dtype torch.bool",
        ),
        (
            lambda: clipped_policy_loss(STEPS, STEPS.bfloat16(), STEPS, clip_eps=0.2),
            TypeError,
            "old_log_probs must have dtype torch.float32, got torch.bfloat16",
        ),
        (
            lambda: clipped_policy_loss(
                STEPS, STEPS, STEPS, clip_eps=torch.tensor(0.2)
            ),
            TypeError,
            "clip_eps must be a number",
        ),
        (
            lambda: clipped_policy_loss(STEPS, STEPS, STEPS, clip_eps=NAN),
            ValueError,
            "clip_eps must be at least 0",
        ),
        (
            lambda: kl_penalty_policy_loss(STEPS, STEPS, STEPS, STEPS, beta=-1.0),
            ValueError,
            "beta must be at least 0",
        ),
        (
            lambda: clipped_value_loss(STEPS, STEPS, STEPS, clip=-0.1),
            ValueError,
            "clip must be at least 0",
        ),
        (lambda: value_loss(STEPS, STEPS[0]), ValueError, "returns must have shape"),
        (
            lambda: value_loss(STEPS, STEPS, mask=FLAGS[:1]),
            ValueError,
            "mask must have shape",
        ),
        (lambda: entropy_bonus(FLAGS), TypeError, "entropies must have a floating"),
        (
            lambda: bradley_terry_loss(STEPS, FLAGS),
            TypeError,
            "rejected must have a fl",
        ),
        (
            lambda: pretraining_loss(torch.zeros(2, 3, 4), FLAGS.long() * 9, FLAGS),
            ValueError,
            r"tokens must lie in \[0, 4\)",
        ),
        (
            lambda: pretraining_loss(torch.zeros(4), FLAGS.long(), FLAGS),
            ValueError,
            "logits must have at least 2",
        ),
    ],
)
def test_a_bad_argument_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()
