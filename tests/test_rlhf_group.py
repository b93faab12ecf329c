"""RLHF without a critic: gradients by enumeration, and runs beside the optimum."""

import itertools
import math
from dataclasses import replace

import pytest
import torch

from course_lib.algorithms.group import (
    METHODS,
    GroupConfig,
    estimate_advantages,
    group_loss,
    rlhf_group,
)
from course_lib.algorithms.responses import ResponseBatch, Responses
from course_lib.envs import TokenCount
from course_lib.exact import (
    TokenTree,
    end_scores,
    evaluate,
    optimum,
    policy_table,
    uniform_table,
)
from course_lib.kernels import group_relative_advantages, leave_one_out_advantages
from course_lib.models import GRULanguageModel

BETA = 0.3
EVERY = torch.tensor([*itertools.product(range(3), repeat=2)])  # all 9 responses
SCORES = torch.tensor([0.0, 0.2, 1.0, 0.1, 0.7, 0.4, 0.9, 0.3, 0.6])


def tiny(seed):
    """3 tokens in 2 places, float64, far from uniform."""
    model = GRULanguageModel(3, hidden=4, uniform=False, seed=seed).double()
    with torch.no_grad():
        model.lm_head.weight.mul_(5)
    return model


POLICY, REF, OLD = tiny(1), tiny(2), tiny(3)


def gradient(value):
    return torch.autograd.grad(value, POLICY.lm_head.weight)[0]


def exact_gradients():
    """grad E[score] and grad KL(pi, ref), over all responses."""
    log_pi = POLICY.log_probs(EVERY).sum(-1)
    log_ref = REF.log_probs(EVERY).detach().sum(-1)
    score = (log_pi.exp() * SCORES).sum()
    kl = (log_pi.exp() * (log_pi - log_ref)).sum()
    weight = POLICY.lm_head.weight
    return (
        torch.autograd.grad(score, weight, retain_graph=True)[0],
        torch.autograd.grad(kl, weight)[0],
    )


def expected_gradient(config, old=None):
    """Of minus the loss, over all 81 pairs that the sampling policy may draw."""
    old = POLICY if old is None else old
    old_log_probs = old.log_probs(EVERY).detach()  # [9, 2]
    chance = old_log_probs.sum(-1).exp()
    ref_log_probs = REF.log_probs(EVERY).detach()
    total = torch.zeros_like(POLICY.lm_head.weight)
    for pair in itertools.product(range(9), repeat=2):
        rows = torch.tensor(pair)
        seen = Responses(
            tokens=EVERY[rows],
            mask=torch.ones(2, 2, dtype=torch.bool),
            old_log_probs=old_log_probs[rows],
            old_values=torch.zeros(2, 2).double(),
            ref_log_probs=ref_log_probs[rows],
            scores=SCORES[rows].double(),
            rewards=SCORES[rows].double(),
            finished=torch.ones(2, dtype=torch.bool),
            entropies=torch.ones(2, 2).double(),
        )
        loss, _ = group_loss(POLICY, estimate_advantages(seen, config), config=config)
        total -= chance[rows].prod() * gradient(loss)
    return total


def tiny_config(**options):
    return GroupConfig(length=2, batch_size=2, group_size=2, beta=BETA, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"baseline": "none"},
        {"baseline": "leave_one_out"},
        {"clip_eps": 0.2},
        {"clip_eps": 0.2, "ratio": "sequence"},
        {"baseline": "none", "clip_eps": 0.2},
    ],
    ids=str,
)
def test_the_expected_step_is_the_gradient_of_the_objective(options):
    """With KL as k1 in the reward, whatever the baseline, before the clip bites."""
    score, kl = exact_gradients()
    if "clip_eps" in options:
        options = options | {"reduction": "sequence_sum"}
    found = expected_gradient(tiny_config(**options))
    torch.testing.assert_close(found, score - BETA * kl, atol=1e-8, rtol=1e-6)


def test_the_mean_with_the_own_sample_shrinks_the_step_by_one_over_n():
    """CLAIMS error 8: with two in a group, half of the gradient is left."""
    score, kl = exact_gradients()
    found = expected_gradient(tiny_config(baseline="group_mean"))
    expected = (score - BETA * kl) / 2
    torch.testing.assert_close(found, expected, atol=1e-8, rtol=1e-6)


