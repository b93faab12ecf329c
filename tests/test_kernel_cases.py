"""What the benchmarks run beside our kernels computes the same, small enough to see."""

import pytest
import torch

from benchmarks import kernel_cases_gae as gae_cases
from benchmarks import kernel_cases_log_probs as log_prob_cases
from benchmarks import kernel_cases_losses as loss_cases
from benchmarks.timing import OURS, compare, extra_memory
from course_lib.kernels import gae, token_log_probs


def test_every_gae_competitor_that_is_here_computes_our_advantages():
    runs = gae_cases.competitors((3, 40))
    assert {OURS, gae_cases.BOUND, gae_cases.PLAIN} <= runs.keys()


def test_the_plain_loop_is_gae():
    given = gae_cases.make_rollout((3, 20))
    expected = gae(
        given.rewards, given.values, given.next_values, terminated=given.terminated,
        gamma=gae_cases.GAMMA, lam=gae_cases.LAM,
    )  # fmt: skip
    found = gae_cases.plain_loop(
        given.rewards, given.values, given.last, given.terminated
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_competitor_that_computes_something_else_is_refused():
    runs = {OURS: lambda: torch.ones(3), "other": lambda: torch.zeros(3)}
    with pytest.raises(ValueError, match="other computes something else"):
        compare(runs)


@pytest.mark.parametrize("name", [log_prob_cases.FORWARD, log_prob_cases.BOTH])
def test_the_peers_of_token_log_probs_agree_forward_and_back(name):
    runs = log_prob_cases.competitors(name, (3, 5, 40))
    assert {log_prob_cases.GATHER, log_prob_cases.ROWS} <= runs.keys()
    compare(runs)


@pytest.mark.parametrize(
    ("runs", "peer"),
    [
        (loss_cases.whitenings((5, 40)), loss_cases.BOOLEAN),
        (loss_cases.group_advantages(loss_cases.RLOO, 7, 4), loss_cases.LOOP),
        (loss_cases.group_advantages(loss_cases.GRPO, 7, 4), loss_cases.LOOP),
        (loss_cases.losses(loss_cases.POLICY, (40,)), loss_cases.PLAIN),
        (loss_cases.losses(loss_cases.POLICY, (5, 40)), loss_cases.PLAIN),
        (loss_cases.losses(loss_cases.VALUE, (40,)), loss_cases.PLAIN),
        (loss_cases.losses(loss_cases.VALUE, (5, 40)), loss_cases.PLAIN),
    ],
)  # fmt: skip
def test_the_peers_of_whitening_groups_and_losses_agree(runs, peer):
    """Making the runs has compared them; here it is seen that there was something."""
    found = [runs[name]() for name in (OURS, peer)]
    assert all(x.shape == found[0].shape and x.abs().sum() > 0 for x in found)


def test_a_group_a_row_gives_the_same_advantages_in_the_order_of_the_rows():
    runs = loss_cases.group_advantages(loss_cases.GRPO, 6, 4)
    by_row = runs[loss_cases.BY_ROW]()
    assert by_row.shape == (6, 4)
    torch.testing.assert_close(
        by_row.flatten().sort().values, runs[OURS]().sort().values
    )


def test_log_probs_take_a_cacheful_forward_and_one_gradient_back():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((2, 64, 50257), generator=generator)
    tokens = torch.randint(50257, (2, 64), generator=generator)
    size = logits.numel() * 4
    cacheful = 2 * 2**20  # a chunk, and what its softmax works with
    assert extra_memory(lambda: token_log_probs(logits, tokens)) < cacheful
    # The shift that everyone makes is no copy.
    view, chosen = logits[:, :-1], tokens[:, 1:]
    assert extra_memory(lambda: token_log_probs(view, chosen)) < cacheful
    plain = log_prob_cases.gathered_log_probs
    assert extra_memory(lambda: plain(logits, tokens)) >= size
    logits.requires_grad_()

    def both():
        return torch.autograd.grad(token_log_probs(logits, tokens).sum(), logits)

    assert size <= extra_memory(both) < size + cacheful


@pytest.mark.parametrize("module", [gae_cases, log_prob_cases, loss_cases])
def test_every_case_has_a_name_and_a_shape_of_its_own(module):
    cases = module.cases()
    assert len({(case.name, case.shape) for case in cases}) == len(cases) > 0
    assert "torch" in module.PACKAGES
