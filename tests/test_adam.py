"""Our Adam is torch's, for networks that lie in the rows of one tensor."""

import pytest
import torch
from torch import nn

from course_lib.models import Adam, FlatParameters


class Rows(nn.Module):
    """Two networks with a matrix and a vector each."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.matrix = nn.Parameter(torch.randn(2, 3, 4, generator=generator))
        self.vector = nn.Parameter(torch.randn(2, 1, 4, generator=generator))


def test_thirty_steps_are_those_of_torchs_adam_parameter_by_parameter():
    ours, theirs = Rows(), Rows()
    flat = FlatParameters(ours)
    adam = Adam(flat, 0.01, betas=(0.8, 0.95), eps=1e-5)
    peer = torch.optim.Adam(theirs.parameters(), 0.01, betas=(0.8, 0.95), eps=1e-5)
    generator = torch.Generator().manual_seed(4)
    for step in range(30):
        # Gradients of several sizes, one of them below eps, and a new rate midway.
        size = 10.0 ** -(step % 7)
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            gradient = size * torch.randn(mine.shape, generator=generator)
            mine.grad.copy_(gradient)
            other.grad = gradient.clone()
        if step == 15:
            adam.learning_rate = peer.param_groups[0]["lr"] = 0.003
        adam.step()
        peer.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_a_first_step_has_the_length_of_the_learning_rate_whatever_the_gradient():
    rows = Rows()
    flat = FlatParameters(rows)
    before = flat.values.detach().clone()
    rows.matrix.grad.fill_(1e-2)
    rows.vector.grad.fill_(-100.0)
    Adam(flat, 0.5, eps=0.0).step()
    moved = (flat.values.detach() - before).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.5), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"betas": (1.0, 0.9)}, "betas"),
        ({"betas": (0.9, -0.1)}, "betas"),
        ({"eps": -1e-8}, "eps"),
        ({"learning_rate": float("nan")}, "learning_rate"),
    ],
)
def test_numbers_that_are_none_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Adam(FlatParameters(Rows()), **({"learning_rate": 0.1} | options))
