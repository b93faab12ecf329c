"""Exact answers about language models, against enumeration written another way."""

import doctest
import itertools
import math

import pytest
import torch
from torch import nn

from course_lib.envs import TokenCount
from course_lib.exact.frontier import (
    divergence,
    preference_ceiling,
    score_distribution,
    tilted,
    uniform_optimum,
)
from course_lib.exact.kl_estimators import estimator_gradient, estimator_moments
from course_lib.exact.language import (
    evaluate,
    next_values,
    optimum,
    response_log_probs,
)
from course_lib.exact.token_tree import (
    TokenTree,
    end_scores,
    policy_table,
    uniform_table,
)
from course_lib.models import GRULanguageModel


def sharp_model(vocab_size, eos_token=None, seed=0, sharpness=6.0):
    model = GRULanguageModel(
        vocab_size, eos_token=eos_token, hidden=8, seed=seed, uniform=False
    )
    with torch.no_grad():
        model.lm_head.weight.mul_(sharpness)
    return model


def all_responses(task):
    """Every response as a tuple, without padding, by brute force."""
    found = set()
    for tokens in itertools.product(range(task.vocab_size), repeat=task.length):
        if task.eos_token in tokens:
            tokens = tokens[: tokens.index(task.eos_token) + 1]
        found.add(tokens)
    return sorted(found)


def brute_force(task, model, ref):
    """Lists over all responses: score, log pi, log ref, one response at a time."""
    rows = []
    for tokens in all_responses(task):
        row = torch.tensor([tokens])
        with torch.no_grad():
            log_pi, log_ref = (
                float(m.log_probs(row).double().sum()) for m in (model, ref)
            )
        mask = torch.ones_like(row, dtype=torch.bool)
        short = TokenCount(
            task.vocab_size, task.length, task.target, task.eos_token, task.peak
        )
        rows.append((float(short.score(row, mask)), log_pi, log_ref))
    return torch.tensor(rows).double().unbind(-1)


TASKS = {
    "fixed length": TokenCount(3, 4, target=1),
    "with EOS": TokenCount(4, 4, target=1, eos_token=3),
    "a score that turns": TokenCount(3, 4, target=2, peak=2),
}


def test_scores_count_the_target_and_turn_at_the_peak():
    tokens = torch.tensor([[3, 3, 0, 3], [3, 3, 3, 3]])
    mask = torch.tensor([[True, True, True, False], [True] * 4])
    assert TokenCount(8, 4).score(tokens, mask).tolist() == [0.5, 1.0]
    assert TokenCount(8, 4, peak=2).score(tokens, mask).tolist() == [0.5, 0.0]


@pytest.mark.parametrize("name", TASKS)
def test_score_kl_and_objective_are_the_sums_over_all_responses(name):
    task = TASKS[name]
    tree = TokenTree(task.vocab_size, task.length, task.eos_token)
    model = sharp_model(task.vocab_size, task.eos_token, seed=1)
    ref = sharp_model(task.vocab_size, task.eos_token, seed=2)
    score, log_pi, log_ref = brute_force(task, model, ref)
    assert log_pi.exp().sum().item() == pytest.approx(1.0, abs=1e-5)
    found = evaluate(
        tree,
        policy_table(model, tree),
        policy_table(ref, tree),
        end_scores(task.score, tree),
        beta=0.3,
    )
    kl = float((log_pi.exp() * (log_pi - log_ref)).sum())
    assert kl > 0.05
    assert found.score == pytest.approx(float((log_pi.exp() * score).sum()), abs=1e-5)
    assert found.kl == pytest.approx(kl, abs=1e-5)
    assert found.objective == pytest.approx(found.score - 0.3 * found.kl, abs=1e-9)
    assert float(found.values[0]) == pytest.approx(found.objective, abs=1e-12)


