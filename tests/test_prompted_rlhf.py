"""RLHF on prompts: caps, groups, a run taken up again, and that it learns."""

import io
from dataclasses import replace

import pytest
import torch

from course_lib.algorithms import (
    Demonstrations,
    GroupConfig,
    LanguageRun,
    PromptSource,
    RewardModelConfig,
    RLHFConfig,
    SFTConfig,
    SupervisedRun,
    greedy_accuracy,
    learned_score,
    preference_accuracy,
    rlhf_group,
    rlhf_ppo,
    sample_pairs,
    sft,
    train_reward_model,
)
from course_lib.algorithms.language_learner import ModelLearner
from course_lib.algorithms.responses import Responses, collect_responses
from course_lib.algorithms.rlhf import estimate_advantages
from course_lib.envs import ARITHMETIC, CharacterTokenizer, Problem, arithmetic_problems
from course_lib.models import (
    PromptedPolicy,
    PromptedRewardModel,
    Sampling,
    Transformer,
    TransformerConfig,
)

TOKENIZER = CharacterTokenizer(ARITHMETIC)
SIZE = TransformerConfig(context=16, width=32, num_layers=1, num_heads=2)
EASY = arithmetic_problems("add-1")[:12]
SHORT = RLHFConfig(
    num_updates=4, batch_size=16, minibatch_size=8, num_epochs=2, length=3, beta=0.05
)


@pytest.fixture(autouse=True, scope="module")
def threads(one_thread):
    """These tensors are small."""


def policy(seed=0, **options):
    trunk = Transformer(TOKENIZER.vocab_size, SIZE, seed=seed)
    return PromptedPolicy(trunk, eos_token=TOKENIZER.eos_token, **options)


def source(problems=EASY, **options):
    return PromptSource([problems], TOKENIZER, **options)


def weights(model):
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def capped(values, after, finished=False):
    """One response of two tokens, with nothing paid but the score."""
    zeros = torch.zeros(1, 2)
    return Responses(
        tokens=torch.zeros(1, 2, dtype=torch.int64),
        mask=torch.ones(1, 2, dtype=torch.bool),
        old_log_probs=zeros,
        old_values=torch.tensor([values]),
        ref_log_probs=zeros,
        scores=torch.zeros(1),
        rewards=torch.zeros(1),
        finished=torch.tensor([finished]),
        entropies=zeros,
        last_values=torch.tensor([after]),
    )


def test_a_response_that_ran_out_of_length_is_judged_by_what_would_have_come():
    """CASES K19: huggingface/trl PR 1536, #6805; OpenRLHF/OpenRLHF #238."""
    config = RLHFConfig(lam=1.0, normalize_advantages="none", bootstrap_capped=True)
    found = estimate_advantages(capped([1.0, 2.0], 3.0), 0.0, config)
    assert found.advantages.tolist() == [[2.0, 1.0]]
    ended = estimate_advantages(capped([1.0, 2.0], 3.0, finished=True), 0.0, config)
    assert ended.advantages.tolist() == [[-1.0, -2.0]]
    as_an_end = replace(config, bootstrap_capped=False)
    found = estimate_advantages(capped([1.0, 2.0], 3.0), 0.0, as_an_end)
    assert found.advantages.tolist() == [[-1.0, -2.0]]
    # Error 11: with V = .7 everywhere a cap is a punishment of every token.
    steady = estimate_advantages(capped([0.7, 0.7], 0.7), 0.0, config)
    # By one number for the whole response it is the same: 0 + 3 - 1, or 0 - 1.
    whole = replace(config, credit="response")
    for finished, advantage in ((False, 2.0), (True, -1.0)):
        found = estimate_advantages(capped([1.0, 2.0], 3.0, finished), 0.0, whole)
        assert found.advantages.tolist() == [[advantage, advantage]]
    # One that ended early has padding behind it, and nothing comes after its end.
    early = capped([1.0, 2.0], 3.0, finished=True)
    early = replace(early, mask=torch.tensor([[True, False]]))
    found = estimate_advantages(early, 0.0, config)
    assert found.advantages.tolist() == [[-1.0, 0.0]]
    assert steady.advantages.abs().max() < 1e-6