def test_dividing_by_the_deviation_changes_the_direction():
    score, kl = exact_gradients()
    found = expected_gradient(tiny_config(baseline="standardized"))
    true = score - BETA * kl
    cosine = torch.cosine_similarity(found.flatten(), true.flatten(), dim=0)
    assert cosine < 0.999


@pytest.mark.parametrize("kind", ["k2", "k3"])
def test_kl_in_the_loss_has_another_gradient_for_each_estimator(kind):
    """k2 that of KL(pi, ref), k3 that of KL(ref, pi), token by token.

    As a loss an estimate does not see that pi also decides which prefixes come: each
    is the gradient of the tokens' divergences, the prefixes held fixed.
    """
    score, _ = exact_gradients()
    found = expected_gradient(tiny_config(kl=kind))
    penalty = (score - found) / BETA
    expected = torch.zeros_like(penalty)
    with torch.no_grad():
        first = POLICY.log_probs(EVERY)[::3, 0].exp()  # [3], of the first token
    for prefix in (None, 0, 1, 2):
        logits, ref_logits = (
            m(torch.tensor([[prefix or 0, 0]]))[0][0, 0 if prefix is None else 1]
            for m in (POLICY, REF)
        )
        log_pi, log_ref = logits.log_softmax(-1), ref_logits.detach().log_softmax(-1)
        if kind == "k2":
            divergence = (log_pi.exp() * (log_pi - log_ref)).sum()
        else:
            divergence = (log_ref.exp() * (log_ref - log_pi)).sum()
        weight = 1.0 if prefix is None else first[prefix]
        expected += weight * gradient(divergence)
    torch.testing.assert_close(penalty, expected, atol=1e-8, rtol=1e-6)


def test_the_entropy_of_each_token_is_paid_at_its_price():
    """On average over the tokens, the prefixes held fixed."""
    priced = expected_gradient(tiny_config(ent_coef=0.3))
    found = (priced - expected_gradient(tiny_config())) / 0.3
    expected = torch.zeros_like(found)
    first = POLICY.log_probs(EVERY)[::3, 0].exp().detach()  # [3]
    for prefix in (None, 0, 1, 2):
        logits = POLICY(torch.tensor([[prefix or 0, 0]]))[0]
        log_pi = logits[0, 0 if prefix is None else 1].log_softmax(-1)
        weight = 0.5 if prefix is None else 0.5 * first[prefix]
        expected += weight * gradient(-(log_pi.exp() * log_pi).sum())
    torch.testing.assert_close(found, expected, atol=1e-8, rtol=1e-6)


def test_whole_response_weights_make_stale_samples_speak_for_the_policy():
    score, _ = exact_gradients()
    config = tiny_config(importance="trajectory", baseline="none")
    whole = replace(config, beta=0.0, rho_max=math.inf)
    found = expected_gradient(whole, OLD)
    torch.testing.assert_close(found, score, atol=1e-8, rtol=1e-6)
    naive = expected_gradient(replace(whole, importance="none"), OLD)
    assert (naive - score).norm() > 0.2 * score.norm()
    cut = expected_gradient(replace(whole, rho_max=1.0), OLD)
    assert (cut - score).norm() > 1e-3  # a bias, for less variance


def responses(rewards, mask=None, kl=0.0):
    count = len(rewards)
    mask = torch.ones(count, 2, dtype=torch.bool) if mask is None else mask
    zeros = torch.zeros(count, 2)
    return Responses(
        tokens=zeros.long(),
        mask=mask,
        old_log_probs=zeros + kl / 2,
        old_values=zeros,
        ref_log_probs=zeros,
        scores=torch.tensor(rewards),
        rewards=torch.tensor(rewards),
        finished=torch.tensor([True] * (count - 1) + [False]),
        entropies=zeros,
    )