@pytest.mark.parametrize("name", TASKS)
def test_the_optimum_weighs_responses_by_the_exponential_of_their_score(name):
    task, beta = TASKS[name], 0.2
    tree = TokenTree(task.vocab_size, task.length, task.eos_token)
    ref = sharp_model(task.vocab_size, task.eos_token, seed=2)
    score, _, log_ref = brute_force(task, ref, ref)
    weights = (log_ref + score / beta).softmax(0)
    scores, table = end_scores(task.score, tree), policy_table(ref, tree)
    best, value = optimum(tree, table, scores, beta)
    assert value.objective == pytest.approx(
        beta * float((log_ref + score / beta).logsumexp(0)), abs=1e-5
    )
    assert value.score == pytest.approx(float((weights * score).sum()), abs=1e-5)
    joint = torch.cat([x.flatten() for x in response_log_probs(tree, best)])
    torch.testing.assert_close(
        joint[joint > -math.inf].exp().sort().values,
        weights.sort().values,
        atol=1e-6,
        rtol=1e-5,
    )
    for seed in range(3):  # and no other policy is better
        other = policy_table(sharp_model(task.vocab_size, task.eos_token, seed), tree)
        assert evaluate(tree, other, table, scores, beta).objective < value.objective


def test_a_response_stands_in_the_table_where_it_ends():
    task = TASKS["with EOS"]
    tree = TokenTree(4, 4, 3)
    model = sharp_model(4, 3, seed=1)
    joint = response_log_probs(tree, policy_table(model, tree))
    assert joint[0][0, :3].tolist() == [-math.inf] * 3  # nothing ends without EOS
    for tokens in all_responses(task):
        with torch.no_grad():
            expected = model.log_probs(torch.tensor([tokens])).sum().item()
        place = joint[len(tokens) - 1][tree.node(tokens[:-1]), tokens[-1]]
        assert place.item() == pytest.approx(expected, abs=1e-5)


def test_the_tree_numbers_its_prefixes_in_order():
    tree = TokenTree(4, 4, 3)
    assert tree.num_prefixes(2) == 9
    assert tree.prefixes(2).tolist() == [[a, b] for a in range(3) for b in range(3)]
    assert tree.prefixes(3, 5, 7).tolist() == tree.prefixes(3)[5:7].tolist()
    for number, prefix in enumerate(tree.prefixes(3).tolist()):
        assert tree.node(prefix) == number
    with pytest.raises(ValueError, match="below 3"):
        tree.node([0, 3])


def test_the_value_of_a_prefix_is_the_mean_over_how_it_may_go_on():
    task = TokenCount(3, 3, target=1)
    tree, model = TokenTree(3, 3), sharp_model(3, seed=5)
    scores, table = end_scores(task.score, tree), policy_table(model, tree)
    values = evaluate(tree, table, uniform_table(tree), scores, beta=0.0).values
    with torch.no_grad():
        expected = 0.0
        for last in itertools.product(range(3), repeat=2):
            row = torch.tensor([[1, *last]])
            chance = model.log_probs(row)[0, 1:].sum().exp()
            expected += float(chance) * row.eq(1).sum().item() / 3
    assert float(values[1][tree.node([1])]) == pytest.approx(expected, abs=1e-6)
    # Q of the two next tokens of [1, 1]: a third 1 or not.
    q = next_values(tree, values, scores, [1, 1])
    torch.testing.assert_close(q, torch.tensor([2 / 3, 1.0, 2 / 3]).double())
    q = next_values(tree, values, scores, [1])
    torch.testing.assert_close(q, values[2][3:6])
    assert float(values[2][4]) == pytest.approx(
        float(table[2][4].exp().double() @ torch.tensor([2 / 3, 1, 2 / 3]).double())
    )


def test_the_closed_form_has_the_values_of_the_table():
    """CLAIMS rows 21 and 21b."""
    rows = {
        0.01: (0.99997, 16.633, 0.83365),
        0.05: (0.63508, 5.7052, 0.34982),
        0.1: (0.3327196, 1.1590876, 0.2168109),
        0.2: (0.21067, 0.22905, 0.16486),
        0.5: (0.15500, 0.03090, 0.13955),
        1.0: (0.13932, 0.00727, 0.13205),
    }
    for beta, (score, kl, objective) in rows.items():
        found = uniform_optimum(8, 8, beta)
        assert found.score == pytest.approx(score, abs=6e-6)
        assert found.kl == pytest.approx(kl, abs=6e-4)
        assert found.objective == pytest.approx(objective, abs=6e-6)
    assert uniform_optimum(8, 8, 1e-5).score == 1.0  # exp(1 / (T beta)) would overflow


def test_the_closed_form_is_the_optimum_found_by_enumeration():
    task, tree = TokenCount(4, 5, target=3), TokenTree(4, 5)
    _, found = optimum(tree, uniform_table(tree), end_scores(task.score, tree), 0.15)
    expected = uniform_optimum(4, 5, 0.15)
    for name in ("score", "kl", "objective"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-7)


