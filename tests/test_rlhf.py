"""RLHF with PPO: its steps against loops, its runs against the exact optimum."""

import functools
from dataclasses import replace

import pytest
import torch
from torch import nn

from course_lib.algorithms.responses import (
    LanguageLearner,
    ResponseBatch,
    Responses,
    collect_responses,
    minibatches,
)
from course_lib.algorithms.rlhf import (
    RLHFConfig,
    adapted_beta,
    estimate_advantages,
    rlhf_loss,
    rlhf_ppo,
)
from course_lib.envs import TokenCount
from course_lib.exact import (
    TokenTree,
    end_scores,
    evaluate,
    optimum,
    policy_table,
    uniform_optimum,
    uniform_table,
)
from course_lib.kernels import clipped_policy_loss, gae
from course_lib.models import GRULanguageModel

TASK = TokenCount(4, 4, target=3)
TREE = TokenTree(4, 4)
SMALL = RLHFConfig(num_updates=60, batch_size=128, length=4, minibatch_size=128)
SMALL = replace(SMALL, learning_rate=4e-3)


def small_model(**options):
    return GRULanguageModel(4, hidden=16, **options)


def responses_by_hand():
    """Two responses with an end, of 3 and 4 tokens at most; the second ran out."""
    mask = torch.tensor([[True, True, False, False], [True] * 4])
    draw = functools.partial(torch.randn, 2, 4, generator=torch.Generator())
    return Responses(
        tokens=torch.tensor([[0, 2, 2, 2], [1, 0, 1, 1]]),
        mask=mask,
        old_log_probs=draw(),
        old_values=draw(),
        ref_log_probs=draw(),
        scores=torch.tensor([0.5, 1.0]),
        rewards=torch.tensor([0.5, 0.25]),
        finished=torch.tensor([True, False]),
        entropies=torch.ones(2, 4),
    )


def gap(history, score_fn, tree, beta):
    """J* - J, exactly, under the run's own reference."""
    ref, scores = policy_table(history.ref, tree), end_scores(score_fn, tree)
    policy = policy_table(history.policy, tree)
    best = optimum(tree, ref, scores, beta)[1]
    found = evaluate(tree, policy, ref, scores, beta)
    return best.objective - found.objective, found


def test_before_the_first_step_every_ratio_is_one():
    """CASES K26: nothing is recomputed, so nothing can differ."""
    ref = small_model(uniform=False, seed=3)
    config = replace(SMALL, num_updates=1, num_epochs=1, learning_rate=0.0)
    (record,) = rlhf_ppo(ref, TASK.score, config).records
    assert record["ratio_max"] == pytest.approx(1.0, abs=1e-6)
    assert record["approx_kl"] == pytest.approx(0.0, abs=1e-9)
    assert record["clip_frac"] == 0.0
    assert record["kl"] == pytest.approx(0.0, abs=1e-5)  # policy and ref are one


def test_the_ratio_is_taken_against_the_policy_that_sampled_not_the_reference():
    """CASES K29 and K30: the reference may be anywhere, the gradient does not see."""
    policy = small_model(uniform=False)
    tokens = torch.tensor([[0, 1, 2, 3]])
    old = policy.log_probs(tokens).detach()
    batch = ResponseBatch(
        tokens=tokens,
        mask=torch.ones_like(tokens, dtype=torch.bool),
        old_log_probs=old,
        ref_log_probs=old - 1.0,
        old_values=torch.zeros(1, 4),
        advantages=torch.ones(1, 4),
        returns=torch.zeros(1, 4),
    )
    config = replace(SMALL, normalize_advantages="none", vf_coef=0.0)
    loss, seen = rlhf_loss(policy, batch, config=config)
    assert seen["ratio_max"] == pytest.approx(1.0) and loss.item() == pytest.approx(-1)
    loss.backward()
    expected = torch.autograd.grad(-policy.log_probs(tokens).mean(), policy.trunk.bias)
    torch.testing.assert_close(policy.trunk.bias.grad, expected[0])


@pytest.mark.parametrize("gamma", [1.0, 0.6])
def test_advantages_are_those_of_a_plain_loop(gamma):
    """Score on the last real token (CASES K16), padding not looked at (K14)."""
    seen, beta, lam = responses_by_hand(), 0.3, 0.9
    config = replace(SMALL, gamma=gamma, lam=lam, normalize_advantages="none")
    batch = estimate_advantages(seen, beta, config)
    for row, length in ((0, 2), (1, 4)):
        advantage, after = 0.0, 0.0
        for t in reversed(range(length)):
            reward = -beta * float(seen.old_log_probs[row, t])
            reward += beta * float(seen.ref_log_probs[row, t])
            if t == length - 1:
                reward += float(seen.rewards[row])
            value = float(seen.old_values[row, t])
            advantage = reward + gamma * after - value + gamma * lam * advantage
            after = value
            assert batch.advantages[row, t].item() == pytest.approx(advantage, abs=1e-5)
            assert batch.returns[row, t].item() == pytest.approx(
                advantage + value, abs=1e-5
            )
    assert batch.advantages[0, 2:].tolist() == [0, 0]


