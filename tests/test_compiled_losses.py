"""The compiled pass of a loss is the loss that operations make, or is not taken."""

import functools
import math

import pytest
import torch

from course_lib.kernels import (
    clipped_policy_loss,
    compiled_losses,
    value_loss,
)

LOSSES = (functools.partial(clipped_policy_loss, clip_eps=0.2), value_loss)


def steps(shape=(3, 40), dtype=torch.float64, terms=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn((terms, *shape), generator=generator).to(dtype) * 0.4)


def arguments(loss_fn, terms):
    return terms[:2] if loss_fn is value_loss else terms


def in_operations(monkeypatch):
    monkeypatch.setattr(compiled_losses, "_FEW", 0)


def results(loss_fn, terms, **options):
    x, *constants = arguments(loss_fn, terms)
    x = x.clone().requires_grad_()
    loss, seen = loss_fn(x, *constants, **options)
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    second = torch.zeros_like(x)
    if first.requires_grad:
        (second,) = torch.autograd.grad(
            (first * torch.arange(x.numel()).view_as(x)).sum(), x
        )
    return loss, first, second, seen


@pytest.mark.parametrize("loss_fn", LOSSES, ids=["policy", "value"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 64), (40,), (2, 3, 20), (4, 1)])
def test_loss_slopes_and_numbers_are_those_of_operations(
    loss_fn, masked, dtype, shape, monkeypatch
):
    terms = steps(shape, dtype)
    mask = torch.arange(terms[0].numel()).view(shape) % 3 > 0 if masked else None
    if masked:  # whatever stands there
        terms = [one.masked_fill(~mask, math.nan) for one in terms]
    found = results(loss_fn, terms, mask=mask)
    in_operations(monkeypatch)
    torch.testing.assert_close(
        found, results(loss_fn, terms, mask=mask), equal_nan=True
    )


def test_rows_that_do_not_follow_each_other_in_memory_are_read_where_they_lie():
    terms = [one[:, 5:25] for one in steps()]
    for loss_fn in LOSSES:
        torch.testing.assert_close(
            results(loss_fn, terms)[:2],
            results(loss_fn, [one.contiguous() for one in terms])[:2],
        )


def taken(call, monkeypatch):
    """Whether a compiled pass made the loss."""
    made = []
    original = compiled_losses.compiled_loop

    def watched(name, dtype):
        loop, problem = original(name, dtype)
        return lambda *given: made.append(loop(*given)) or made[-1], problem

    monkeypatch.setattr(compiled_losses, "compiled_loop", watched)
    call()
    return made == [True]


@pytest.mark.parametrize("loss_fn", LOSSES, ids=["policy", "value"])
def test_it_serves_small_finite_means_over_tokens(loss_fn, monkeypatch):
    def call(shape=(2, 8), dtype=torch.float32, change=None, **options):
        terms = arguments(loss_fn, steps(shape, dtype))
        if change is not None:
            terms[0][0, 0] = change
        return taken(lambda: loss_fn(*terms, **options), monkeypatch)

    assert call() and call(dtype=torch.float64)
    assert not call(shape=(2, 2**13))
    assert not call(dtype=torch.bfloat16)
    assert not call(change=math.inf)
    assert not call(reduction="sequence_sum")


@pytest.mark.parametrize("loss_fn", LOSSES, ids=["policy", "value"])
def test_where_numba_does_not_run_and_in_transformations_operations_serve(
    loss_fn, monkeypatch
):
    x, *constants = arguments(loss_fn, steps())

    def loss(x):
        return loss_fn(x, *constants)[0]

    expected = results(loss_fn, [x, *constants])[1]
    torch.testing.assert_close(torch.func.grad(loss)(x), expected)
    monkeypatch.setattr(compiled_losses, "compiled_loop", lambda *_: (None, "none"))
    torch.testing.assert_close(results(loss_fn, [x, *constants])[1], expected)