def test_many_prefixes_in_pieces_are_the_same_as_one_by_one(monkeypatch):
    from course_lib.exact import language, token_tree

    task, tree = TokenCount(3, 5, target=1), TokenTree(3, 5)
    model = sharp_model(3, seed=3)

    def everything():
        table, scores = policy_table(model, tree), end_scores(task.score, tree)
        value = evaluate(tree, table, uniform_table(tree), scores, 0.1)
        return [*table, *scores, *value.values]

    whole = everything()
    for module in (language, token_tree):
        monkeypatch.setattr(module, "ROWS", 7)
    for one, other in zip(everything(), whole, strict=True):
        torch.testing.assert_close(one, other)


def test_scores_and_references_are_not_changed_in_place():
    task, tree = TokenCount(3, 3, target=1), TokenTree(3, 3)
    scores = [x.double() for x in end_scores(task.score, tree)]
    before = [x.clone() for x in scores]
    _, value = optimum(tree, uniform_table(tree), scores, 0.1)
    next_values(tree, value.values, scores, [0, 1])
    assert all(torch.equal(a, b) for a, b in zip(scores, before, strict=True))


def test_the_frontier_needs_the_scores_alone():
    """The true score that turns: proxy and true value of CURRICULUM 09."""
    n = torch.arange(9).double()
    chance = torch.tensor(
        [math.comb(8, k) * 7.0 ** (8 - k) / 8.0**8 for k in range(9)]
    ).double()
    true = torch.where(n <= 4, n, 8 - n) / 8
    assert chance[5:].sum().item() == pytest.approx(0.0012, abs=5e-5)
    for beta, proxy, turned in ((0.1, 0.333, 0.305), (0.05, 0.635, 0.325)):
        best = tilted(chance, n / 8, beta)
        assert float(best @ n / 8) == pytest.approx(proxy, abs=5e-4)
        assert float(best @ true) == pytest.approx(turned, abs=5e-4)
    best = tilted(chance, n / 8, 0.02)
    assert float(best @ n / 8) == pytest.approx(0.987, abs=5e-4)
    assert float(best @ true) == pytest.approx(0.013, abs=5e-4)
    kl = uniform_optimum(8, 8, 0.02).kl
    assert divergence(best, chance) == pytest.approx(kl, abs=1e-9)


def test_the_distribution_of_scores_is_binomial_under_the_uniform_reference():
    task, tree = TokenCount(4, 5, target=3), TokenTree(4, 5)
    values, chance = score_distribution(
        tree, uniform_table(tree), end_scores(task.score, tree)
    )
    torch.testing.assert_close(values, torch.arange(6).double() / 5, atol=1e-7, rtol=0)
    expected = [math.comb(5, k) * 3 ** (5 - k) / 4**5 for k in range(6)]
    torch.testing.assert_close(chance, torch.tensor(expected).double())


def test_the_best_judge_of_noisy_pairs_agrees_with_073_of_them():
    """CLAIMS row 25, by going through all pairs of counts."""
    n = torch.arange(9).double() / 8
    chance = torch.tensor(
        [math.comb(8, k) * 7.0 ** (8 - k) / 8.0**8 for k in range(9)]
    ).double()
    assert preference_ceiling(n, chance, 10.0) == pytest.approx(0.7283, abs=5e-5)
    assert preference_ceiling(n, chance, 1.0) == pytest.approx(0.531, abs=5e-4)
    by_hand = sum(
        float(chance[a] * chance[b])
        * max(q := 1 / (1 + math.exp(-10 * float(n[a] - n[b]))), 1 - q)
        for a in range(9)
        for b in range(9)
    )
    assert preference_ceiling(n, chance, 10.0) == pytest.approx(by_hand, abs=1e-12)


