"""Policy, critic and reward model on a trunk: alignment, sampling, first values."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from course_lib.models import (
    HuggingFaceTrunk,
    PromptedPolicy,
    PromptedRewardModel,
    Prompts,
    Sampling,
    ScalarHead,
    Transformer,
    TransformerConfig,
    kept_tokens,
)

SMALL = TransformerConfig(context=16, width=32, num_layers=2, num_heads=4)
EOS = 5


def policy(seed=1, **options):
    return PromptedPolicy(Transformer(6, SMALL, seed=seed), eos_token=EOS, **options)


def sharpened(model, factor=40.0):
    """The same model with logits that differ, as those of a trained one do."""
    with torch.no_grad():
        model.trunk.lm_head.weight.mul_(factor)
    return model


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def prompts_of(*texts):
    return Prompts.padded(texts, torch.arange(len(texts)))


ASKED = prompts_of([1, 2, 3, 4], [0, 2], [3])


def test_prompts_are_padded_on_their_left():
    assert ASKED.tokens.tolist() == [[1, 2, 3, 4], [0, 0, 0, 2], [0, 0, 0, 3]]
    assert ASKED.mask.sum(-1).tolist() == [4, 2, 1]
    assert ASKED.mask[:, -1].all()


def test_a_response_is_scored_as_one_token_after_another_would_be():
    """CASES K20: the token of place t by the logits of place t - 1."""
    model = sharpened(policy())
    tokens = torch.tensor([[1, 0, 4], [2, 2, EOS], [4, 3, 1]])
    found = model.log_probs(tokens, ASKED).detach()
    values = model(tokens, ASKED)[1]
    assert values.shape == found.shape
    for row, text in enumerate(([1, 2, 3, 4], [0, 2], [3])):
        for t in range(3):
            read = torch.tensor([[*text, *tokens[row, :t].tolist()]])
            state = model.trunk(read, torch.ones_like(read).bool())[0, -1]
            expected = (
                model.trunk.logits(state).detach().log_softmax(-1)[tokens[row, t]]
            )
            assert found[row, t] == pytest.approx(float(expected), abs=1e-5)


def test_what_was_sampled_is_scored_alike_before_anything_is_learnt():
    """CASES K26: every ratio of the first step is 1."""
    model = sharpened(policy())
    seen = model.generate(ASKED, 6, generator())
    torch.testing.assert_close(model.log_probs(seen.tokens, ASKED), seen.log_probs)
    logits, values = model(seen.tokens, ASKED)
    torch.testing.assert_close(values, seen.values)
    torch.testing.assert_close(logits.softmax(-1).sum(-1), torch.ones_like(values))


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=3.0), Sampling(0.5, top_k=4)]
)
def test_samples_have_the_frequencies_that_their_log_probs_say(sampling):
    """Tokens come through the cache, log-probs from one pass over everything."""
    model = sharpened(policy(sampling=sampling), 20.0)
    count = 20_000
    asked = prompts_of([1, 2], [3])[torch.tensor([0, 1]).repeat_interleave(count)]
    seen = model.generate(asked, 1, generator())
    for row in range(2):
        part = slice(row * count, (row + 1) * count)
        share = seen.tokens[part, 0].bincount(minlength=6) / count
        kept = None if seen.kept is None else seen.kept[part][:1]
        logits, _ = model(seen.tokens[part][:1], asked[part][:1], kept)
        expected = logits[0, 0].softmax(-1)
        assert expected.max() < 0.95  # or any temperature would do
        assert (share - expected).abs().max() < 4 * math.sqrt(0.25 / count)


def test_a_response_ends_with_its_eos_which_is_real():
    """Error 37: EOS is an action that was taken, whatever pads what comes after."""
    model = policy()
    seen = model.generate(ASKED[torch.zeros(200).long()], 8, generator())
    for tokens, mask in zip(seen.tokens.tolist(), seen.mask.tolist(), strict=True):
        length = tokens.index(EOS) + 1 if EOS in tokens else len(tokens)
        assert mask == [t < length for t in range(len(tokens))]
        assert set(tokens[length:]) <= {EOS}
    assert seen.mask.sum(-1).min() < seen.tokens.shape[1]


def test_greedy_takes_the_likeliest_token_and_needs_no_randomness():
    model = sharpened(policy())
    seen = model.generate(ASKED, 5, None)
    logits, _ = model(seen.tokens, ASKED)
    assert torch.equal(logits.argmax(-1)[seen.mask], seen.tokens[seen.mask])
    for row in range(3):  # and no row depends on its neighbours
        alone = model.generate(ASKED[row : row + 1], 5, None).tokens
        assert torch.equal(alone[0], seen.tokens[row, : alone.shape[1]])


def test_the_nucleus_keeps_the_token_that_crosses():
    p = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    assert kept_tokens(p, Sampling(top_p=0.75)).tolist() == [False, True, True, True]
    assert kept_tokens(p, Sampling(top_p=0.9)).tolist() == [False, True, True, True]
    assert kept_tokens(p, Sampling(top_p=0.05)).tolist() == [False, True, False, False]
    assert kept_tokens(p, Sampling(top_k=2)).tolist() == [False, True, False, True]
    # 4/7 of what top-k leaves is .4: the nucleus is one of the renormalised rest.
    assert kept_tokens(p, Sampling(top_k=2, top_p=0.5)).sum() == 1
    assert kept_tokens(torch.zeros(4), Sampling(top_k=2)).sum() == 2
    assert kept_tokens(p, Sampling(top_p=1e-9)).sum() == 1  # never none
    # At a high temperature .4 and .3 are not enough any more.
    assert kept_tokens(p, Sampling(temperature=9.0, top_p=0.6)).sum() == 3


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=2),
        Sampling(temperature=0.6, top_p=0.7),
        Sampling(top_k=3, top_p=0.8),
    ],
)
def test_the_log_probs_are_those_of_the_distribution_that_was_sampled(sampling):
    """CASES K23, NVIDIA/NeMo-Aligner #46; what may not be drawn has no share."""
    model = sharpened(policy(sampling=sampling))
    seen = model.generate(ASKED[torch.arange(3).repeat(50)], 4, generator())
    again = model.log_probs(seen.tokens, ASKED[torch.arange(3).repeat(50)], seen.kept)
    torch.testing.assert_close(again, seen.log_probs)
    plain = PromptedPolicy(model.trunk, eos_token=EOS)
    for row in range(3):
        tokens = seen.tokens[row : row + 1]
        logits, _ = plain(tokens, ASKED[row : row + 1])
        for t in range(int(seen.mask[row].sum())):
            # Renormalised by hand, over what may be drawn at that temperature.
            p = (logits[0, t].detach() / sampling.temperature).softmax(-1)
            kept = seen.kept[row, t]
            expected = (p[tokens[0, t]] / p[kept].sum()).log()
            assert seen.log_probs[row, t] == pytest.approx(float(expected), abs=1e-5)
            assert kept.sum() < 6


