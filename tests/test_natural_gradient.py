"""Fisher products, conjugate gradients and the line search, each against a whole one.

The oracles form the matrices that the algorithm never forms.
"""

import pytest
import torch
from torch.func import functional_call

from course_lib.algorithms.natural_gradient import (
    conjugate_gradient,
    fisher_product,
    flat_gradient,
    line_search,
    read_flat,
    write_flat,
)
from course_lib.exact.policy_gradient import fisher_matrix
from course_lib.models import ActorCritic


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def agent_in_float64(observation_size, seeds=(0,), hidden=(), **kind):
    agent = ActorCritic(
        observation_size, seeds=seeds, hidden=hidden, policy_gain=1.0, **kind
    ).double()
    with torch.no_grad():
        for place, one in enumerate(agent.parameters()):
            one.add_(torch.randn(one.shape, generator=generator(place)) / 2)
    return agent


def mean_kl(agent, old, seen):
    return old.kl(agent.policy(seen)).mean(-1)  # [S]


class Divergence(torch.nn.Module):
    """KL(old, agent), summed over agents, as a module."""

    def __init__(self, agent, old, seen):
        super().__init__()
        self.agent, self.old, self.seen = agent, old, seen

    def forward(self):
        return mean_kl(self.agent, self.old, self.seen).sum()


def columns(product, size, seeds=1):
    """The matrices [S, P, P] that a product stands for."""
    unit = torch.eye(size, dtype=torch.float64)
    return torch.stack([product(row.expand(seeds, -1)) for row in unit], -1)


def test_fisher_products_are_those_of_the_exact_matrix_of_a_tabular_softmax():
    states = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, 3])
    seen = torch.eye(4, dtype=torch.float64)[states].unsqueeze(0)
    agent = agent_in_float64(4, num_actions=3)
    with torch.no_grad():
        old = agent.policy(seen)
        logits = agent.policy(torch.eye(4, dtype=torch.float64).unsqueeze(0)).logits
    kl = mean_kl(agent, old, seen).sum()
    # The weight alone: one logit for each state and action.
    product = fisher_product(kl, [agent.policy_net[0].weight], damping=0.0)
    shares = torch.bincount(states).double() / len(states)
    torch.testing.assert_close(
        columns(product, 12)[0], fisher_matrix(logits[0], shares)
    )


@pytest.mark.parametrize("kind", [{"num_actions": 3}, {"action_size": 2}])
def test_fisher_products_are_those_of_the_hessian_of_the_kl_of_any_network(kind):
    seen = torch.randn(2, 20, 3, generator=generator(7)).double()
    agent = agent_in_float64(3, seeds=(0, 1), hidden=(4,), **kind)
    with torch.no_grad():
        old = agent.policy(seen)
    parameters = agent.policy_parameters()
    product = fisher_product(mean_kl(agent, old, seen).sum(), parameters, damping=0.3)
    names = {id(one): f"agent.{name}" for name, one in agent.named_parameters()}

    def kl_of_all(flat):
        pieces = flat.split([one[0].numel() for one in parameters], dim=1)
        given = {
            names[id(one)]: piece.reshape(one.shape)
            for one, piece in zip(parameters, pieces, strict=True)
        }
        return functional_call(Divergence(agent, old, seen), given)

    flat = read_flat(parameters).detach()
    size = flat.shape[1]
    hessian = torch.autograd.functional.hessian(kl_of_all, flat)  # [2, P, 2, P]
    assert hessian[0, :, 1].abs().max() < 1e-15  # two agents have nothing in common
    found = columns(product, size, seeds=2)
    for seed in range(2):
        right = hessian[seed, :, seed] + 0.3 * torch.eye(size).double()
        torch.testing.assert_close(found[seed], right, atol=1e-12, rtol=1e-9)


def positive(seed, size=6, seeds=3):
    half = torch.randn(seeds, size, size, generator=generator(seed)).double()
    return half @ half.mT + 0.1 * torch.eye(size).double()


