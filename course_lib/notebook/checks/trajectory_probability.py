"""Task: how likely is one trajectory under a policy, in an MDP with known rules?"""

from collections.abc import Sequence

import torch
from torch import Tensor

from course_lib.notebook.checks.task import Case, Task


def trajectory_probability(
    start: Tensor, policy: Tensor, transition: Tensor, states: Tensor, actions: Tensor
) -> Tensor:
    """Return p(s_0) times the product of pi(a_t | s_t) P(s_{t+1} | s_t, a_t)."""
    here, reached = states[:-1], states[1:]
    factors = policy[here, actions] * transition[here, actions, reached]  # [T]
    return start[states[0]] * factors.prod()


def _cases(seed: int) -> Sequence[Case]:
    generator = torch.Generator().manual_seed(seed)
    cases = [
        _case(generator, 2, 2, [1], []),  # no step yet: only the start is chance
        _case(generator, 2, 2, [0, 1], [1]),
        _case(generator, 2, 2, [1, 0, 0], [0, 1]),
    ]
    for length in (3, 5):
        states = torch.randint(0, 3, (length + 1,), generator=generator).tolist()
        actions = torch.randint(0, 2, (length,), generator=generator).tolist()
        # Nothing may hide: the walk moves, and it does not end where it began.
        states[:3], states[-1], actions[:2] = [0, 1, 2], 1, [1, 0]
        cases.append(_case(generator, 3, 2, states, actions))
    impossible = _case(generator, 2, 2, [0, 1, 1], [0, 0])
    impossible.arguments["transition"][0, 0] = torch.tensor([1.0, 0.0]).double()
    return [*cases, impossible]


def _case(
    generator: torch.Generator,
    num_states: int,
    num_actions: int,
    states: list[int],
    actions: list[int],
) -> Case:
    arguments = {
        "start": _chances(generator, num_states),
        "policy": _chances(generator, num_states, num_actions),
        "transition": _chances(generator, num_states, num_actions, num_states),
        "states": torch.tensor(states),
        "actions": torch.tensor(actions, dtype=torch.int64),
    }
    return Case(arguments)


def _chances(generator: torch.Generator, *shape: int) -> Tensor:
    """Random distributions over the last axis, none of them even."""
    weights = 0.1 + torch.rand(shape, generator=generator, dtype=torch.float64)
    return weights / weights.sum(-1, keepdim=True)


TASK = Task(
    "trajectory_probability",
    trajectory_probability,
    _cases,
    ("probability",),
    tolerance=1e-6,
    any_float=True,
)


@TASK.right
def by_steps(p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance * pi[s, a] * p[s, a, reached]
    return chance


@TASK.right
def unnamed(p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        here, a = states[t], acts[t]
        chance = chance * pi[here, a] * p[here, a, states[t + 1]]
    return chance


@TASK.right
def by_logs(p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor) -> Tensor:
    s, reached = states[:-1], states[1:]
    logs = pi[s, acts].log() + p[s, acts, reached].log()
    return (p0[states[0]].log() + logs.sum()).exp()


@TASK.wrong("start-left-out", source="p(s_0) forgotten: every start looked certain")
def no_start(p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor) -> Tensor:
    chance = torch.ones_like(p0[states[0]])
    for t in range(len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance * pi[s, a] * p[s, a, reached]
    return chance


@TASK.wrong("policy-left-out", source="actions taken as given, not as chosen")
def no_policy(
    p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor
) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance * p[s, a, reached]
    return chance


@TASK.wrong("rules-left-out", source="right where the environment is deterministic")
def no_rules(p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        here, a = states[t], acts[t]
        chance = chance * pi[here, a]
    return chance


@TASK.wrong("added-up", source="sums of probabilities for sums of logs")
def added_up(p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance + pi[s, a] * p[s, a, reached]
    return chance


@TASK.wrong("last-step-only", source="the product overwritten, not multiplied on")
def last_only(
    p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor
) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = pi[s, a] * p[s, a, reached]
    return chance


@TASK.wrong("policy-one-late", source="π asked in the state that was reached")
def policy_late(
    p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor
) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance * pi[reached, a] * p[s, a, reached]
    return chance


@TASK.wrong("transition-transposed", source="P[s, a, s'] read as P[s', a, s]")
def transposed(
    p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor
) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance * pi[s, a] * p[reached, a, s]
    return chance


@TASK.wrong("last-step-missed", source="T states counted where there are T + 1")
def one_short(
    p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor
) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts) - 1):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance * pi[s, a] * p[s, a, reached]
    return chance


@TASK.wrong("first-step-missed", source="a loop that starts at 1")
def first_missed(
    p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor
) -> Tensor:
    chance = p0[states[0]]
    for t in range(1, len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance * pi[s, a] * p[s, a, reached]
    return chance


@TASK.wrong("log-returned", source="the logarithm of the answer")
def as_log(p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance * pi[s, a] * p[s, a, reached]
    return chance.log()


@TASK.wrong("actions-averaged", source="the chance of the states, whatever was done")
def averaged(p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor) -> Tensor:
    chance = p0[states[0]]
    for t in range(len(acts)):
        here, _ = states[t], acts[t]
        chance = chance * (pi[here] @ p[here])[states[t + 1]]
    return chance


@TASK.wrong("start-at-the-end", source="the last state looked up in p(s_0)")
def from_the_end(
    p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor
) -> Tensor:
    chance = p0[states[-1]]
    for t in range(len(acts)):
        s, a, reached = states[t], acts[t], states[t + 1]
        chance = chance * pi[s, a] * p[s, a, reached]
    return chance


@TASK.wrong("start-at-every-step", source="p(s_0) moved into the loop")
def start_each(
    p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor
) -> Tensor:
    chance = torch.ones_like(p0[0])
    for t in range(len(acts)):
        s, a = states[t], acts[t]
        chance = chance * p0[s] * pi[s, a] * p[s, a, states[t + 1]]
    return chance


@TASK.wrong("no-step-no-start", source="the start multiplied in at t = 0")
def start_needs_step(
    p0: Tensor, pi: Tensor, p: Tensor, states: Tensor, acts: Tensor
) -> Tensor:
    chance = torch.ones_like(p0[0])
    for t in range(len(acts)):
        s, a = states[t], acts[t]
        if t == 0:
            chance = chance * p0[s]
        chance = chance * pi[s, a] * p[s, a, states[t + 1]]
    return chance