def test_the_example_of_the_case():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    kept = kept_tokens(logits, Sampling(top_k=2))
    q = logits.masked_fill(~kept, -math.inf).log_softmax(-1)
    assert q[0] == pytest.approx(-0.470004, abs=1e-6)


def test_scoring_at_temperature_one_is_an_option():
    hot = Sampling(temperature=2.0)
    model = sharpened(policy(sampling=hot))
    tokens = torch.tensor([[1, 0, 4]])
    at_two = model.log_probs(tokens, ASKED[:1])
    at_one = sharpened(policy()).log_probs(tokens, ASKED[:1])
    model.sampling = Sampling(temperature=2.0, same_temperature=False)
    torch.testing.assert_close(model.log_probs(tokens, ASKED[:1]), at_one)
    assert (at_two - at_one).abs().max() > 0.1


@pytest.mark.parametrize("critic", ["shared", "detached", "separate"])
def test_values_are_zero_at_first_and_the_first_step_leaves_the_trunk_alone(critic):
    """Error 15: only the first; what a critic's loss may reach, its kind says."""
    model = policy(critic=critic, value_hidden=8)
    tokens = torch.tensor([[1, 0, 4]])
    _, values = model(tokens, ASKED[:1])
    assert not values.any()
    (values - 1).square().sum().backward()
    weight = model.trunk.blocks[0].mlp_in.weight
    assert weight.grad is None or not weight.grad.any()
    with torch.no_grad():
        model.value_head.last.weight.fill_(1.0)
    (model(tokens, ASKED[:1])[1] - 1).square().sum().backward()
    moved = weight.grad is not None and bool(weight.grad.any())
    assert moved == (critic == "shared")


