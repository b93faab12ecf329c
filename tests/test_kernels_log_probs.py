"""Log-probabilities, entropies and divergences: beside plain loops, and the traps."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.kernels import (
    NaNInputError,
    categorical_kl,
    entropy,
    kl_estimates,
    kl_shaped_rewards,
    token_log_probs,
)
from tests import reference_losses as by_hand

NAN, INF = math.nan, math.inf
VOCABULARIES = [1, 2, 8, 16, 50]  # below 16 along the first axis, from 16 in chunks


def draw_logits(shape, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    tokens = torch.randint(shape[-1], shape[:-1], generator=generator)
    return logits.to(dtype), tokens


@settings(max_examples=80, deadline=None)
@given(
    batch=st.sampled_from([(), (1,), (3,), (2, 4), (2, 0), (2, 1, 3)]),
    vocabulary=st.sampled_from(VOCABULARIES),
    temperature=st.sampled_from([1.0, 0.5, 2.0]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    forbidden=st.booleans(),
    seed=st.integers(0, 999),
)
def test_all_three_are_those_of_plain_loops(
    batch, vocabulary, temperature, dtype, forbidden, seed
):
    logits, tokens = draw_logits((*batch, vocabulary), seed, dtype)
    others, _ = draw_logits((*batch, vocabulary), seed + 1, dtype)
    if forbidden and vocabulary > 1:
        tokens = tokens.clamp(min=1)
        logits[..., 0] = -INF
    logits.requires_grad_()
    rows = logits.detach().double().reshape(-1, vocabulary).tolist()
    pairs = zip(rows, others.double().reshape(-1, vocabulary).tolist(), strict=True)
    expected = {
        "log_probs": [
            by_hand.log_prob(row, token, temperature)
            for row, token in zip(rows, tokens.reshape(-1).tolist(), strict=True)
        ],
        "entropy": [by_hand.entropy(row, temperature) for row in rows],
        "kl": [by_hand.kl(p, q) for p, q in pairs],
    }
    got = {
        "log_probs": token_log_probs(logits, tokens, temperature=temperature),
        "entropy": entropy(logits, temperature=temperature),
        "kl": categorical_kl(logits, others),
    }
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    tolerance = 1e-10 if wide == torch.float64 else 3e-5
    for name, result in got.items():
        assert result.shape == batch and result.dtype == wide, name
        assert result.reshape(-1).tolist() == pytest.approx(
            expected[name], abs=tolerance, rel=tolerance
        ), name
        (grad,) = torch.autograd.grad(result.sum(), logits, retain_graph=True)
        assert grad.isfinite().all() and grad.dtype == dtype, name


class TestTokenLogProbs:
    @pytest.mark.parametrize("vocabulary", VOCABULARIES)
    def test_gradient_and_its_gradient_by_differences(self, vocabulary):
        logits, tokens = draw_logits((2, 3, vocabulary), 0)
        logits.requires_grad_()

        def at_tokens(logits):
            return token_log_probs(logits, tokens, temperature=0.7)

        assert torch.autograd.gradcheck(at_tokens, logits)
        assert torch.autograd.gradgradcheck(at_tokens, logits)
        assert torch.autograd.gradcheck(lambda z: entropy(z, temperature=0.7), logits)
        other = (logits.detach() + 1).cos().requires_grad_()
        assert torch.autograd.gradcheck(categorical_kl, (logits, other))
        assert torch.autograd.gradgradcheck(categorical_kl, (logits, other))

    def test_several_chunks_and_any_strides_are_one_result(self):
        logits, tokens = draw_logits((3, 40, 5003), 1, torch.float32)  # 12 chunks
        plain = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
        torch.testing.assert_close(token_log_probs(logits, tokens), plain)
        for view, picked in (
            (logits[:, :-1], tokens[:, :-1]),
            (logits.transpose(0, 1), tokens.t()),
            (logits.flip(-1), 5002 - tokens),
            (logits[0, 0], tokens[0, 0]),
            (logits[:1, :1].expand(2, 3, -1), tokens[:1, :1].expand(2, 3)),
        ):
            view = view.detach().requires_grad_()
            same = view.detach().clone(memory_format=torch.contiguous_format)
            same.requires_grad_()
            upstream = torch.linspace(-1, 1, picked.numel()).view(picked.shape)
            got = token_log_probs(view, picked)
            expected = same.log_softmax(-1).gather(-1, picked[..., None])[..., 0]
            torch.testing.assert_close(got, expected)
            (a,) = torch.autograd.grad((got * upstream).sum(), view)
            (b,) = torch.autograd.grad((expected * upstream).sum(), same)
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)

    def test_k20_token_t_is_scored_by_the_logits_in_front_of_it(self):
        """lucidrains/PaLM-rlhf-pytorch #31; maxtext #2103; prime-rl PR 1525."""
        rows = [[0.25, 0.5, 0.25], [0.125, 0.125, 0.75], [0.8, 0.1, 0.1]]
        logits, ids = torch.tensor(rows).log(), torch.tensor([0, 1, 2])
        right = token_log_probs(logits[:-1], ids[1:])
        assert right.tolist() == pytest.approx([-0.693147, -0.287682], abs=1e-6)
        late = token_log_probs(logits[1:], ids[1:])
        assert late.tolist() == pytest.approx([-2.079442, -2.302585], abs=1e-6)

    def test_k23_a_filter_is_part_of_the_behaviour(self):
        """NVIDIA/NeMo-Aligner #46; huggingface/trl #235, #1002."""
        logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
        top_2 = logits.masked_fill(torch.arange(4) >= 2, -INF)
        token = torch.tensor(0)
        assert token_log_probs(top_2, token).item() == pytest.approx(-0.470004)
        assert token_log_probs(logits, token).item() == pytest.approx(-0.693147)

    def test_k24_half_precision_logits_are_read_in_float32(self):
        """huggingface/transformers #31267."""
        exact = token_log_probs(torch.tensor([20.06, 20.0]), torch.tensor(0))
        assert exact.item() == pytest.approx(-0.663597, abs=1e-6)
        rounded = torch.tensor([20.06, 20.0], dtype=torch.bfloat16)
        coarse = token_log_probs(rounded, torch.tensor(0))
        assert coarse.dtype == torch.float32
        assert coarse.item() == pytest.approx(-0.693147, abs=1e-6)
        assert (exact - coarse).exp().item() == pytest.approx(1.02999, abs=1e-5)

    def test_claims_36_bf16_log_probs_would_be_too_far_apart(self):
        for at, spacing in ((-0.7, 0.0039), (-2.0, 0.0156), (-10.0, 0.0625)):
            near = torch.tensor(at, dtype=torch.bfloat16)
            gap = near - torch.nextafter(near, torch.tensor(-INF, dtype=near.dtype))
            assert gap.item() == pytest.approx(spacing, abs=5e-5)
        logits, tokens = draw_logits((64, 100), 3, torch.bfloat16)
        exact = token_log_probs(logits.double(), tokens)
        assert (token_log_probs(logits, tokens) - exact).abs().max() < 1e-5

    def test_misconception_9_temperature_and_one_softmax(self):
        zero = torch.tensor(0)
        once = token_log_probs(torch.tensor([1.0, 0.0]), zero).exp()
        assert once.item() == pytest.approx(0.731059, abs=1e-6)
        logits = torch.tensor([math.log(4), 0.0])
        cold = token_log_probs(logits, zero, temperature=0.5)
        assert cold.item() == pytest.approx(-0.060625, abs=1e-6)
        assert token_log_probs(logits, zero).item() == pytest.approx(math.log(0.8))

    @pytest.mark.parametrize("vocabulary", [3, 50])
    def test_extreme_and_forbidden_logits(self, vocabulary):
        logits = torch.full((4, vocabulary), -1e4)
        logits[0, 0], logits[1, 1] = 1e4, 1e4
        logits[2] = -INF
        logits[2, 2] = 0.0  # one action left: certain
        logits[3, 1] = -INF  # the chosen one is forbidden
        logits.requires_grad_()
        log_probs = token_log_probs(logits, torch.tensor([0, 0, 2, 1]))
        assert log_probs.tolist() == [0.0, -2e4, 0.0, -INF]
        (grad,) = torch.autograd.grad(log_probs.sum(), logits)
        assert grad.isfinite().all() and grad[2].abs().max() == 0
        assert entropy(logits)[2] == 0

    @pytest.mark.parametrize("vocabulary", [3, 50])
    @pytest.mark.parametrize("junk", [NAN, INF, -INF])
    def test_a_masked_row_of_junk_reaches_no_gradient(self, vocabulary, junk):
        logits = torch.zeros(3, vocabulary)
        logits[1] = junk
        logits.requires_grad_()
        upstream = torch.tensor([1.0, 0.0, 1.0])
        mask = upstream.bool()
        for result in (
            token_log_probs(logits, torch.tensor([0, 1, 2])),
            entropy(logits),
            categorical_kl(logits, torch.ones(3, vocabulary)),
            categorical_kl(torch.ones(3, vocabulary), logits),
        ):
            assert result[1].isnan() and result[mask].isfinite().all()
            loss = torch.where(mask, result, 0.0).sum()
            (grad,) = torch.autograd.grad(loss, logits)
            assert grad.isfinite().all() and (grad[1] == 0).all()

    def test_nothing_is_changed_in_place(self):
        for vocabulary in (3, 50):
            logits, tokens = draw_logits((4, vocabulary), 0, torch.float32)
            before = logits.clone()
            logits.requires_grad_()
            token_log_probs(logits, tokens, temperature=0.5).sum().backward()
            entropy(logits, temperature=0.5).sum().backward()
            assert torch.equal(logits.detach(), before)


