"""The gradient that algorithms estimate, and its relatives, exactly: tabular softmax.

A tabular softmax policy has one logit for each state and action, theta [S, A], and
pi(a | s) = softmax(theta[s])[a]. What REINFORCE, actor-critic, TRPO and PPO estimate
from samples is a sum over states and actions here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.envs.finite import FiniteMDP
from course_lib.exact.mdp import advantages, state_values, visitation


def softmax_policy(logits: Tensor) -> Tensor:
    """pi(a | s) of logits [S, A]: [S, A] float64."""
    return logits.double().softmax(-1)


def objective(mdp: FiniteMDP, policy: Tensor, gamma: float) -> float:
    """J = E[G_0], the value of the start, in the reward's unit (eq-objective).

    Args and raises: as `state_values`.
    """
    return float(mdp.start @ state_values(mdp, policy, gamma))


def policy_gradient(mdp: FiniteMDP, logits: Tensor, gamma: float) -> Tensor:
    """grad J with respect to the logits, [S, A] float64 (eq-policy-gradient):

        dJ / dtheta[s, a] = d(s) pi(a | s) A(s, a),

    where d(s) = E[sum_t gamma^t 1(s_t = s)] is the discounted number of visits.

    Args:
        mdp: the process.
        logits: [S, A].
        gamma: the discount, in [0, 1].

    Raises:
        TypeError, ValueError: as `state_values`.

    Source: Sutton, McAllester, Singh and Mansour (2000), theorem 1.
    """
    policy = softmax_policy(logits)
    visits = visitation(mdp, policy, gamma=gamma)  # [S]
    return visits[:, None] * policy * advantages(mdp, policy, gamma)


def fisher_matrix(logits: Tensor, weights: Tensor) -> Tensor:
    """F = sum_s w(s) E_a[ g g^T ], g = grad log pi(a | s) (eq-fisher).

    For a softmax the block of state s is w(s) (diag(pi_s) - pi_s pi_s^T), and blocks of
    two states are 0: a logit touches its own state alone. F is also the Hessian of
    sum_s w(s) KL(pi_old(. | s), pi(. | s)) at pi = pi_old.

    Args:
        logits: [S, A].
        weights: [S], how much each state counts, for example its share of the visits.

    Returns:
        Tensor: [S A, S A] float64, rows and columns in the order of logits.flatten().

    Source: Kakade (2001), equation 3.
    """
    policy = softmax_policy(logits)
    outer = policy[:, :, None] * policy[:, None, :]  # [S, A, A]
    blocks = weights.double()[:, None, None] * (torch.diag_embed(policy) - outer)
    matrix: Tensor = torch.block_diag(*blocks)
    return matrix


def surrogate(
    mdp: FiniteMDP, old_policy: Tensor, policy: Tensor, gamma: float
) -> float:
    """What a new policy would gain if it did not change where one goes (eq-surrogate).

        L = sum_s d_old(s) sum_a pi(a | s) A_old(s, a)

    Its gradient at pi = pi_old is grad J, and its value there is 0.

    Args:
        mdp: the process.
        old_policy, policy: [S, A] each.
        gamma: the discount, in [0, 1].

    Source: Kakade and Langford (2002), equation 4.3.
    """
    visits = visitation(mdp, old_policy, gamma=gamma)
    gains = advantages(mdp, old_policy, gamma)
    return float((visits[:, None] * policy.double() * gains).sum())


def performance_difference(
    mdp: FiniteMDP, old_policy: Tensor, policy: Tensor, gamma: float
) -> float:
    """J(new) - J(old) by the old advantages where the *new* policy goes.

        J(pi) - J(old) = sum_s d_pi(s) sum_a pi(a | s) A_old(s, a)

    The surrogate has d_old in the place of d_pi, and that is all it leaves out.

    Args: as `surrogate`.

    Source: Kakade and Langford (2002), lemma 6.1.
    """
    visits = visitation(mdp, policy, gamma=gamma)
    gains = advantages(mdp, old_policy, gamma)
    return float((visits[:, None] * policy.double() * gains).sum())