def test_a_capped_response_tells_what_it_would_still_be_worth():
    model = policy()
    nn.init.ones_(model.value_head.last.weight)
    model.value_head.last.bias.data.fill_(0.5)
    seen = model.generate(ASKED, 3, generator(3))
    longer = torch.cat((seen.tokens, torch.zeros(3, 1).long()), 1)
    torch.testing.assert_close(seen.last_values, model(longer, ASKED)[1][:, -1])


def test_without_prompts_it_answers_to_bos():
    model = policy()
    seen = model.generate(7, 4, generator())
    assert len(seen.tokens) == 7
    same = model.log_probs(seen.tokens, prompts_of(*[[6]] * 7))
    torch.testing.assert_close(seen.log_probs, same)


def test_a_frozen_copy_does_not_move():
    model = policy()
    ref = model.frozen()
    with torch.no_grad():
        model.trunk.lm_head.weight.add_(1.0)
    assert not torch.equal(ref.trunk.lm_head.weight, model.trunk.lm_head.weight)
    assert not any(one.requires_grad for one in ref.parameters())


def test_bfloat16_is_for_the_trunk_alone():
    """CASES K24: 20.06 and 20 are one number in bfloat16, and a ratio of 1.03."""
    model = policy(precision="bfloat16")
    seen = model.generate(ASKED, 4, generator())
    logits, values = model(seen.tokens, ASKED)
    assert logits.dtype == values.dtype == seen.log_probs.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())
    torch.testing.assert_close(model.log_probs(seen.tokens, ASKED), seen.log_probs)
    exact, _ = policy()(seen.tokens, ASKED)
    torch.testing.assert_close(logits, exact, atol=0.02, rtol=0.02)


def test_a_reward_is_read_at_the_last_real_token_of_each_response():
    """CASES K52: what stands behind a response's end moves nothing."""
    model = PromptedRewardModel(policy())
    tokens = torch.tensor([[1, EOS, 0], [2, 3, EOS], [EOS, 1, 1]])
    mask = torch.tensor([[True, True, False], [True] * 3, [True, False, False]])
    assert not model(tokens, mask, ASKED).any()
    nn.init.normal_(model.reader.value_head.last.weight, generator=generator())
    rewards = model(tokens, mask, ASKED)
    other = torch.where(mask, tokens, 4)
    torch.testing.assert_close(model(other, mask, ASKED), rewards)
    alone = model(tokens[:1, :2], mask[:1, :2], prompts_of([1, 2, 3, 4]))
    torch.testing.assert_close(alone, rewards[:1])
    assert model.reader.value_head.last.bias is None


def test_a_scalar_head_starts_at_zero_with_or_without_a_layer_between():
    states = torch.randn(3, 4, 8, generator=generator())
    for hidden in (None, 5):
        head = ScalarHead(8, hidden=hidden)
        assert not head(states).any() and head(states).shape == (3, 4)
        head(states).sum().backward()
        assert head.last.weight.grad.any()


def test_refusals_name_what_does_not_fit():
    model = policy()
    with pytest.raises(ValueError, match=r"context of 16 after prompts of 4 .* got 13"):
        model.generate(ASKED, 13, generator())
    with pytest.raises(ValueError, match="top_p must be above 0, got 0"):
        Sampling(top_p=0.0)
    with pytest.raises(ValueError, match="top_k must be at least 1, got 0"):
        Sampling(top_k=0)
    with pytest.raises(ValueError, match="temperature"):
        Sampling(temperature=0.0)
    with pytest.raises(ValueError, match="critic must be one of"):
        policy(critic="none")
    with pytest.raises(ValueError, match="eos_token must be one of 6 tokens, got 6"):
        PromptedPolicy(Transformer(6, SMALL), eos_token=6)
    with pytest.raises(ValueError, match="texts"):
        prompts_of([1], [])
    with pytest.raises(ValueError, match=r"rows must have shape \[1\], got \[2\]"):
        Prompts.padded([[1]], torch.arange(2))


def test_prompts_that_are_padded_on_their_right_are_refused():
    """Their responses would begin behind padding, and no number would look wrong."""
    tokens = torch.tensor([[1, 2, 0], [1, 2, 3]])
    mask = torch.tensor([[True, True, False], [True] * 3])
    asked, model = Prompts(tokens, mask, torch.arange(2)), policy()
    message = "padded on their left, .* got padding at the end of 1 of 2"
    with pytest.raises(ValueError, match=message):
        model.generate(asked, 2, generator())
    with pytest.raises(ValueError, match=message):
        model.log_probs(tokens, asked)


