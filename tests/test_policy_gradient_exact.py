"""The exact gradient, Fisher matrix and surrogate, each by another route."""

import pytest
import torch

from course_lib.envs.finite import FiniteMDP, random_walk
from course_lib.exact.mdp import visitation
from course_lib.exact.policy_gradient import (
    fisher_matrix,
    objective,
    performance_difference,
    policy_gradient,
    softmax_policy,
    surrogate,
)

GAMMAS = (0.0, 0.5, 0.9, 1.0)


def bandit() -> FiniteMDP:
    """One state, two actions, paid 10 and 11 (CLAIMS row 7)."""
    transition = torch.zeros(2, 2, 2).double()
    transition[0, :, 1] = 1.0
    rewards = torch.zeros(2, 2, 2).double()
    rewards[0, :, 1] = torch.tensor([10.0, 11.0]).double()
    return FiniteMDP(
        transition,
        rewards,
        terminal=torch.tensor([False, True]),
        start=torch.tensor([1.0, 0.0]),
    )


def random_logits(mdp: FiniteMDP, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(
        mdp.num_states, mdp.num_actions, generator=generator, dtype=torch.float64
    )


def slopes(function, logits, step=1e-6):
    """Central differences of a function of the logits."""
    found = torch.zeros_like(logits)
    for place in range(logits.numel()):
        offset = torch.zeros_like(logits).flatten()
        offset[place] = step
        offset = offset.view_as(logits)
        up, down = function(logits + offset), function(logits - offset)
        found.view(-1)[place] = (up - down) / (2 * step)
    return found


def test_the_bandits_gradient_is_a_quarter():
    mdp = bandit()
    gradient = policy_gradient(mdp, torch.zeros(2, 2), 1.0)
    torch.testing.assert_close(
        gradient[0], torch.tensor([-0.25, 0.25], dtype=torch.float64)
    )


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_gradient_is_that_of_the_objective_by_differences(gamma, seed):
    mdp = random_walk()
    logits = random_logits(mdp, seed)
    by_differences = slopes(
        lambda theta: objective(mdp, softmax_policy(theta), gamma), logits
    )
    torch.testing.assert_close(
        policy_gradient(mdp, logits, gamma), by_differences, atol=1e-8, rtol=1e-5
    )


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_surrogates_gradient_at_the_old_policy_is_the_gradient(gamma):
    mdp = random_walk()
    logits = random_logits(mdp, 2)
    old = softmax_policy(logits)
    by_differences = slopes(
        lambda theta: surrogate(mdp, old, softmax_policy(theta), gamma), logits
    )
    torch.testing.assert_close(
        policy_gradient(mdp, logits, gamma), by_differences, atol=1e-8, rtol=1e-5
    )
    assert abs(surrogate(mdp, old, old, gamma)) < 1e-12


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_performance_difference_is_exact_however_far_the_policies_are(gamma):
    mdp = random_walk()
    old = softmax_policy(random_logits(mdp, 3))
    new = softmax_policy(4 * random_logits(mdp, 4))
    gained = objective(mdp, new, gamma) - objective(mdp, old, gamma)
    assert performance_difference(mdp, old, new, gamma) == pytest.approx(
        gained, abs=1e-10
    )
    if gamma > 0:  # the surrogate leaves the new visits out, and it shows
        assert abs(surrogate(mdp, old, new, gamma) - gained) > 1e-4


def test_the_fisher_matrix_is_the_hessian_of_the_kl_and_the_spread_of_the_score():
    mdp = random_walk()
    logits = random_logits(mdp, 5)
    weights = visitation(mdp, softmax_policy(logits))
    weights = weights / weights.sum()
    matrix = fisher_matrix(logits, weights)

    old = softmax_policy(logits)

    def kl(flat):
        new = flat.view_as(logits).log_softmax(-1)
        return (weights[:, None] * old * (old.log() - new)).sum()

    hessian = torch.autograd.functional.hessian(kl, logits.flatten())
    torch.testing.assert_close(matrix, hessian, atol=1e-10, rtol=1e-8)

    spread = torch.zeros_like(matrix)
    for s in range(mdp.num_states):
        for a in range(mdp.num_actions):
            score = torch.zeros_like(logits)
            score[s] -= old[s]
            score[s, a] += 1.0
            flat = score.flatten()
            spread += weights[s] * old[s, a] * torch.outer(flat, flat)
    torch.testing.assert_close(matrix, spread, atol=1e-12, rtol=1e-10)
