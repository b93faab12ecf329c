"""RLHF beside a loop per row: the same first update, and what was kept holds."""

import dataclasses
import json
import math

import pytest
import torch
from torch import nn

from benchmarks import report_ppo
from benchmarks import rlhf as bench
from benchmarks.rlhf_peers import (
    TinyModel,
    as_ours,
    estimate_advantages,
    judge,
    per_row_loop,
    ppo_loss,
)
from course_lib.algorithms import rlhf
from course_lib.algorithms.responses import LanguageLearner, collect_responses

SMALL = dataclasses.replace(bench.CONFIG, batch_size=24, minibatch_size=24)


@pytest.fixture(scope="module")
def peers():
    """A policy and a reference of the loop that differ, with heads that say much."""
    torch.manual_seed(0)
    models = TinyModel(), TinyModel()
    for model in models:
        for head in (model.lm_head, model.value_head):
            nn.init.normal_(head.weight)
            nn.init.normal_(head.bias)
    return models


def sampled(policy, ref):
    learner = LanguageLearner(policy, SMALL)
    return collect_responses(learner, ref, bench.TASK.score, SMALL)


def test_a_model_of_the_loop_becomes_one_of_ours(peers):
    policy = peers[0]
    tokens = torch.randint(8, (30, 8), generator=torch.Generator().manual_seed(1))
    log_probs, values = policy(tokens)
    found = as_ours(policy)
    torch.testing.assert_close(found.log_probs(tokens), log_probs)
    torch.testing.assert_close(found(tokens)[1], values)


def test_both_compute_the_same_first_update(peers):
    policy, ref = map(as_ours, peers)
    seen = sampled(policy, ref)
    batch = rlhf.estimate_advantages(seen, SMALL.beta, SMALL)
    old_log_probs, values, kl, rewards = judge(*peers, seen.tokens, seen.scores, 0.1)
    torch.testing.assert_close(old_log_probs, seen.old_log_probs)
    torch.testing.assert_close(kl.sum(-1), seen.kl)
    advantages, returns = estimate_advantages(rewards, values, SMALL.gamma, SMALL.lam)
    torch.testing.assert_close(returns, batch.returns)
    # It divides by the deviation with n - 1, ours by that with n.
    count = advantages.numel()
    advantages = advantages * math.sqrt(count / (count - 1))
    torch.testing.assert_close(advantages, batch.advantages, atol=1e-5, rtol=1e-5)
    # Away from the ratio 1, where the clip bites.
    moved = seen.old_log_probs + 0.4 * torch.randn(
        seen.old_log_probs.shape, generator=torch.Generator().manual_seed(2)
    )
    batch = dataclasses.replace(batch, old_log_probs=moved)
    loss, numbers = rlhf.rlhf_loss(policy, batch, config=SMALL)
    theirs = ppo_loss(peers[0], seen.tokens, moved, advantages, returns, SMALL.clip_eps)
    assert 0.2 < numbers["clip_frac_active"] < 0.8
    torch.testing.assert_close(loss, theirs)
    loss.backward()
    theirs.backward()
    for ours, other in (
        (policy.trunk.weight.grad.t(), peers[0].gru.weight_hh_l0.grad),
        (policy.trunk.table.grad.sum(0), peers[0].gru.bias_ih_l0.grad),
        (policy.lm_head.weight.grad, peers[0].lm_head.weight.grad),
        (policy.value_head.weight.grad, peers[0].value_head.weight.grad),
    ):
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-4)


def test_the_loop_starts_uniform_and_learns():
    config = dataclasses.replace(SMALL, num_updates=12, learning_rate=4e-3)
    _, history = per_row_loop(bench.TASK.score, config)
    assert len(history) == 12 and history[0][1] == pytest.approx(0.0, abs=1e-5)
    scores = [score for score, _ in history]
    assert sum(scores[-3:]) > 1.2 * sum(scores[:3])


def test_a_short_race_has_a_time_for_everybody(monkeypatch):
    """How much quicker ours is stands in what is kept: a busy machine decides here."""
    monkeypatch.setattr(bench, "judged", lambda policy: {})
    rows = bench.compare(num_updates=3, seeds=(0, 1, 2))
    assert 0 < report_ppo.ratio(rows, bench.LOOP) < math.inf


def test_shares_are_measured():
    """Two times are divided: on a busy machine the quotient may be above 1."""
    assert bench.share_of_rows() > 0
    assert 0.1 < bench.share_of_products() < 0.9  # of one measurement


class TestKeptFigures:
    """The promises of speed, on the kept results."""

    @pytest.fixture
    def kept(self):
        return json.loads(bench.RESULTS.read_text(encoding="utf-8"))

    def test_everything_was_measured_as_it_is_listed(self, kept):
        assert kept["command"] == bench.COMMAND and kept["num_updates"] == 150
        assert kept["machine"]["threads"] == 1
        for own in report_ppo.by_competitor(kept["rows"]).values():
            assert tuple(row["seed"] for row in own) == bench.SEEDS

    def test_ours_takes_less_than_half_the_time(self, kept):
        assert report_ppo.ratio(kept["rows"], bench.LOOP) > 3

    def test_both_end_near_the_best_policy_there_is(self, kept):
        for row in kept["rows"]:
            assert -1e-6 <= row["gap"] < 0.004
            assert row["score"] == pytest.approx(0.333, abs=0.03)
            assert row["kl"] == pytest.approx(1.16, abs=0.15)