class TestDivergence:
    def test_claims_15b_the_pairs_of_the_importance_sampling_example(self):
        p = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).log()
        near = torch.tensor([0.15, 0.2, 0.3, 0.35], dtype=torch.float64).log()
        far = torch.tensor([0.7, 0.2, 0.07, 0.03], dtype=torch.float64).log()
        for q, forward, backward in ((near, 0.01287, 0.01408), (far, 1.2781, 1.1826)):
            assert categorical_kl(p, q).item() == pytest.approx(forward, abs=5e-5)
            assert categorical_kl(q, p).item() == pytest.approx(backward, abs=5e-5)

    def test_a_forbidden_token_is_infinitely_far_one_way_and_nothing_the_other(self):
        p = torch.tensor([0.0, 0.0, -INF])
        q = torch.zeros(3)
        assert categorical_kl(p, q).item() == pytest.approx(math.log(1.5))
        assert categorical_kl(q, p) == INF
        assert categorical_kl(p, p) == 0

    def test_its_hessian_at_p_is_the_fisher_information(self):
        logits = torch.tensor([1.0, 0.1, -0.6, -1.1], dtype=torch.float64)
        p = logits.softmax(-1)
        hessian = torch.autograd.functional.hessian(
            lambda z: categorical_kl(logits, z), logits
        )
        torch.testing.assert_close(hessian, p.diag() - torch.outer(p, p))

    def test_k40_entropy_is_of_the_distribution_and_not_of_the_action(self):
        """DLR-RM/stable-baselines3 #127; PKU-Alignment/omnisafe PR 133."""
        assert entropy(torch.tensor([0.9, 0.1]).log()).item() == pytest.approx(
            0.325083, abs=1e-6
        )