def test_one_number_for_all_tokens_is_the_reward_less_the_value_of_the_prompt():
    seen = responses_by_hand()
    config = replace(SMALL, credit="response", normalize_advantages="none")
    batch = estimate_advantages(seen, 0.3, config)
    whole = seen.rewards - 0.3 * seen.kl - seen.old_values[:, 0]
    expected = whole.unsqueeze(-1) * seen.mask
    torch.testing.assert_close(batch.advantages, expected)
    # The critic learns from every token all the same.
    plain = estimate_advantages(seen, 0.3, replace(config, credit="token"))
    assert torch.equal(batch.returns, plain.returns)


def test_advantages_are_made_comparable_over_real_tokens_only():
    batch = estimate_advantages(responses_by_hand(), 0.3, SMALL)
    real = batch.advantages[batch.mask]
    assert real.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert real.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)


def test_responses_that_ran_out_of_length_can_be_left_out():
    config = replace(SMALL, mask_capped=True)
    batch = estimate_advantages(responses_by_hand(), 0.3, config)
    assert batch.mask.tolist() == [[True, True, False, False], [False] * 4]
    assert batch.advantages[1].tolist() == [0, 0, 0, 0]


def test_a_response_without_eos_pays_the_penalty():
    """CASES K19."""
    ref = GRULanguageModel(4, eos_token=3, hidden=8)
    config = replace(SMALL, missing_eos_penalty=1.0, batch_size=200)
    learner = LanguageLearner(ref, config)
    seen = collect_responses(learner, ref, lambda t, m: torch.ones(200), config)
    ended = (seen.tokens == 3).any(-1)
    assert 0 < ended.sum() < 200
    assert torch.equal(seen.finished, ended)
    assert torch.equal(seen.scores, torch.ones(200))
    assert torch.equal(seen.rewards, ended.float())


def test_kl_of_a_response_is_summed_over_its_real_tokens():
    seen = responses_by_hand()
    gaps = seen.old_log_probs - seen.ref_log_probs
    expected = torch.stack((gaps[0, :2].sum(), gaps[1].sum()))
    torch.testing.assert_close(seen.kl, expected)


def test_the_step_size_falls_in_a_straight_line_or_stays():
    config = replace(SMALL, num_updates=4, learning_rate=0.4, batch_size=8)
    falling = rlhf_ppo(small_model(), TASK.score, config)
    assert falling.column("learning_rate") == pytest.approx([0.4, 0.3, 0.2, 0.1])
    config = replace(config, anneal_learning_rate=False)
    staying = rlhf_ppo(small_model(), TASK.score, config)
    assert staying.column("learning_rate") == [0.4] * 4
    assert falling.column("score")[:2] == staying.column("score")[:2]
    assert falling.column("kl")[3] != staying.column("kl")[3]


def test_a_stale_policy_is_the_one_of_that_many_updates_ago():
    config = replace(SMALL, staleness=2)
    learner = LanguageLearner(small_model(), config, staleness=2)
    versions, sampled = [], []
    for _ in range(5):
        versions.append(learner.policy.lm_head.bias.detach().clone())
        sampled.append(learner.sampling_policy().lm_head.bias.detach().clone())
        learner.step(learner.policy.lm_head.bias[0] * 1.0)
    for now, bias in enumerate(sampled):
        assert torch.equal(bias, versions[max(0, now - 2)])
    assert not torch.equal(versions[1], versions[2])


def test_minibatches_hold_each_response_once_in_one_order_for_all():
    rows = torch.arange(10)
    batch = ResponseBatch(*[rows.view(-1, 1).expand(10, 3) for _ in range(9)])
    pieces = [*minibatches(batch, 4, torch.Generator().manual_seed(1))]
    assert [len(piece.tokens) for piece in pieces] == [4, 4, 2]
    order = torch.cat([piece.tokens[:, 0] for piece in pieces])
    assert not torch.equal(order, rows) and torch.equal(order.sort().values, rows)
    for piece in pieces:
        for x in vars(piece).values():
            assert torch.equal(x, piece.tokens)