class StandIn(nn.Module):
    """A causal model that is called as those of `transformers` are."""

    def __init__(self, cap=None):
        super().__init__()
        self.trunk, self.cap = Transformer(6, SMALL, seed=1), cap
        self.config = SimpleNamespace(
            vocab_size=6,
            hidden_size=32,
            max_position_embeddings=16,
            bos_token_id=None,
        )

    def base_model(
        self, input_ids, attention_mask, position_ids, past_key_values, use_cache
    ):
        real = attention_mask.bool()
        expected = (real.cumsum(-1) - 1).clamp(min=0)[:, -input_ids.shape[1] :]
        assert torch.equal(position_ids, expected)
        if use_cache and past_key_values is None:
            past_key_values = self.trunk.new_cache(len(input_ids), 16)
        new = real[:, -input_ids.shape[1] :]
        return SimpleNamespace(
            last_hidden_state=self.trunk(input_ids, new, cache=past_key_values),
            past_key_values=past_key_values,
        )

    def get_output_embeddings(self):
        return self.trunk.lm_head

    def forward(self, input_ids, attention_mask):
        states = self.trunk(input_ids, attention_mask.bool())
        logits = self.trunk.logits(states) * 9
        if self.cap is not None:
            return SimpleNamespace(logits=self.cap * (logits / self.cap).tanh())
        return SimpleNamespace(logits=logits / 9)


def test_a_hugging_face_model_is_a_trunk_like_any_other():
    theirs = PromptedPolicy(HuggingFaceTrunk(StandIn()), eos_token=EOS)
    ours = policy()
    seen, expected = (one.generate(ASKED, 5, generator()) for one in (theirs, ours))
    assert torch.equal(seen.tokens, expected.tokens)
    torch.testing.assert_close(seen.log_probs, expected.log_probs)
    assert theirs.train().trunk.model.training is False  # no dropout in either pass


def test_where_there_is_no_prompt_a_model_reads_the_bos_it_knows_or_is_given():
    model = StandIn()
    with pytest.raises(ValueError, match="prompts must be given, or bos_token"):
        PromptedPolicy(HuggingFaceTrunk(model), eos_token=EOS).generate(2, 3, None)
    model.config.bos_token_id = 4
    own = PromptedPolicy(HuggingFaceTrunk(model), eos_token=EOS)
    told = PromptedPolicy(HuggingFaceTrunk(model), eos_token=EOS, bos_token=3)
    for one, token in ((own, 4), (told, 3)):
        expected = one.generate(prompts_of([token], [token]), 3, None)
        assert torch.equal(one.generate(2, 3, None).tokens, expected.tokens)


def test_a_model_that_was_not_wrapped_is_refused_with_the_wrap_named():
    with pytest.raises(TypeError, match=r"HuggingFaceTrunk\(model\), got StandIn"):
        PromptedPolicy(StandIn(), eos_token=EOS)


def test_a_model_whose_head_does_more_is_refused():
    with pytest.raises(ValueError, match="StandIn"):
        HuggingFaceTrunk(StandIn(cap=0.01))


def test_a_model_in_half_precision_is_refused():
    """CLAIMS row 36: .02 less 5e-6 is .02 in bfloat16, and nothing is ever learnt."""
    assert torch.tensor(0.02).bfloat16() - 5e-6 == torch.tensor(0.02).bfloat16()
    with pytest.raises(ValueError, match=r"float32, got \['torch\.bfloat16'\]"):
        HuggingFaceTrunk(StandIn().bfloat16())


def test_a_real_hugging_face_model_samples_and_scores_alike():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=6,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=EOS,
    )
    trunk = HuggingFaceTrunk(transformers.GPT2LMHeadModel(config))
    model = PromptedPolicy(trunk, eos_token=EOS, bos_token=0)
    with torch.no_grad():
        trunk.model.lm_head.weight.mul_(20.0)
    seen = model.generate(ASKED, 6, generator())
    for row, length in enumerate((4, 2, 1)):
        alone = ASKED[row : row + 1]
        alone = Prompts(alone.tokens[:, -length:], alone.mask[:, -length:], alone.rows)
        found = model.log_probs(seen.tokens[row : row + 1], alone)
        torch.testing.assert_close(found[0], seen.log_probs[row], atol=1e-5, rtol=1e-5)
    greedy = model.generate(ASKED, 6, None)
    logits, _ = model(greedy.tokens, ASKED)
    assert torch.equal(logits.argmax(-1)[greedy.mask], greedy.tokens[greedy.mask])