class TestKLEstimates:
    @settings(max_examples=60, deadline=None)
    @given(
        gap=st.floats(-5, 5),
        kind=st.sampled_from(["k1", "k2", "k3"]),
        dtype=st.sampled_from([torch.float64, torch.float32]),
    )
    def test_are_their_definitions(self, gap, kind, dtype):
        policy = torch.tensor([-6.0, -6.0], dtype=dtype)
        ref = policy - torch.tensor([gap, 0.0], dtype=dtype)
        expected = [
            by_hand.kl_estimate(a, b, kind)
            for a, b in zip(policy.tolist(), ref.tolist(), strict=True)
        ]
        assert kl_estimates(policy, ref, kind).tolist() == pytest.approx(
            expected, rel=1e-5, abs=1e-6
        )

    @pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
    def test_gradient_and_its_gradient_by_differences(self, kind):
        generator = torch.Generator().manual_seed(0)
        draw = {"generator": generator, "dtype": torch.float64}
        policy, ref = torch.randn((2, 4), **draw).requires_grad_().unbind()
        policy, ref = (x.detach().requires_grad_() for x in (policy, ref))
        assert torch.autograd.gradcheck(
            lambda a, b: kl_estimates(a, b, kind), (policy, ref)
        )
        assert torch.autograd.gradgradcheck(
            lambda a, b: kl_estimates(a, b, kind), (policy, ref)
        )

    def test_k43_sign_and_size(self):
        """Unakar/Logic-RL #58; huggingface/trl #463; verl-project/verl #211."""
        policy, ref = torch.tensor([-1.0]), torch.tensor([-2.0])
        k3 = kl_estimates(policy, ref, "k3")
        assert (0.1 * k3).item() == pytest.approx(0.036788, abs=1e-6)
        charged = kl_shaped_rewards(
            policy, ref, torch.tensor(0.0), beta=0.1, mask=torch.tensor([True])
        )
        assert charged.item() == pytest.approx(-0.1)

    def test_trap_9_k3_keeps_its_digits_near_zero(self):
        """KERNELS trap 9: (exp - 1) - x gives 1.66e-8 for 5.0002e-9."""
        policy, ref = torch.tensor([0.0]), torch.tensor([1e-4])
        assert kl_estimates(policy, ref, "k3").item() == pytest.approx(
            5.0002e-9, rel=1e-3
        )

    def test_trap_9_nothing_is_clamped(self):
        """verl gives 10 for a log-ratio of 30, -30 and 90; OpenRLHF 10 for k1 of 30."""
        policy, ref = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([-30.0, 30.0, 100.0])
        assert kl_estimates(policy, ref, "k1").tolist() == [30.0, -30.0, -100.0]
        k3 = kl_estimates(policy, ref, "k3")
        assert k3[0].item() == pytest.approx(29.0)
        assert k3[1].item() == pytest.approx(1.0686e13, rel=1e-4)
        assert k3[2] == INF  # the true 2.7e43 is no float32

    @pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
    @pytest.mark.parametrize("junk", [NAN, INF, 1000.0])
    def test_a_slot_masked_afterwards_reaches_no_gradient(self, kind, junk):
        policy = torch.tensor([-1.0, -1.0], requires_grad=True)
        ref = torch.tensor([-2.0, junk])
        estimates = kl_estimates(policy, ref, kind)
        loss = torch.where(torch.tensor([True, False]), estimates, 0.0).sum()
        (grad,) = torch.autograd.grad(loss, policy)
        assert grad.isfinite().all() and grad[1] == 0 and grad[0] != 0

    def test_claims_error_26_values_and_what_each_gradient_points_to(self):
        """verl #2953, NeMo-RL #2506, SkyRL #1445; exact over four actions."""
        pi = torch.tensor([1.0, 0.1, -0.6, -1.1], dtype=torch.float64)
        ref = torch.tensor([0.0, 0.5, -0.2, 0.1], dtype=torch.float64)
        pi.requires_grad_()
        log_pi, log_ref = pi.log_softmax(-1), ref.log_softmax(-1)
        p = log_pi.detach().exp()
        exact = categorical_kl(pi, ref)
        assert exact.item() == pytest.approx(0.32365, abs=1e-5)
        k1, k2, k3 = (kl_estimates(log_pi, log_ref, k) for k in ("k1", "k2", "k3"))
        assert (p @ k1).item() == pytest.approx(exact.item())
        assert (p @ k3).item() == pytest.approx(exact.item())
        assert (p @ k2).item() == pytest.approx(0.35827, abs=1e-5)
        turned = kl_estimates(log_ref, log_pi, "k3")  # rlhf-book issue 489
        assert (p @ turned).item() == pytest.approx(0.45225, abs=1e-5)

        def gradient(loss):
            return torch.autograd.grad(loss, pi, retain_graph=True)[0].tolist()

        forward = gradient(exact)
        backward = gradient(categorical_kl(ref, pi))
        assert gradient(p @ k1) == pytest.approx([0.0] * 4, abs=1e-12)
        assert gradient(p @ k2) == pytest.approx(forward)
        assert gradient(p @ k3) == pytest.approx(backward)
        assert forward == pytest.approx([0.374, -0.177, -0.088, -0.110], abs=6e-4)
        assert backward == pytest.approx([0.359, -0.126, -0.062, -0.171], abs=6e-4)
        ratio = (log_pi - log_pi.detach()).exp()
        for estimate in (k1, k3):
            assert gradient(p @ (ratio * estimate)) == pytest.approx(forward)
        frozen = gradient(p @ (ratio * k3.detach()))
        assert frozen == pytest.approx([0.015, -0.051, -0.025, 0.061], abs=6e-4)

    def test_misconception_10_a_sample_may_be_negative(self):
        policy = torch.tensor([0.6, 0.4]).log()
        ref = torch.tensor([0.75, 0.25]).log()
        samples = kl_estimates(policy, ref, "k1")
        assert samples.tolist() == pytest.approx([-0.223144, 0.470004], abs=1e-6)
        mean = policy.exp() @ samples
        assert mean.item() == pytest.approx(0.054115, abs=1e-6)
        assert categorical_kl(policy, ref).item() == pytest.approx(0.054115, abs=1e-6)

    def test_claims_error_30_what_a_filter_does_to_the_sampled_kl(self):
        """huggingface/trl #925, #1005, #736."""
        p = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
        ref = torch.tensor([0.45, 0.3, 0.2, 0.05], dtype=torch.float64)
        nucleus = torch.tensor([0.4, 0.3, 0.2, 0.0], dtype=torch.float64) / 0.9
        k1 = kl_estimates(p.log(), ref.log(), "k1")
        assert (nucleus @ k1).item() == pytest.approx(-0.0523, abs=5e-5)
        assert (p @ k1).item() == pytest.approx(0.0222, abs=5e-5)
        cut = kl_estimates(p.log()[:3], nucleus[:3].log(), "k1")
        assert (nucleus[:3] @ cut).item() == pytest.approx(-0.105, abs=5e-4)