def test_advantages_of_a_group_have_the_known_values():
    """CASES K47 and K49: [3, 1, 0, 0], and a group in which all are alike."""
    config = GroupConfig(group_size=4, batch_size=8, kl="k3")
    seen = responses([3.0, 1.0, 0.0, 0.0, 0.7, 0.7, 0.7, 0.7])
    batch = estimate_advantages(seen, config)
    expected = torch.tensor([8 / 3, 0.0, -4 / 3, -4 / 3, 0.0, 0.0, 0.0, 0.0])
    torch.testing.assert_close(batch.advantages, expected.view(-1, 1).expand(8, 2))
    batch = estimate_advantages(seen, replace(config, baseline="group_mean"))
    torch.testing.assert_close(batch.advantages[:, 0], expected * 3 / 4)
    batch = estimate_advantages(seen, replace(config, baseline="standardized"))
    group = torch.tensor([3.0, 1.0, 0.0, 0.0])
    expected = (group - group.mean()) / (group.std() + 1e-4)
    torch.testing.assert_close(batch.advantages[:4, 1], expected)


def test_kl_is_paid_in_the_reward_or_in_the_loss_never_in_both():
    """CASES K43."""
    seen = responses([1.0, 0.0], kl=2.0)
    config = GroupConfig(group_size=2, batch_size=2, baseline="none", beta=0.1)
    assert estimate_advantages(seen, config).advantages[:, 0].tolist() == [
        pytest.approx(0.8),
        pytest.approx(-0.2),
    ]
    batch = estimate_advantages(seen, replace(config, kl="k3"))
    assert batch.advantages[:, 0].tolist() == [1.0, 0.0]


def test_responses_that_ran_out_of_length_can_be_left_out_of_the_loss_alone():
    config = GroupConfig(group_size=2, batch_size=2, mask_capped=True, kl="k2")
    batch = estimate_advantages(responses([1.0, 0.0]), config)
    assert batch.mask.tolist() == [[True, True], [False, False]]
    assert batch.advantages[0].tolist() == [1.0, 1.0]  # still compared with it


@pytest.mark.parametrize("ratio", ["token", "sequence", "geometric_mean"])
def test_the_ratio_is_that_of_real_tokens(ratio):
    """CLAIMS error 42: of each token, of the response, or its root over its length."""
    model = GRULanguageModel(4, eos_token=3, hidden=8, uniform=False)
    tokens = torch.tensor([[0, 3, 3, 3], [1, 2, 0, 3]])
    mask = model.real_tokens(tokens)
    gaps = torch.tensor([[0.2, 0.4, 9.0, 9.0], [0.1, 0.1, 0.1, 0.1]])
    log_probs = model.log_probs(tokens).detach()
    batch = ResponseBatch(
        tokens=tokens,
        mask=mask,
        old_log_probs=log_probs - gaps,
        ref_log_probs=log_probs,
        old_values=log_probs,
        advantages=torch.ones(2, 4),
        returns=log_probs,
    )
    config = GroupConfig(ratio=ratio, clip_eps=10.0, length=4)
    _, seen = group_loss(model, batch, config=config)
    largest = {"token": 0.4, "sequence": 0.6, "geometric_mean": 0.3}[ratio]
    assert seen["ratio_max"].item() == pytest.approx(math.exp(largest), rel=1e-5)


@pytest.mark.parametrize("ratio", ["token", "sequence", "geometric_mean"])
@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "sequence_sum"])
def test_a_response_that_is_left_out_is_in_no_denominator(ratio, reduction):
    """CASES K49: huggingface/trl PR 7068; the other one has the loss it has alone."""
    model = GRULanguageModel(4, hidden=8, uniform=False)
    tokens = torch.tensor([[0, 3, 1, 2], [1, 2, 0, 3]])
    gaps = torch.tensor([[0.2], [0.3]])
    batch = ResponseBatch(
        tokens=tokens,
        mask=torch.tensor([[True, True, True, False], [False] * 4]),
        old_log_probs=model.log_probs(tokens).detach() - gaps,
        ref_log_probs=model.log_probs(tokens).detach() - 1.0,
        old_values=torch.zeros(2, 4),
        advantages=torch.tensor([[1.0], [-2.0]]).expand(2, 4),
        returns=torch.zeros(2, 4),
    )
    config = GroupConfig(ratio=ratio, clip_eps=9.0, reduction=reduction, kl="k3")
    rows = {k: x[:1] for k, x in vars(batch).items() if x is not None}
    alone = ResponseBatch(**rows)
    losses = [group_loss(model, one, config=config)[0] for one in (batch, alone)]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-6)