def test_the_penalty_for_a_missing_eos_is_not_fooled_by_one_in_the_prompt():
    problem = Problem("1+", "2", "2")
    asked = source([problem, problem])
    asked._texts = [[TOKENIZER.eos_token, 1], [1, 2]]
    prompts = asked.prompts(torch.arange(2))
    model = policy()
    with torch.no_grad():  # EOS is never drawn
        model.trunk.lm_head.weight[TOKENIZER.eos_token] = 0
        model.trunk.norm.bias.fill_(1.0)
        model.trunk.lm_head.weight[:-1] += 10.0
    config = replace(SHORT, batch_size=2, missing_eos_penalty=1.0)
    run = LanguageRun(model, config)
    seen = collect_responses(
        run.learner, run.ref, lambda *_: torch.ones(2), config, prompts
    )
    assert not seen.finished.any() and seen.rewards.tolist() == [0.0, 0.0]
    assert seen.scores.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.7, top_k=3), Sampling(top_p=0.6)]
)
def test_before_the_first_step_every_ratio_is_one_and_kl_is_not_negative(sampling):
    """CASES K26 and K23: with what may not be drawn left out of both log-probs."""
    config = replace(SHORT, num_updates=1, num_epochs=1, learning_rate=0.0)
    model, asked = policy(sampling=sampling), source()
    (record,) = rlhf_ppo(model, asked.score, config, prompt_fn=asked).records
    assert record["ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert record["approx_kl"] == pytest.approx(0.0, abs=1e-8)
    assert record["clip_frac"] == 0.0
    # What is cut off is a distance from the reference, and is paid for.
    assert record["kl"] >= -1e-5 and (record["kl"] > 1.0) == sampling.truncates


def test_the_curriculum_opens_one_level_after_another():
    levels = [arithmetic_problems(name)[:5] for name in ("add-1", "times-1", "add-2-1")]
    asked = PromptSource(levels, TOKENIZER, curriculum=0.5)
    shares = (0.0, 0.2, 0.25, 0.4, 0.5, 1.0)
    assert [asked.open_problems(done) for done in shares] == [5, 5, 10, 10, 15, 15]
    assert PromptSource(levels, TOKENIZER).open_problems(0.0) == 15
    drawn = asked(400, 0.3, torch.Generator()).rows
    assert sorted(drawn.unique().tolist()) == list(range(10))


def test_the_verifier_scores_each_response_by_its_own_problem():
    asked = source()
    prompts = asked.prompts(torch.tensor([3, 3, 11]))  # 0+3, 0+3, 1+1
    end = TOKENIZER.eos_token
    tokens = torch.tensor([[3, end, end], [3, 3, end], [2, end, 2]])
    mask = torch.tensor([[True, True, False], [True] * 3, [True, True, False]])
    assert asked.score(tokens, mask, prompts).tolist() == [1.0, 0.0, 1.0]


def test_a_group_answers_one_prompt():
    asked, rows = source(), []

    def score(tokens, mask, prompts):
        rows.append(prompts.rows.view(-1, 4))
        return asked.score(tokens, mask, prompts)

    config = GroupConfig(num_updates=1, batch_size=16, group_size=4, length=3)
    rlhf_group(policy(), score, config, prompt_fn=asked)
    assert (rows[0] == rows[0][:, :1]).all()
    assert len(rows[0][:, 0].unique()) > 1


@pytest.mark.parametrize("staleness", [0, 2])
@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_a_run_taken_up_from_its_state_ends_as_one_that_was_never_put_down(
    algorithm, staleness
):
    """Weights of all heads, optimizer, random numbers, beta and the older policies."""
    asked, whole, saved = source(), policy(value_hidden=4), []
    if algorithm == "ppo":
        config = replace(SHORT, num_updates=6, kl_target=0.05, staleness=staleness)
        train, horizon = rlhf_ppo, {"kl_horizon": 50.0}
    else:
        config = GroupConfig(
            num_updates=6, batch_size=16, group_size=4, length=3, kl="k3"
        )
        config, horizon = replace(config, staleness=staleness), {}
        train = rlhf_group
    config = replace(config, **horizon)
    straight = LanguageRun(whole, config)

    def copy_of(state):
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        return torch.load(file, weights_only=True)

    def keep_copy(count, record):
        if count == 2:
            saved.append(copy_of(straight.state_dict()))

    train(whole, asked.score, config, prompt_fn=asked, run=straight, callback=keep_copy)
    again = LanguageRun(policy(seed=9, value_hidden=4), config)
    again.load_state_dict(saved[0])
    train(whole, asked.score, config, prompt_fn=asked, run=again)
    assert torch.equal(weights(again.learner.policy), weights(straight.learner.policy))
    assert torch.equal(weights(again.ref), weights(straight.ref))
    for one, other in zip(again.history.records, straight.history.records, strict=True):
        del one["cpu_seconds"], other["cpu_seconds"]
        assert one == other


def test_ppo_finds_a_token_that_pays_without_being_shown_it():
    """CLAIMS row 22: from 1/64 to over .9, here of 16 tokens in fewer steps."""
    trunk = Transformer(16, SIZE, uniform=True)
    model = PromptedPolicy(trunk, eos_token=None)
    config = RLHFConfig(
        num_updates=40, batch_size=64, minibatch_size=64, length=4, beta=0.0
    )
    config = replace(config, learning_rate=5e-3)

    def score(tokens, mask):
        return (tokens == 5).float().mean(-1)

    history = rlhf_ppo(model, score, config)
    first, last = history.records[0]["score"], history.last("score", 5)
    assert first == pytest.approx(1 / 16, abs=0.06) and last > 0.9


def test_sft_teaches_what_is_written_and_leaves_the_prompts_alone():
    asked = source()
    config = SFTConfig(num_epochs=60, minibatch_size=12, learning_rate=5e-3)
    begin = policy()
    before = weights(begin).clone()
    run = sft(begin, asked.demonstrations(), config)
    assert torch.equal(weights(begin), before)
    assert greedy_accuracy(begin, asked, 3) < 0.5
    assert greedy_accuracy(run.learner.model, asked, 3) == 1.0
    assert run.records[-1]["loss"] < 0.1 < run.records[0]["loss"]


def test_a_demonstration_ends_with_eos_and_padding_is_not_learnt():
    problems = [Problem("1+1=", "2", "2"), Problem("9+9=", "18", "18")]
    shown = source(problems).demonstrations()
    end = TOKENIZER.eos_token
    assert shown.tokens.tolist() == [[2, end, end], [1, 8, end]]
    assert shown.mask.tolist() == [[True, True, False], [True] * 3]
    model = policy()
    losses = []
    for filler in (0, 7, -100):
        tokens = torch.where(shown.mask, shown.tokens, filler)
        tokens = torch.nn.functional.pad(tokens, (0, 1), value=filler)
        mask = torch.nn.functional.pad(shown.mask, (0, 1))
        data = Demonstrations(shown.prompts, tokens, mask)
        run = sft(model, data, SFTConfig(num_epochs=1))
        losses.append(run.records[0]["loss"])
    assert losses[0] == losses[1] == losses[2]


def test_a_callback_ends_a_fit_and_a_fit_that_ended_stays_ended():
    asked = source()
    run = SupervisedRun(ModelLearner(policy(), SFTConfig()))

    def enough(count, record):
        run.stopped = count == 2

    sft(policy(), asked.demonstrations(), SFTConfig(), run=run, callback=enough)
    assert run.done == 3
    state = run.state_dict()
    again = SupervisedRun(ModelLearner(policy(seed=4), SFTConfig()))
    again.load_state_dict(state)
    sft(policy(), asked.demonstrations(), SFTConfig(), run=again)
    assert again.done == 3
    assert torch.equal(weights(again.learner.model), weights(run.learner.model))


def test_a_reward_model_of_a_transformer_learns_what_the_judge_prefers():
    """Both of a pair answer one prompt, and the prompt decides which is right."""
    asked, model = source(EASY[:4]), policy()
    generator = torch.Generator().manual_seed(0)

    def judge(tokens, mask, prompts):  # wants the digit that the prompt asks for
        return (tokens[:, 0] == prompts.rows).float()

    prompts = asked(4000, 0.0, generator)
    pairs = sample_pairs(
        model, judge, 4000, 1, scale=50.0, generator=generator, prompts=prompts
    )
    decided = judge(pairs.chosen, pairs.chosen_mask, prompts) != judge(
        pairs.rejected, pairs.rejected_mask, prompts
    )
    pairs = pairs[decided]
    config = RewardModelConfig(num_epochs=60, minibatch_size=64, learning_rate=5e-3)
    run = SupervisedRun(ModelLearner(PromptedRewardModel(model), config))
    fitted, records = train_reward_model(model, pairs, config, run=run)
    assert records[0]["loss"] < 0.72 and preference_accuracy(fitted, pairs) > 0.95
    score = learned_score(fitted, scale=1.0)
    right = torch.arange(4).view(4, 1)
    every = asked.prompts(torch.arange(4))
    mask = torch.ones_like(right, dtype=torch.bool)
    gained = score(right, mask, every) - score((right + 1) % 4, mask, every)
    assert (gained > 0).all()


def test_refusals_name_what_does_not_fit():
    with pytest.raises(ValueError, match="levels must each hold a problem"):
        PromptSource([EASY, []], TOKENIZER)
    with pytest.raises(ValueError, match="curriculum"):
        PromptSource([EASY], TOKENIZER, curriculum=2.0)
    with pytest.raises(ValueError, match="prompt_fn must give 16 prompts, got 3"):
        asked = source()
        rlhf_ppo(
            policy(),
            asked.score,
            SHORT,
            prompt_fn=lambda *_: asked.prompts(torch.arange(3)),
        )
    with pytest.raises(TypeError, match="language_model must be a GRULanguageModel"):
        train_reward_model(policy(), None)
    with pytest.raises(ValueError, match="last_values with bootstrap_capped"):
        config = RLHFConfig(bootstrap_capped=True)
        estimate_advantages(
            replace(capped([0.0, 0.0], 0.0), last_values=None), 0.0, config
        )