class TestKLEstimators:
    """CLAIMS error 26 with its inputs."""

    pi = torch.tensor([1.0, 0.1, -0.6, -1.1]).double()
    ref = torch.tensor([0.0, 0.5, -0.2, 0.1]).double()

    def gradient_of_kl(self, turned=False):
        z = self.pi.clone().requires_grad_(True)
        p, q = z.softmax(0), self.ref.softmax(0)
        kl = (q * (q / p).log()).sum() if turned else (p * (p / q).log()).sum()
        return torch.autograd.grad(kl, z)[0]

    def test_as_values_k1_and_k3_are_unbiased_and_k2_is_not(self):
        p, q = self.pi.softmax(0), self.ref.softmax(0)
        kl = float((p * (p / q).log()).sum())
        assert kl == pytest.approx(0.32365, abs=5e-6)
        means = {k: estimator_moments(self.pi, self.ref, k)[0] for k in ("k1", "k3")}
        assert means == pytest.approx({"k1": kl, "k3": kl}, abs=1e-12)
        mean, _ = estimator_moments(self.pi, self.ref, "k2")
        assert mean == pytest.approx(0.35827, abs=5e-6)

    def test_k3_varies_less_than_k1(self):
        p, q = self.pi.softmax(0), self.ref.softmax(0)
        k1 = (p / q).log()
        _, variance = estimator_moments(self.pi, self.ref, "k1")
        by_hand = float((p * k1**2).sum() - (p * k1).sum() ** 2)
        assert variance == pytest.approx(by_hand, abs=1e-12)
        assert estimator_moments(self.pi, self.ref, "k3")[1] < variance / 5

    def test_as_losses_each_has_another_gradient(self):
        zero = estimator_gradient(self.pi, self.ref, "k1")
        torch.testing.assert_close(zero, torch.zeros(4).double())
        k2 = estimator_gradient(self.pi, self.ref, "k2")
        torch.testing.assert_close(k2, self.gradient_of_kl())
        rounded = torch.tensor([0.374, -0.177, -0.088, -0.110]).double()
        torch.testing.assert_close(k2, rounded, atol=6e-4, rtol=0)
        k3 = estimator_gradient(self.pi, self.ref, "k3")
        torch.testing.assert_close(k3, self.gradient_of_kl(turned=True))
        rounded = torch.tensor([0.359, -0.126, -0.062, -0.171]).double()
        torch.testing.assert_close(k3, rounded, atol=6e-4, rtol=0)

    @pytest.mark.parametrize("kind", ["k1", "k3"])
    def test_with_the_ratio_in_front_k1_and_k3_are_right(self, kind):
        found = estimator_gradient(self.pi, self.ref, kind, ratio=True)
        torch.testing.assert_close(found, self.gradient_of_kl())


def test_wrong_arguments_are_named():
    tree = TokenTree(3, 3)
    with pytest.raises(ValueError, match="eos_token"):
        TokenTree(3, 3, eos_token=1)
    with pytest.raises(ValueError, match="model must have the tree's"):
        policy_table(GRULanguageModel(4), tree)
    with pytest.raises(ValueError, match="beta must be above 0"):
        optimum(tree, uniform_table(tree), uniform_table(tree), 0.0)
    with pytest.raises(ValueError, match="beta must be above 0"):
        uniform_optimum(8, 8, 0.0)
    with pytest.raises(ValueError, match="beta must be at least 0"):
        evaluate(tree, *[uniform_table(tree)] * 3, -1.0)
    with pytest.raises(ValueError, match="target"):
        TokenCount(8, 8, target=8)
    with pytest.raises(ValueError, match="scores must have shape"):
        tilted(torch.ones(3), torch.ones(4), 0.1)
    forbidding = uniform_table(tree)
    forbidding[1] = torch.full((3, 3), -math.inf).index_fill(1, torch.tensor([0]), 0)
    with pytest.raises(ValueError, match="what ref forbids"):
        evaluate(tree, uniform_table(tree), forbidding, uniform_table(tree), 0.1)


def test_a_head_of_zeros_gives_the_uniform_table():
    tree = TokenTree(5, 3, 4)
    for found, expected in zip(
        policy_table(GRULanguageModel(5, eos_token=4), tree),
        uniform_table(tree),
        strict=True,
    ):
        torch.testing.assert_close(found.double(), expected.contiguous())


def test_a_separate_critic_does_not_enter_the_table():
    tree = TokenTree(3, 3)
    model = GRULanguageModel(3, uniform=False, separate_critic=True)
    before = policy_table(model, tree)
    nn.init.zeros_(model.critic.weight)
    for one, other in zip(policy_table(model, tree), before, strict=True):
        assert torch.equal(one, other)


def test_the_examples_in_docstrings_hold():
    from course_lib.algorithms import rlhf
    from course_lib.exact import frontier

    for module in (frontier, rlhf):
        result = doctest.testmod(module)
        assert result.failed == 0 and result.attempted > 0
