"""The transformer: who sees whom, and what padding and the cache may not change."""

import itertools

import pytest
import torch

from course_lib.models import Transformer, TransformerConfig, num_parameters

SMALL = TransformerConfig(context=16, width=32, num_layers=2, num_heads=4)
TOKENS = torch.tensor([[1, 4, 2, 0, 3]])
REAL = torch.ones_like(TOKENS, dtype=torch.bool)


def trunk(**options):
    return Transformer(5, SMALL, seed=1, **options)


def test_a_token_sees_itself_and_what_came_before_and_nothing_else():
    """By the gradient of each state with respect to what is embedded everywhere."""
    model = trunk()
    read = model.embedding(TOKENS).detach().requires_grad_()
    model.embedding.forward = lambda tokens: read
    states = model(TOKENS, REAL)
    for place in range(TOKENS.shape[1]):
        (slopes,) = torch.autograd.grad(states[0, place, 0], read, retain_graph=True)
        reached = slopes.abs().sum(-1)[0] > 0
        assert reached.tolist() == [at <= place for at in range(TOKENS.shape[1])]


@pytest.mark.parametrize(("left", "right"), [(2, 0), (0, 3), (4, 1)])
def test_padding_on_either_side_changes_no_real_token(left, right):
    """CASES K25: OpenRLHF #217, huggingface/trl #469; whatever the padding is."""
    model = trunk()
    before, after = torch.randint(5, (1, left)), torch.randint(5, (1, right))
    tokens = torch.cat((before, TOKENS, after), 1)
    mask = torch.zeros_like(tokens, dtype=torch.bool)
    mask[:, left : left + TOKENS.shape[1]] = True
    padded = model(tokens, mask)
    assert padded.isfinite().all()
    torch.testing.assert_close(padded[mask][None], model(TOKENS, REAL))


@pytest.mark.parametrize("filler", [-100, -1, 6, 10**6])
def test_padding_need_not_be_a_token(filler):
    """-100 is what other libraries put where nothing is to be learnt."""
    model = trunk()
    tokens = torch.tensor([[filler, filler, 1, 2, filler]])
    mask = torch.tensor([[False, False, True, True, False]])
    states = model(tokens, mask)
    alone = model(torch.tensor([[1, 2]]), REAL[:, :2])
    torch.testing.assert_close(states[:, 2:4], alone)


def test_padding_passes_no_gradient():
    model = trunk()
    tokens = torch.cat((torch.tensor([[4, 4]]), torch.tensor([[1, 2]])), 1)
    mask = torch.tensor([[False, False, True, True]])
    states = model(tokens, mask)
    states[mask].sum().backward()
    assert not model.embedding.weight.grad[4].any()
    assert model.embedding.weight.grad.isfinite().all()


def test_a_row_does_not_depend_on_its_neighbours():
    model = trunk()
    tokens = torch.tensor([[1, 2, 3], [0, 0, 4]])
    mask = torch.tensor([[True, True, True], [False, False, True]])
    torch.testing.assert_close(
        model(tokens, mask)[1:, 2:], model(tokens[1:, 2:], mask[1:, 2:])
    )


@pytest.mark.parametrize("pieces", [(5,), (1,) * 5, (3, 1, 1), (2, 3)])
def test_reading_through_the_cache_is_reading_at_once(pieces):
    model = trunk()
    tokens = torch.cat((torch.tensor([[2, 2, 4, 1, 0]]), TOKENS))
    mask = torch.tensor([[False, False, True, True, True], [True] * 5])
    at_once = model(tokens, mask)
    cache = model.new_cache(2, 5)
    ends = itertools.pairwise((0, *itertools.accumulate(pieces)))
    states = torch.cat(
        [model(tokens[:, a:b], mask[:, a:b], cache=cache) for a, b in ends], 1
    )
    torch.testing.assert_close(
        model.logits(states)[mask], model.logits(at_once)[mask], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("layers", [1, 3])
def test_the_number_of_parameters_is_that_of_the_formula(layers):
    config = TransformerConfig(context=7, width=24, num_layers=layers, num_heads=3)
    counted = sum(one.numel() for one in Transformer(11, config).parameters())
    assert counted == num_parameters(11, config)


def test_its_weights_are_a_function_of_the_seed_alone():
    torch.manual_seed(3)
    first = Transformer(5, SMALL, seed=7).state_dict()
    torch.manual_seed(4)
    again, other = Transformer(5, SMALL, seed=7), Transformer(5, SMALL, seed=8)
    assert all(torch.equal(first[name], x) for name, x in again.state_dict().items())
    assert not torch.equal(first["lm_head.weight"], other.lm_head.weight)


def test_a_head_of_zeros_makes_every_token_equally_likely():
    model = trunk(uniform=True)
    assert not model.logits(model(TOKENS, REAL)).any()


def test_refusals_name_what_does_not_fit():
    model = trunk()
    with pytest.raises(ValueError, match="context of 16, got 17"):
        model(torch.zeros(1, 17).long(), torch.ones(1, 17).bool())
    with pytest.raises(TypeError, match="mask"):
        model(TOKENS, REAL.long())
    with pytest.raises(ValueError, match="2 places of the cache, got 5"):
        model(TOKENS, REAL, cache=model.new_cache(1, 2))
    with pytest.raises(ValueError, match="num_heads must divide width=32, got 5"):
        TransformerConfig(width=32, num_heads=5)
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        TransformerConfig(width=0)
