"""Task: one sweep of the Bellman expectation equation."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from course_lib.algorithms import expected_backup
from course_lib.envs.finite import FiniteMDP, random_walk, uniform_policy
from course_lib.notebook.checks.task import Case, Task


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    pair = _two_states()
    walk = random_walk()
    inside = torch.tensor([0.0, 0.3, 0.1, 0.8, 0.2, 0.9, 0.0])
    return [
        _case(pair, uniform_policy(pair), torch.zeros(2), 0.9, _PAIR),
        _case(pair, uniform_policy(pair), torch.tensor([2.0, 0.0]), 0.9, _PAIR),
        _case(walk, uniform_policy(walk), inside, 1.0, "The walk"),
        *(_random_case(generator, gamma) for gamma in (0.5, 0.0, 1.0)),
        # What an array holds for a terminal state means nothing.
        _case(pair, uniform_policy(pair), torch.tensor([2.0, 5.0]), 0.9, _PAIR, True),
    ]


_PAIR = "Two states, A → B, B terminal, the move pays 1"


def _case(
    mdp: FiniteMDP,
    policy: Tensor,
    values: Tensor,
    gamma: float,
    what: str,
    adversarial: bool = False,
) -> Case:
    values = values.double()
    listed = ", ".join(f"{value:.4g}" for value in values.tolist())
    shown = f"{what}; values = [{listed}], gamma = {gamma:g}"
    arguments = {"mdp": mdp, "policy": policy, "values": values, "gamma": gamma}
    return Case(arguments, shown, adversarial)


def _two_states() -> FiniteMDP:
    """A moves to B for certain and is paid 1; B is terminal (CASES L20)."""
    transition = torch.zeros(2, 1, 2, dtype=torch.float64)
    transition[:, :, 1] = 1.0
    rewards = torch.zeros_like(transition)
    rewards[0, 0, 1] = 1.0
    terminal = torch.tensor([False, True])
    start = torch.tensor([1.0, 0.0])
    return FiniteMDP(transition, rewards, terminal, start, ("A", "B"), ("go",))


def _random_case(generator: torch.Generator, gamma: float) -> Case:
    """Four states, the last terminal, three actions, nothing symmetric."""
    shape = (4, 3, 4)
    noise = torch.rand(shape, generator=generator, dtype=torch.float64)
    transition = noise / noise.sum(-1, keepdim=True)
    rewards = torch.randn(shape, generator=generator, dtype=torch.float64)
    terminal = torch.tensor([False, False, False, True])
    mdp = FiniteMDP(transition, rewards, terminal, torch.tensor([1.0, 0, 0, 0]))
    weights = torch.rand(4, 3, generator=generator, dtype=torch.float64)
    policy = weights / weights.sum(-1, keepdim=True)
    values = torch.randn(4, generator=generator, dtype=torch.float64)
    values[3] = 0.0
    what = "A random MDP of 4 states (the last terminal) and 3 actions"
    return _case(mdp, policy, values, gamma, what)


TASK = Task("expected_backup", expected_backup, _cases, results=("values",))


@TASK.right
def by_einsum(mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float) -> Tensor:
    ahead = torch.where(mdp.terminal, 0.0, values)
    outcomes = mdp.rewards + gamma * ahead
    return torch.einsum("sa,sat,sat->s", policy, mdp.transition, outcomes)


@TASK.right
def by_loops(mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float) -> Tensor:
    new_values = torch.zeros_like(values)
    for s in range(mdp.num_states):
        for a in range(mdp.num_actions):
            for t in range(mdp.num_states):
                ahead = 0.0 if mdp.terminal[t] else values[t]
                outcome = mdp.rewards[s, a, t] + gamma * ahead
                new_values[s] += policy[s, a] * mdp.transition[s, a, t] * outcome
    return new_values


def _backup(
    mdp: FiniteMDP,
    policy: Tensor,
    outcomes: Tensor,
) -> Tensor:
    return (policy * (mdp.transition * outcomes).sum(-1)).sum(-1)


def _ahead(mdp: FiniteMDP, values: Tensor) -> Tensor:
    return torch.where(mdp.terminal, 0.0, values)


@TASK.right
def in_one_line(mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float) -> Tensor:
    return _backup(mdp, policy, mdp.rewards + gamma * _ahead(mdp, values))


@TASK.right
def in_two_lines(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    outcomes = mdp.rewards + gamma * _ahead(mdp, values)
    return _backup(mdp, policy, outcomes)


@TASK.wrong("value-of-the-state-left", source="V[s] for V[s'] inside the sum over s'")
def value_of_the_state_left(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    return _backup(mdp, policy, mdp.rewards + gamma * values[:, None, None])


@TASK.wrong("terminal-ahead-counted", source="the result zeroed, not what it looks at")
def terminal_ahead_counted(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    outcomes = mdp.rewards + gamma * values
    return torch.where(mdp.terminal, 0.0, _backup(mdp, policy, outcomes))


@TASK.wrong("terminal-has-a-value", source="aimacode/aima-python PR 1337; CASES L20")
def terminal_has_a_value(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    return _backup(mdp, policy, mdp.rewards + gamma * values)


@TASK.wrong("reward-of-the-state-reached", source="LxMLS/lxmls-toolkit PR 172")
def reward_of_the_state_reached(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    of_a_state = (policy[..., None] * mdp.transition * mdp.rewards).sum((1, 2))  # [S]
    return _backup(mdp, policy, of_a_state + gamma * _ahead(mdp, values))


@TASK.wrong("reward-left-out", source="yrlu/irl-imitation #3")
def reward_left_out(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    return _backup(mdp, policy, gamma * _ahead(mdp, values).expand_as(mdp.rewards))


@TASK.wrong("reward-discounted", source="seen in coursework: γ outside the bracket")
def reward_discounted(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    return _backup(mdp, policy, gamma * (mdp.rewards + _ahead(mdp, values)))


@TASK.wrong("discount-left-out", source="seen in coursework: γ = 1 hides it")
def discount_left_out(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    return _backup(mdp, policy, mdp.rewards + _ahead(mdp, values))


@TASK.wrong("best-action", source="Bellman's optimality equation for the other one")
def best_action(mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float) -> Tensor:
    outcomes = mdp.rewards + gamma * _ahead(mdp, values)
    return (mdp.transition * outcomes).sum(-1).amax(-1)


@TASK.wrong("policy-ignored", source="the walk's policy is uniform, so it hides there")
def policy_ignored(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    outcomes = mdp.rewards + gamma * _ahead(mdp, values)
    return (mdp.transition * outcomes).sum(-1).mean(-1)


@TASK.wrong("actions-summed", source="a mean over actions written as a sum")
def actions_summed(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    outcomes = mdp.rewards + gamma * _ahead(mdp, values)
    return (mdp.transition * outcomes).sum(-1).sum(-1)


@TASK.wrong("transition-transposed", source="P[s, a, s'] read as P[s', a, s]")
def transition_transposed(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    outcomes = mdp.rewards + gamma * _ahead(mdp, values)
    return torch.einsum("sa,tas,sat->s", policy, mdp.transition, outcomes)


@TASK.wrong("action-values", source="the sum over actions left out")
def action_values(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    outcomes = mdp.rewards + gamma * _ahead(mdp, values)
    return (mdp.transition * outcomes).sum(-1)


@TASK.wrong("new-values-at-once", source="the in-place sweep, half old and half new")
def new_values_at_once(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    values = values.clone()
    for s in range(mdp.num_states):
        values[s] = expected_backup(mdp, policy, values, gamma)[s]
    return values


@TASK.wrong(
    "old-value-added", source="TD(0)'s update with the bracket's last term lost"
)
def old_value_added(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    return values + expected_backup(mdp, policy, values, gamma)


@TASK.variant("transition-transposed")
def transposed_and_zeroed(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    backed_up = transition_transposed(mdp, policy, values, gamma)
    return torch.where(mdp.terminal, 0.0, backed_up)


@TASK.wrong("rewards-summed", source="the reward outside the sum weighted with P")
def rewards_summed(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    outcomes = mdp.rewards.sum(-1, keepdim=True) + gamma * _ahead(mdp, values)
    return _backup(mdp, policy, outcomes)


@TASK.variant("rewards-summed")
def rewards_averaged(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    outcomes = mdp.rewards.mean(-1, keepdim=True) + gamma * _ahead(mdp, values)
    return _backup(mdp, policy, outcomes)


@TASK.wrong("last-reward-skipped", source="if terminal[next]: continue")
def last_reward_skipped(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    outcomes = torch.where(mdp.terminal, 0.0, mdp.rewards + gamma * values)
    return _backup(mdp, policy, outcomes)


@TASK.wrong("likeliest-state", source="argmax for the mean over next states")
def likeliest_state(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    mdp = replace(mdp, transition=_likeliest(mdp.transition))
    outcomes = mdp.rewards + gamma * _ahead(mdp, values)
    return _backup(mdp, policy, outcomes)


@TASK.wrong("likeliest-action", source="argmax of the policy for its mean")
def likeliest_action(
    mdp: FiniteMDP, policy: Tensor, values: Tensor, gamma: float
) -> Tensor:
    policy = _likeliest(policy)
    outcomes = mdp.rewards + gamma * _ahead(mdp, values)
    return _backup(mdp, policy, outcomes)


def _likeliest(probabilities: Tensor) -> Tensor:
    """All probability on the likeliest outcome, the first of equal ones."""
    return one_hot(probabilities.argmax(-1), probabilities.shape[-1]).double()