def test_the_price_of_kl_follows_a_target():
    """CASES K46: the relative error is clipped to +-.2."""
    adapt = functools.partial(
        adapted_beta, 0.2, target=6.0, num_responses=256, horizon=10_000
    )
    assert adapt(kl=12.0) == pytest.approx(0.201024, abs=1e-12)
    assert adapt(kl=3.0) == pytest.approx(0.198976, abs=1e-12)
    assert adapt(kl=6.6) == pytest.approx(0.2 * (1 + 0.1 * 0.0256), abs=1e-12)
    with pytest.raises(ValueError, match="target must be above 0"):
        adapted_beta(0.2, 1.0, 0.0, 256, 10_000)
    with pytest.raises(ValueError, match="target must be above 0"):
        rlhf_ppo(small_model(), TASK.score, replace(SMALL, kl_target=0.0))


def test_an_adapted_price_brings_kl_to_the_target():
    config = replace(SMALL, num_updates=120, beta=0.02, kl_target=0.5, kl_horizon=400.0)
    history = rlhf_ppo(small_model(), TASK.score, config)
    assert history.last("kl", 30) == pytest.approx(0.5, abs=0.2)
    assert history.records[-1]["beta"] > 0.04


def test_the_same_seed_gives_the_same_run_and_the_reference_stays():
    ref = small_model(uniform=False)
    before = ref.log_probs(torch.zeros(1, 4).long())
    config = replace(SMALL, num_updates=3, minibatch_size=50)
    runs = [rlhf_ppo(ref, TASK.score, config) for _ in range(2)]
    others = rlhf_ppo(ref, TASK.score, replace(config, seed=1))
    assert runs[0].column("policy_loss") == runs[1].column("policy_loss")
    assert runs[0].column("score") != others.column("score")
    for model in (ref, runs[0].ref):
        assert torch.equal(model.log_probs(torch.zeros(1, 4).long()), before)
    assert not torch.equal(runs[0].policy.lm_head.bias, ref.lm_head.bias)


def test_a_learners_own_kernels_run_inside_the_real_thing():
    calls = []

    def own_gae(*arguments, **options):
        calls.append("gae")
        return gae(*arguments, **options)

    def own_loss(*arguments, **options):
        calls.append("loss")
        return clipped_policy_loss(*arguments, **options)

    config = replace(SMALL, num_updates=2, num_epochs=2)
    seen = []
    rlhf_ppo(
        small_model(),
        TASK.score,
        config,
        advantage_fn=own_gae,
        policy_loss_fn=own_loss,
        callback=lambda _, record: seen.append(record),
    )
    assert calls == ["gae", "loss", "loss"] * 2
    assert [record["update"] for record in seen] == [0, 1]
    assert seen[1]["responses"] == 256


def test_options_of_the_loss_do_what_they_say():
    policy = small_model(uniform=False)
    nn.init.normal_(policy.value_head.weight)
    learner = LanguageLearner(policy, SMALL)
    seen = collect_responses(learner, policy.frozen(), TASK.score, SMALL)
    batch = estimate_advantages(seen, 0.1, SMALL)
    plain, numbers = rlhf_loss(policy, batch, config=SMALL)
    bonus, _ = rlhf_loss(policy, batch, config=replace(SMALL, ent_coef=0.5))
    entropies = seen.entropies.mean()
    assert (plain - bonus).item() == pytest.approx(0.5 * entropies.item(), abs=1e-5)
    # With a clip of 0 the loss is the larger one; before a step both are equal.
    held, _ = rlhf_loss(policy, batch, config=replace(SMALL, value_clip=0.0))
    assert held.item() == pytest.approx(plain.item(), abs=1e-6)
    # As if the critic that sampled had said 1 less: V may not have moved that far.
    far = replace(batch, old_values=batch.old_values - 1.0)
    held, _ = rlhf_loss(policy, far, config=replace(SMALL, value_clip=0.25))
    apart = [seen.old_values - shift - batch.returns for shift in (0.0, 0.75)]
    larger = torch.maximum(apart[0].square(), apart[1].square()).mean() / 2
    gained = larger - apart[0].square().mean() / 2
    assert (held - plain).item() == pytest.approx(gained.item(), abs=1e-5)
    assert gained > 0.01
    text = torch.tensor([[0, 1, 2, 3]])
    with_text, numbers = rlhf_loss(
        policy, batch, config=replace(SMALL, ptx_coef=2.0), text=text
    )
    expected = -policy.log_probs(text).mean().item()
    assert (with_text - plain).item() == pytest.approx(2 * expected, abs=1e-5)
    assert numbers["ptx_loss"].item() == pytest.approx(expected, abs=1e-5)