@pytest.mark.parametrize(("paid", "share"), [(0.0, 0.0), (1.0, 1.0)])
def test_a_group_whose_scores_are_all_alike_is_not_informative(paid, share):
    config = GroupConfig(num_updates=1, batch_size=8, group_size=4, kl="k3", length=3)
    config = replace(config, minibatch_size=8)

    def score(tokens, mask):
        return 0.5 + paid * torch.arange(8.0)

    (record,) = rlhf_group(GRULanguageModel(4, hidden=8), score, config).records
    assert record["informative"] == share


def test_a_learners_own_advantages_run_inside_the_real_thing():
    seen = []

    def own(groups):
        seen.append(tuple(groups.shape))
        return leave_one_out_advantages(groups)

    task = TokenCount(3, 2, target=1)
    config = GroupConfig(num_updates=2, batch_size=12, group_size=4, length=2)
    ref = GRULanguageModel(3, hidden=8)
    history = rlhf_group(ref, task.score, config, advantage_fn=own)
    assert seen == [(3, 4)] * 2
    same = rlhf_group(ref, task.score, config)
    assert same.column("policy_loss") == history.column("policy_loss")
    assert 0 <= history.records[0]["informative"] <= 1
    assert history.records[0]["ess"] == pytest.approx(1.0)


TASK, TREE = TokenCount(4, 4, target=3), TokenTree(4, 4)
UNIFORM = uniform_table(TREE)


def gap(config, num_updates):
    changes = {"num_updates": num_updates, "batch_size": 128, "length": 4}
    config = replace(config, **changes, learning_rate=4 * config.learning_rate)
    ref = GRULanguageModel(4, hidden=16)
    history = rlhf_group(ref, TASK.score, config)
    scores = end_scores(TASK.score, TREE)
    best = optimum(TREE, UNIFORM, scores, 0.1)[1].objective
    found = evaluate(TREE, policy_table(history.policy, TREE), UNIFORM, scores, 0.1)
    return best - found.objective, history


@pytest.mark.parametrize("name", ["rloo", "clip-rloo", "sequence-ratio", "gspo"])
def test_unbiased_methods_land_on_the_optimum(name):
    missing, _ = gap(METHODS[name], 80)
    assert -1e-6 <= missing < 0.005


def test_dividing_by_the_deviation_makes_kl_too_cheap():
    """GRPO's advantages have size 1 whatever the scores' spread; beta does not."""
    biased, far = gap(METHODS["grpo"], 80)
    fair, near = gap(METHODS["dr-grpo"], 80)
    assert biased > 0.02 and -1e-6 <= fair < 0.01
    assert far.last("kl") > 1.2 * near.last("kl")


def test_stale_samples_cost_effective_sample_size():
    fresh = gap(METHODS["rloo"], 30)[1]
    stale = gap(replace(METHODS["rloo"], staleness=10), 30)[1]
    assert min(fresh.column("ess")) == pytest.approx(1.0, abs=1e-5)
    assert min(stale.column("ess")) < 0.9


@pytest.mark.parametrize("name", METHODS)
def test_each_method_runs_where_responses_end_early(name):
    task = TokenCount(4, 5, target=1, eos_token=3)
    config = replace(
        METHODS[name], num_updates=2, batch_size=16, length=5, mask_capped=True
    )
    history = rlhf_group(GRULanguageModel(4, eos_token=3, hidden=8), task.score, config)
    for record in history.records:
        assert all(math.isfinite(value) for value in record.values())
    assert history.records[0]["length"] < 5


def test_wrong_configs_are_named():
    ref = GRULanguageModel(4, hidden=8)
    with pytest.raises(ValueError, match="group_size must divide batch_size=10"):
        rlhf_group(ref, TASK.score, GroupConfig(batch_size=10))
    config = GroupConfig(clip_eps=0.2, importance="per_step")
    with pytest.raises(ValueError, match="importance must be 'none' beside a clip"):
        rlhf_group(ref, TASK.score, config)
    with pytest.raises(ValueError, match="scores must have shape"):
        rlhf_group(ref, lambda tokens, mask: torch.ones(3), GroupConfig())


def test_standardising_is_the_kernels():
    config = GroupConfig(group_size=3, batch_size=3, baseline="standardized", kl="k2")
    batch = estimate_advantages(responses([0.3, 0.1, 0.9]), config)
    expected = group_relative_advantages(torch.tensor([[0.3, 0.1, 0.9]]))
    torch.testing.assert_close(batch.advantages[:, 0], expected[0])