class TestShapedRewards:
    @settings(max_examples=80, deadline=None)
    @given(data=st.data())
    def test_are_those_of_plain_loops(self, data):
        rows, steps = data.draw(st.sampled_from([(1, 1), (2, 3), (3, 6)]))
        seed, beta = data.draw(st.integers(0, 999)), data.draw(st.floats(0, 2))
        generator = torch.Generator().manual_seed(seed)
        draw = {"generator": generator, "dtype": torch.float64}
        log_probs, ref = torch.randn((2, rows, steps), **draw)
        scores = torch.randn(rows, **draw)
        mask = torch.rand((rows, steps), generator=generator) < 0.6
        expected = [
            by_hand.shaped_rewards(*row, real)
            for *row, real in zip(
                log_probs.tolist(),
                ref.tolist(),
                scores.tolist(),
                [beta] * rows,
                mask.tolist(),
                strict=True,
            )
        ]
        got = kl_shaped_rewards(
            log_probs.masked_fill(~mask, NAN),
            ref.masked_fill(~mask, -INF),
            scores,
            beta=beta,
            mask=mask,
        )
        torch.testing.assert_close(got, torch.tensor(expected, dtype=torch.float64))

    def test_k16_the_score_is_on_the_last_real_token(self):
        """huggingface/trl #3750, PR 5338, PR 2575."""
        k1 = torch.tensor([[0.1, 0.2, 0.3, 7.0, 7.0]])
        mask = torch.arange(5) < 3
        rewards = kl_shaped_rewards(
            k1 - 1, torch.full((1, 5), -1.0), torch.tensor([2.0]), beta=0.1,
            mask=mask[None],
        )  # fmt: skip
        torch.testing.assert_close(
            rewards, torch.tensor([[-0.01, -0.02, 1.97, 0.0, 0.0]])
        )

    def test_a_hole_keeps_the_score_and_pays_nothing_itself(self):
        mask = torch.tensor([[True, False, True, False], [False] * 4])
        rewards = kl_shaped_rewards(
            torch.full((2, 4), -1.0),
            torch.full((2, 4), -2.0),
            torch.tensor([5.0, 9.0]),
            beta=0.5,
            mask=mask,
        )
        assert rewards.tolist() == [[-0.5, 0.0, 4.5, 0.0], [0.0] * 4]

    def test_beta_zero_charges_nothing_even_where_the_reference_forbids(self):
        rewards = kl_shaped_rewards(
            torch.tensor([-1.0, -1.0]),
            torch.tensor([-INF, -1.0]),
            torch.tensor(1.0),
            beta=0.0,
            mask=torch.tensor([True, True]),
        )
        assert rewards.tolist() == [0.0, 1.0]

    def test_nan_is_named_where_it_counts(self):
        mask = torch.tensor([[True, False]])
        log_probs, ref = torch.zeros(1, 2), torch.zeros(1, 2)
        log_probs[0, 1] = NAN
        kl_shaped_rewards(log_probs, ref, torch.ones(1), beta=1.0, mask=mask)
        ref[0, 0] = NAN
        with pytest.raises(NaNInputError, match=r"ref_log_probs must not.*\[0, 0\]"):
            kl_shaped_rewards(log_probs, ref, torch.ones(1), beta=1.0, mask=mask)
        with pytest.raises(NaNInputError, match="scores must not"):
            kl_shaped_rewards(
                log_probs,
                torch.zeros(1, 2),
                torch.full((1,), NAN),
                beta=1.0,
                mask=mask,
            )


