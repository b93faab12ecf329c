"""Distributions over a handful of tokens, few and many of them: one answer."""

import math

import pytest
import torch

from course_lib.kernels import entropy, token_log_probs
from course_lib.kernels.chunked_softmax import _FEW_NUMBERS

# Below and above the size at which the tensor is turned round.
SIZES = [(3, 2), (1, 64, 2), (_FEW_NUMBERS, 2), (40, 15)]


def made(shape):
    generator = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(shape, generator=generator)
    tokens = torch.randint(shape[-1], shape[:-1], generator=generator)
    return logits, tokens


def test_the_sizes_lie_on_both_sides_of_the_border():
    counts = [math.prod(shape) for shape in SIZES]
    assert min(counts) < _FEW_NUMBERS <= max(counts)


@pytest.mark.parametrize("shape", SIZES)
def test_log_probs_and_entropies_are_those_of_a_softmax_in_float64(shape):
    logits, tokens = made(shape)
    logits.requires_grad_()
    exact = logits.detach().double().requires_grad_()
    p = exact.exp() / exact.exp().sum(-1, keepdim=True)
    chosen = p.gather(-1, tokens[..., None])[..., 0].log()
    spread = -(p * p.log()).sum(-1)
    torch.testing.assert_close(
        token_log_probs(logits, tokens), chosen.float(), rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(entropy(logits), spread.float(), rtol=1e-5, atol=1e-6)
    weights = torch.linspace(-1, 2, chosen.numel()).view(chosen.shape)
    loss = (weights * (token_log_probs(logits, tokens) - 0.3 * entropy(logits))).sum()
    loss.backward()
    (weights * (chosen - 0.3 * spread)).sum().backward()
    torch.testing.assert_close(logits.grad, exact.grad.float(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape", SIZES)
def test_a_row_of_nan_spoils_its_own_slot_and_takes_no_gradient(shape):
    logits, tokens = made(shape)
    rows = logits.view(-1, shape[-1])
    rows[1] = torch.nan
    logits.requires_grad_()
    log_probs = token_log_probs(logits, tokens)
    assert log_probs.isnan().view(-1).nonzero().flatten().tolist() == [1]
    log_probs.nansum().backward()
    gradient = logits.grad.view(-1, shape[-1])
    assert gradient.isfinite().all() and (gradient[1] == 0).all()
