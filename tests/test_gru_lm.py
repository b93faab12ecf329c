"""The tiny language model: its gradient, its alignment, what it samples."""

import itertools
import math

import pytest
import torch
from torch import nn

from course_lib.kernels import token_log_probs
from course_lib.models import (
    FlatParameters,
    GRULanguageModel,
    RewardModel,
    TokenGRU,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_gru_and_its_written_out_gradient_are_those_of_torch():
    ours = TokenGRU(5, 7, generator()).double()
    peer = nn.GRU(5, 7).double()
    with torch.no_grad():
        peer.weight_ih_l0.copy_(ours.table.t())
        peer.weight_hh_l0.copy_(ours.weight.t())
        peer.bias_ih_l0.zero_()
        peer.bias_hh_l0.zero_()
        peer.bias_hh_l0[14:] = ours.bias
    tokens = torch.randint(5, (6, 4), generator=generator(1))
    weights = torch.randn(6, 4, 7, generator=generator(2)).double()
    states, expected = ours(tokens), peer(nn.functional.one_hot(tokens).double())[0]
    (states * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(states, expected)
    torch.testing.assert_close(ours.table.grad.t(), peer.weight_ih_l0.grad)
    torch.testing.assert_close(ours.weight.grad.t(), peer.weight_hh_l0.grad)
    torch.testing.assert_close(ours.bias.grad, peer.bias_hh_l0.grad[14:])


def test_reading_step_by_step_is_reading_at_once():
    gru = TokenGRU(5, 7, generator())
    tokens = torch.randint(5, (6, 4), generator=generator(1))
    state = torch.zeros(4, 7)
    for t, at_once in enumerate(gru(tokens)):
        state = gru.step(tokens[t], state)
        torch.testing.assert_close(state, at_once)


def test_a_zero_head_makes_every_token_equally_likely_and_every_value_zero():
    model = GRULanguageModel(8)
    seen = model.generate(50, 6, generator())
    assert torch.equal(seen.log_probs, torch.full((50, 6), -math.log(8)))
    assert torch.equal(seen.values, torch.zeros(50, 6))
    torch.testing.assert_close(seen.entropies, torch.full((50, 6), math.log(8)))


def test_logits_of_a_place_score_the_token_of_that_place():
    """CASES K20: what stands at t and later must not change the logits of t."""
    model = GRULanguageModel(8, uniform=False)
    tokens = torch.randint(8, (3, 6), generator=generator())
    logits, values = model(tokens)
    for t in range(6):
        changed = tokens.clone()
        changed[:, t:] = (tokens[:, t:] + 1) % 8
        other, other_values = model(changed)
        assert torch.equal(other[:, : t + 1], logits[:, : t + 1])
        assert torch.equal(other_values[:, : t + 1], values[:, : t + 1])
        if t < 5:
            assert not torch.equal(other[:, t + 1], logits[:, t + 1])


@pytest.mark.parametrize("separate", [False, True])
def test_log_probs_of_sampling_are_those_of_teacher_forcing(separate):
    """CASES K26: so that every ratio is 1 before the first step."""
    model = GRULanguageModel(9, eos_token=8, uniform=False, separate_critic=separate)
    nn.init.normal_(model.value_head.weight, generator=generator())
    seen = model.generate(64, 6, generator())
    logits, values = model(seen.tokens)
    forced = token_log_probs(logits, seen.tokens)
    torch.testing.assert_close(forced[seen.mask], seen.log_probs[seen.mask])
    torch.testing.assert_close(values[seen.mask], seen.values[seen.mask])
    torch.testing.assert_close(model.log_probs(seen.tokens), forced)


def test_samples_come_as_often_as_the_model_says():
    model = GRULanguageModel(3, uniform=False, seed=4)
    with torch.no_grad():
        model.lm_head.weight.mul_(8)
    seen = model.generate(40_000, 2, generator())
    everything = torch.tensor([*itertools.product(range(3), repeat=2)])
    with torch.no_grad():
        chance = model.log_probs(everything).sum(-1).exp()  # [9]
    assert chance.sum().item() == pytest.approx(1.0, abs=1e-6)
    assert chance.max() > 2 * chance.min()
    number = seen.tokens[:, 0] * 3 + seen.tokens[:, 1]
    share = number.bincount(minlength=9) / 40_000
    error = (chance * (1 - chance) / 40_000).sqrt()
    assert ((share - chance).abs() < 4.5 * error).all()


def test_a_response_ends_with_its_first_eos_and_is_padded_with_eos():
    model = GRULanguageModel(3, eos_token=2)
    seen = model.generate(200, 5, generator())
    for tokens, mask in zip(seen.tokens.tolist(), seen.mask.tolist(), strict=True):
        length = tokens.index(2) + 1 if 2 in tokens else 5
        assert mask == [True] * length + [False] * (5 - length)
        assert tokens[length:] == [2] * (5 - length)
    assert seen.mask[:, 1:].any() and not seen.mask[:, 1:].all()


def test_what_stands_in_the_padding_changes_no_real_token():
    """CASES K25 and K52, for the language model and the reward model."""
    model = GRULanguageModel(4, eos_token=3, uniform=False)
    judge = RewardModel(model)
    nn.init.normal_(judge.head.weight, generator=generator())
    short = torch.tensor([[1, 0, 3]])
    padded = torch.tensor([[1, 0, 3, 2, 1], [1, 0, 3, 3, 3]])
    mask = torch.tensor([[True, True, True, False, False]] * 2)
    alone = model.log_probs(short)[0]
    torch.testing.assert_close(model.log_probs(padded)[:, :3], alone.expand(2, 3))
    reward = judge(short, torch.ones_like(short, dtype=torch.bool))
    torch.testing.assert_close(judge(padded, mask), reward.expand(2))


def test_a_new_reward_model_finds_all_responses_alike():
    judge = RewardModel(GRULanguageModel(8))
    tokens = torch.randint(8, (5, 6), generator=generator())
    rewards = judge(tokens, torch.ones_like(tokens, dtype=torch.bool))
    assert torch.equal(rewards, torch.zeros(5))


def test_at_first_the_critic_leaves_a_shared_trunk_alone_and_later_does_not():
    """CLAIMS error 15: a value head of zeros protects the trunk for one step only."""
    model = GRULanguageModel(8, uniform=False)
    tokens = torch.randint(8, (16, 6), generator=generator())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    norms = []
    for _ in range(2):
        model.zero_grad()
        (model(tokens)[1] - 1).square().mean().backward()
        norms.append(model.trunk.weight.grad.norm().item())
        optimizer.step()
    assert norms[0] == 0 and norms[1] > 1e-4


def test_a_separate_critic_shares_nothing_with_the_policy():
    model = GRULanguageModel(8, uniform=False, separate_critic=True)
    nn.init.normal_(model.value_head.weight, generator=generator())
    tokens = torch.randint(8, (4, 6), generator=generator())
    model(tokens)[1].sum().backward()
    assert model.trunk.weight.grad is None and model.critic.weight.grad.norm() > 0


def test_a_frozen_copy_stays_as_it_was():
    model = GRULanguageModel(8, uniform=False)
    reference = model.frozen()
    tokens = torch.randint(8, (4, 6), generator=generator())
    before = reference.log_probs(tokens)
    with torch.no_grad():
        model.lm_head.weight.add_(1.0)
    assert torch.equal(reference.log_probs(tokens), before)
    assert not before.requires_grad


def test_one_network_is_flattened_whatever_the_shapes():
    model = GRULanguageModel(4, hidden=3, uniform=False)
    tokens = torch.randint(4, (4, 5), generator=generator())
    before = model.log_probs(tokens)
    flat = FlatParameters(model, stacked=False)
    assert flat.values.shape == (1, sum(p.numel() for p in model.parameters()))
    assert torch.equal(model.log_probs(tokens), before)
    model.log_probs(tokens).sum().backward()
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
    assert flat.clip_gradients(1.0).item() == pytest.approx(norm, rel=1e-5)
    with torch.no_grad():
        flat.values.zero_()
    assert model.lm_head.weight.abs().sum() == 0


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="eos_token must be None or the last"):
        GRULanguageModel(8, eos_token=3)
    with pytest.raises(ValueError, match="vocab_size"):
        GRULanguageModel(0)
    with pytest.raises(ValueError, match="length"):
        GRULanguageModel(8).generate(2, 0, generator())
    with pytest.raises(TypeError, match="mask"):
        RewardModel(GRULanguageModel(8))(torch.zeros(1, 2).long(), torch.ones(1, 2))