LOGITS, TOKENS = torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.long)
STEPS, FLAGS = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)


def shaped(**changed):
    given = {"scores": torch.zeros(2), "beta": 0.1, "mask": FLAGS} | changed
    return kl_shaped_rewards(STEPS, given.pop("ref", STEPS), **given)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: token_log_probs([1.0], TOKENS), TypeError, "logits must be a torch"),
        (lambda: token_log_probs(TOKENS, TOKENS), TypeError, "logits must have a flo"),
        (
            lambda: token_log_probs(LOGITS, TOKENS[..., None]),
            ValueError,
            r"tokens must have shape \[2, 3\], got \[2, 3, 1\]",
        ),
        (lambda: token_log_probs(LOGITS, STEPS), TypeError, "tokens must have dtype"),
        (
            lambda: token_log_probs(LOGITS, TOKENS + 4),
            ValueError,
            r"in \[0, 4\), got 4",
        ),
        (lambda: token_log_probs(LOGITS, TOKENS - 100), ValueError, "got -100"),
        (
            lambda: token_log_probs(LOGITS, TOKENS, temperature=0.0),
            ValueError,
            "temperature must be above 0",
        ),
        (lambda: entropy(LOGITS, temperature=NAN), ValueError, "temperature must be"),
        (lambda: entropy(LOGITS, temperature="1"), TypeError, "temperature must be"),
        (lambda: entropy(torch.tensor(1.0)), ValueError, "logits must have at least"),
        (lambda: entropy(torch.zeros(2, 0)), ValueError, "logits must have a vocab"),
        (lambda: categorical_kl(LOGITS, LOGITS[0]), ValueError, "q_logits must have"),
        (lambda: categorical_kl(LOGITS, LOGITS.double()), TypeError, "q_logits must"),
        (lambda: kl_estimates(STEPS, STEPS, "k4"), ValueError, "kind must be one of"),
        (lambda: kl_estimates(STEPS, STEPS[..., None]), ValueError, "ref_log_probs"),
        (lambda: kl_estimates(STEPS, STEPS.bfloat16()), TypeError, "ref_log_probs"),
        (lambda: shaped(beta=-0.1), ValueError, "beta must be at least 0"),
        (lambda: shaped(scores=STEPS), ValueError, r"scores must have shape \[2\]"),
        (lambda: shaped(mask=FLAGS.int()), TypeError, "mask must have dtype"),
        (lambda: shaped(mask=None), TypeError, "mask must be a torch.Tensor"),
        (lambda: shaped(ref=STEPS[:1]), ValueError, "ref_log_probs must have shape"),
    ],
)
def test_a_bad_argument_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()