def times(matrices):
    return lambda vector: (matrices @ vector.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize("seed", range(3))
def test_conjugate_gradients_solve_in_as_many_steps_as_there_are_unknowns(seed):
    matrices = positive(seed)
    b = torch.randn(3, 6, generator=generator(seed + 50)).double()
    found = conjugate_gradient(times(matrices), b, iterations=8, tolerance=1e-24)
    torch.testing.assert_close(
        found, torch.linalg.solve(matrices, b), atol=1e-8, rtol=1e-6
    )


def test_conjugate_gradients_take_no_more_products_than_they_may():
    counted = []

    def product(vector):
        counted.append(1)
        return times(positive(0))(vector)

    b = torch.ones(3, 6).double()
    short = conjugate_gradient(product, b, iterations=2)
    assert len(counted) == 2
    # Each step lowers the error in the norm of A.
    right = torch.linalg.solve(positive(0), b)

    def error(x):
        return ((right - x) * times(positive(0))(right - x)).sum(-1)

    assert (error(short) < error(torch.zeros_like(b))).all()
    assert (error(conjugate_gradient(product, b, iterations=3)) < error(short)).all()


def test_a_zero_right_hand_side_costs_nothing_and_gives_zero():
    def product(vector):
        raise AssertionError("no product is needed")

    assert not conjugate_gradient(product, torch.zeros(2, 4)).any()


def test_a_singular_matrix_is_solved_where_it_can_be_and_never_gives_nan():
    flat = torch.diag_embed(torch.tensor([[2.0, 1.0, 0.0]])).double()
    b = torch.tensor([[4.0, 3.0, 0.0]]).double()
    found = conjugate_gradient(times(flat), b)
    torch.testing.assert_close(found, torch.tensor([[2.0, 3.0, 0.0]]).double())
    beyond = conjugate_gradient(times(flat), torch.tensor([[4.0, 3.0, 1.0]]).double())
    assert beyond.isfinite().all()
    nothing = conjugate_gradient(times(flat * 0), b)
    assert not nothing.any()


def test_a_row_that_has_converged_stays_while_the_others_go_on():
    matrices = positive(4, seeds=2)
    matrices[0] = torch.eye(6)  # solved by its first step
    b = torch.randn(2, 6, generator=generator(3)).double()
    b = torch.cat((b, torch.zeros(1, 6).double()))  # and one before it
    matrices = torch.cat((matrices, positive(5, seeds=1)))
    found = conjugate_gradient(times(matrices), b, iterations=8, tolerance=1e-24)
    torch.testing.assert_close(found[0], b[0])
    torch.testing.assert_close(found[1], torch.linalg.solve(matrices[1], b[1]))
    assert not found[2].any()
    for row in range(2):  # the same as alone
        alone = conjugate_gradient(
            times(matrices[row : row + 1]), b[row : row + 1], tolerance=1e-24
        )
        torch.testing.assert_close(found[row], alone[0], atol=1e-10, rtol=1e-8)


def parabola(x):
    """CASES K55: f(x) = -(x - 1)^2, KL = x^2 / 2; gains are counted from f(0)."""
    x = x.squeeze(-1)
    return 1 - (x - 1).square(), x.square() / 2


def test_the_line_search_takes_the_first_step_that_gains_and_stays_close():
    """Steps 4 (worse), 2 (no gain), 1 (too far), .5."""
    start, step = torch.zeros(1, 1), torch.full((1, 1), 4.0)
    accepted, fraction = line_search(parabola, start, step, max_kl=0.2)
    assert accepted.item() == 0.5 and fraction.item() == 0.125
    accepted, fraction = line_search(parabola, start, step, max_kl=0.5)
    assert accepted.item() == 1.0  # on the border is within


def test_a_line_search_that_finds_nothing_leaves_everything_as_it_was():
    start, step = torch.zeros(1, 1), torch.full((1, 1), 4.0)
    accepted, fraction = line_search(parabola, start, step, max_kl=0.2, backtracks=2)
    assert accepted.item() == 0.0 and fraction.item() == 0.0
    with_nan = line_search(
        lambda x: (x[:, 0] * torch.nan, x[:, 0]), start, step, max_kl=9.0
    )
    assert with_nan[0].item() == 0.0


def test_each_row_of_a_line_search_finds_its_own_step():
    start = torch.zeros(3, 1)
    step = torch.tensor([[4.0], [0.25], [-1.0]])
    accepted, fraction = line_search(parabola, start, step, max_kl=0.2)
    assert accepted.flatten().tolist() == [0.5, 0.25, 0.0]
    assert fraction.tolist() == [0.125, 1.0, 0.0]


def test_parameters_are_read_and_written_in_one_order():
    agent = ActorCritic(4, action_size=2, seeds=(0, 1), hidden=(3,))
    parameters = agent.policy_parameters()
    flat = read_flat(parameters).detach()
    assert flat.shape == (2, 4 * 3 + 3 + 3 * 2 + 2 + 2)
    assert torch.equal(flat[1, :12], parameters[0][1].flatten())
    new = torch.arange(flat.numel()).view(flat.shape).float()
    write_flat(parameters, new)
    assert torch.equal(read_flat(parameters).detach(), new)
    assert torch.equal(parameters[-1][0, 0], new[0, -2:])  # log_std


def test_a_flat_gradient_is_autograds():
    agent = ActorCritic(4, num_actions=2, seeds=(0, 1), hidden=(3,))
    seen = torch.randn(2, 5, 4, generator=generator())
    loss = agent.values(seen).square().sum()
    parameters = list(agent.value_net.parameters())
    found = flat_gradient(loss, parameters, keep_graph=True)
    loss.backward()
    right = torch.cat([one.grad.reshape(2, -1) for one in parameters], 1)
    torch.testing.assert_close(found, right)