def test_pretraining_text_stays_likely_only_with_its_loss():
    text = torch.zeros(8, 4).long()  # nothing that the score asks for
    config = replace(SMALL, beta=0.01, num_updates=40)
    kept = rlhf_ppo(
        small_model(),
        TASK.score,
        replace(config, ptx_coef=1.0),
        pretraining_tokens=text,
    )
    lost = rlhf_ppo(small_model(), TASK.score, config)
    with torch.no_grad():
        chances = [h.policy.log_probs(text)[0].sum().exp() for h in (kept, lost)]
    assert chances[0] > 0.1 and chances[1] < 0.01
    with pytest.raises(ValueError, match="pretraining_tokens must be given"):
        rlhf_ppo(small_model(), TASK.score, replace(config, ptx_coef=1.0))


def test_without_a_price_the_score_is_hacked_at_the_kl_of_the_best_response():
    """CLAIMS row 19, on the small toy with a random reference."""
    ref = small_model(uniform=False, seed=2)
    config = replace(SMALL, beta=0.0, num_updates=100)
    history = rlhf_ppo(ref, TASK.score, config)
    found = gap(history, TASK.score, TREE, 1.0)[1]
    with torch.no_grad():
        limit = -ref.log_probs(torch.full((1, 4), 3)).sum().item()
    assert found.score >= 0.99
    assert found.kl == pytest.approx(limit, abs=0.05)


@pytest.mark.parametrize(
    "options",
    [
        {"uniform": False, "seed": 1},
        {"separate_critic": True},
        {"minibatch_size": 32, "num_updates": 40},
        {"normalize_advantages": "minibatch"},
        {"credit": "response"},
    ],
    ids=str,
)
def test_a_run_lands_on_the_exact_optimum(options):
    names = ("uniform", "seed", "separate_critic")
    model = {name: options[name] for name in names if name in options}
    changes = {name: value for name, value in options.items() if name not in names}
    config = replace(SMALL, **{"num_updates": 100} | changes)
    history = rlhf_ppo(small_model(**model), TASK.score, config)
    missing, _ = gap(history, TASK.score, TREE, 0.1)
    assert -1e-6 <= missing < 0.006


def test_the_critic_ends_near_the_exact_values_of_prefixes():
    history = rlhf_ppo(small_model(), TASK.score, replace(SMALL, num_updates=150))
    _, found = gap(history, TASK.score, TREE, 0.1)
    for level in range(4):
        tokens = TREE.prefixes(level)
        padded = torch.zeros(len(tokens), 4).long()
        padded[:, :level] = tokens
        with torch.no_grad():
            values = history.policy(padded)[1][:, level]
        weights = policy_weights(history.policy, padded, level)
        error = (values.double() - found.values[level]).abs()
        assert float(weights @ error) < 0.06
    assert history.records[-1]["explained_variance"] > 0.8


def policy_weights(policy, padded, level):
    """How likely each prefix is under the policy."""
    with torch.no_grad():
        return policy.log_probs(padded)[:, :level].double().sum(-1).exp()


def test_with_an_end_the_policy_learns_to_finish_where_not_finishing_costs():
    task = TokenCount(5, 4, target=1, eos_token=4)
    tree = TokenTree(5, 4, 4)
    config = replace(SMALL, beta=0.05, missing_eos_penalty=1.0, num_updates=120, seed=2)
    history = rlhf_ppo(GRULanguageModel(5, eos_token=4, hidden=16), task.score, config)

    def paid(tokens, mask):
        ended = ((tokens == 4) & mask).any(-1)
        return task.score(tokens, mask) - 1.0 * ~ended

    missing, _ = gap(history, paid, tree, 0.05)
    assert -1e-6 <= missing < 0.01
    assert history.last("finished") > 0.97
    free = rlhf_ppo(
        GRULanguageModel(5, eos_token=4, hidden=16),
        task.score,
        replace(config, missing_eos_penalty=0.0),
    )
    assert free.last("finished") < 0.8


def test_on_the_full_toy_the_run_is_within_004_of_the_best_there_is():
    """CLAIMS rows 21 and 21c, all 8^8 responses."""
    task, tree = TokenCount(), TokenTree()
    history = rlhf_ppo(GRULanguageModel(), task.score, RLHFConfig())
    found = evaluate(
        tree,
        policy_table(history.policy, tree),
        uniform_table(tree),
        end_scores(task.score, tree),
        0.1,
    )
    best = uniform_optimum(8, 8, 0.1)
    assert -1e-6 <= best.objective - found.objective < 0.004
    assert found.score == pytest.approx(0.333, abs=0.03)
    assert found.kl == pytest.approx(1.16, abs=0.15)
    assert history.last("kl", 30) == pytest.approx(found.kl, abs=0.2)
