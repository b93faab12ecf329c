"""Markov decision processes small enough to write down whole, and episodes of them."""

from __future__ import annotations

import string
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_like,
    require_positive_int,
    require_tensor,
)

_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """S, A, P and r of a Markov decision process, checked, in float64.

    Rewards belong to the move, r(s, a, s'), the most general form: where the coin is
    the environment's, a walk pays for *entering* its right end, which no r(s, a) can
    say. A terminal state keeps value 0 by construction: whatever its rows hold is
    replaced by a self-loop with reward 0.

    Raises:
        TypeError: a field is no tensor, or `terminal` is not boolean.
        ValueError: shapes that do not fit, rows that are no distribution, a reward
            that is not finite, a start in a terminal state, names that do not fit.

    Source: Sutton and Barto (2018), equations 3.2 to 3.6.
    """

    transition: Tensor
    """P(s' | s, a), [S, A, S]; each row a distribution."""
    rewards: Tensor
    """r(s, a, s'), [S, A, S], in units of reward."""
    terminal: Tensor
    """[S] bool, states in which an episode is over."""
    start: Tensor
    """p(s_0), [S], a distribution over states that are not terminal."""
    state_names: tuple[str, ...] = ()
    """One name for each state; empty means "0", "1", ..."""
    action_names: tuple[str, ...] = ()
    """One name for each action; empty means "0", "1", ..."""

    def __post_init__(self) -> None:
        transition = require_tensor("transition", self.transition, min_dims=3).double()
        states, actions = transition.shape[:2]
        require_like("transition", transition, (states, actions, states), transition)
        require_like("rewards", self.rewards, transition.shape, transition)
        require_like("terminal", self.terminal, (states,), transition)
        require_like("start", self.start, (states,), transition)
        if self.terminal.dtype != torch.bool:
            raise TypeError(f"terminal must be bool, got {self.terminal.dtype}")
        over = self.terminal[:, None, None]
        stay = torch.eye(states, dtype=torch.float64)[:, None, :]  # [S, 1, S]
        transition = torch.where(over, stay, transition)
        rewards = torch.where(over, 0.0, self.rewards.double())
        start = self.start.double()
        _require_distribution("transition", transition)
        _require_distribution("start", start)
        if not rewards.isfinite().all():
            raise ValueError("rewards must be finite")
        if start[self.terminal].any():
            raise ValueError("start must give terminal states no probability")
        fields: dict[str, object] = {
            "transition": transition,
            "rewards": rewards,
            "start": start,
            "state_names": _names("state_names", self.state_names, states),
            "action_names": _names("action_names", self.action_names, actions),
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def num_states(self) -> int:
        """S, terminal states included."""
        return self.transition.shape[0]

    @property
    def num_actions(self) -> int:
        """A, the same in every state."""
        return self.transition.shape[1]


@dataclass(frozen=True, eq=False)
class Episodes:
    """N episodes side by side, padded to the longest; `mask` marks the real steps.

    Padded slots hold 0 or False. An episode's last real step is terminated (it
    entered a terminal state) or truncated (it was stopped before), never both.
    """

    states: Tensor
    """s_t, [N, T] int64."""
    actions: Tensor
    """a_t, [N, T] int64."""
    rewards: Tensor
    """r_t, [N, T] float64, paid on the move from s_t to the next state."""
    next_states: Tensor
    """s_{t+1}, [N, T] int64."""
    mask: Tensor
    """[N, T] bool, True for a real step."""
    terminated: Tensor
    """[N, T] bool, the move entered a terminal state."""
    truncated: Tensor
    """[N, T] bool, the episode was stopped after this step."""

    def __len__(self) -> int:
        return len(self.states)

    def first(self, num_episodes: int) -> Episodes:
        """The first `num_episodes` of them, [num_episodes, T] each."""
        count = require_positive_int("num_episodes", num_episodes)
        if count > len(self):
            raise ValueError(
                f"num_episodes must be at most {len(self)}, got {num_episodes}"
            )
        return Episodes(**{name: rows[:count] for name, rows in vars(self).items()})


def random_walk(num_states: int = 5) -> FiniteMDP:
    """The chain A, B, C, ... between two ends; entering the right end pays 1.

    The two actions move left and right for sure; under `uniform_policy` this is the
    classic walk. With gamma = 1 the k-th of n states is worth k / (n + 1). Episodes
    start in the middle (for an even number, in either middle state).

    Args:
        num_states: n, the states between the ends; the MDP has n + 2.

    Raises:
        TypeError: num_states is not an integer.
        ValueError: num_states < 1.

    Source: Sutton and Barto (2018), example 6.2.
    """
    n = require_positive_int("num_states", num_states)
    inner = torch.arange(1, n + 1)
    transition = torch.zeros(n + 2, 2, n + 2, dtype=torch.float64)
    transition[inner, 0, inner - 1] = 1.0
    transition[inner, 1, inner + 1] = 1.0
    rewards = torch.zeros_like(transition)
    rewards[n, 1, n + 1] = 1.0
    terminal = torch.zeros(n + 2, dtype=torch.bool)
    terminal[[0, n + 1]] = True
    start = torch.zeros(n + 2, dtype=torch.float64)
    start[(n + 1) // 2] += 0.5
    start[n // 2 + 1] += 0.5
    letters = string.ascii_uppercase
    inside = letters[:n] if n <= len(letters) else [str(k) for k in inner.tolist()]
    return FiniteMDP(
        transition,
        rewards,
        terminal,
        start,
        state_names=("left end", *inside, "right end"),
        action_names=("left", "right"),
    )


def uniform_policy(mdp: FiniteMDP) -> Tensor:
    """pi(a | s) = 1 / A for every state: [S, A] float64."""
    shape = (mdp.num_states, mdp.num_actions)
    return torch.full(shape, 1.0 / mdp.num_actions, dtype=torch.float64)


def require_policy(mdp: FiniteMDP, policy: Tensor) -> Tensor:
    """Return pi(a | s) in float64 if it is a distribution for each of mdp's states.

    Raises:
        TypeError: `policy` is no tensor.
        ValueError: its shape is not [S, A], or a row is no distribution.
    """
    shape = (mdp.num_states, mdp.num_actions)
    require_like("policy", policy, shape, mdp.transition)
    _require_distribution("policy", policy.double())
    return policy.double()


def sample_episodes(
    mdp: FiniteMDP,
    policy: Tensor,
    num_episodes: int,
    *,
    generator: torch.Generator,
    max_steps: int = 10_000,
    start_state: int | None = None,
    start_action: int | None = None,
) -> Episodes:
    """Play `num_episodes` episodes side by side.

    To estimate Q(s, a) by sampling, force both firsts; to estimate V(s), only the
    state. All later actions come from the policy.

    Args:
        mdp: the process to walk in.
        policy: [S, A], pi(a | s).
        num_episodes: N.
        generator: the only source of randomness.
        max_steps: an episode that is not over by then is truncated.
        start_state: the state that every episode starts in, instead of mdp.start.
        start_action: the action that every episode starts with.

    Returns:
        Episodes: [N, T] each, T the longest episode's length.

    Raises:
        TypeError: an argument is of the wrong type (a seed is no generator).
        ValueError: a number out of its range, a policy that is no distribution, a
            start in a terminal state.
    """
    count = require_positive_int("num_episodes", num_episodes)
    limit = require_positive_int("max_steps", max_steps)
    if not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator, got {type(generator).__name__}"
        )
    choose = _cumulative(require_policy(mdp, policy))  # [S, A]
    move = _cumulative(mdp.transition)  # [S, A, S]
    state = _first_states(mdp, count, start_state, generator)  # [N]
    forced = _checked_index("start_action", start_action, mdp.num_actions)
    going = torch.arange(count)
    steps: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    while len(going) and len(steps) < limit:
        action = _draw(choose[state], generator)
        if forced is not None and not steps:
            action = torch.full_like(action, forced)
        reached = _draw(move[state, action], generator)
        steps.append((going, state, action, reached))
        goes_on = ~mdp.terminal[reached]
        going, state = going[goes_on], reached[goes_on]
    return _side_by_side(mdp, steps, count)


def _side_by_side(
    mdp: FiniteMDP, steps: list[tuple[Tensor, Tensor, Tensor, Tensor]], count: int
) -> Episodes:
    row = torch.cat([going for going, *_ in steps])
    column = torch.cat(
        [torch.full_like(going, t) for t, (going, *_) in enumerate(steps)]
    )
    state, action, reached = (torch.cat([s[k] for s in steps]) for k in (1, 2, 3))
    over = mdp.terminal[reached]

    def padded(values: Tensor) -> Tensor:
        slots = values.new_zeros(count, len(steps))  # [N, T]
        slots[row, column] = values
        return slots

    return Episodes(
        states=padded(state),
        actions=padded(action),
        rewards=padded(mdp.rewards[state, action, reached]),
        next_states=padded(reached),
        mask=padded(torch.ones_like(over)),
        terminated=padded(over),
        truncated=padded(~over & (column == len(steps) - 1)),
    )


def _first_states(
    mdp: FiniteMDP, count: int, start_state: int | None, generator: torch.Generator
) -> Tensor:
    index = _checked_index("start_state", start_state, mdp.num_states)
    if index is None:
        return _draw(_cumulative(mdp.start).expand(count, -1), generator)
    if mdp.terminal[index]:
        name = mdp.state_names[index]
        raise ValueError(f"start_state must not be terminal, got {index} ({name})")
    return torch.full((count,), index)


def _cumulative(probabilities: Tensor) -> Tensor:
    running = probabilities.cumsum(-1)
    # Dividing makes the last entry exactly 1, so that no draw falls behind it; a
    # choice of probability 0 has a bin of width 0 and is never drawn.
    return running / running[..., -1:]


def _draw(cumulative: Tensor, generator: torch.Generator) -> Tensor:
    """One index for each row of [n, K] cumulative probabilities: [n] int64."""
    u = torch.rand(len(cumulative), 1, dtype=torch.float64, generator=generator)
    return (u >= cumulative).sum(-1)


def _require_distribution(name: str, probabilities: Tensor) -> None:
    """Refuse rows that hold a negative number or a NaN, or do not sum to 1."""
    wrong = (probabilities.sum(-1) - 1.0).abs()
    if not (probabilities >= 0).all() or not (wrong <= _SUM_TOLERANCE).all():
        raise ValueError(
            f"{name} must hold probabilities >= 0 that sum to 1 over the last axis; "
            f"smallest entry {probabilities.min():g}, "
            f"largest distance of a sum from 1 {wrong.max():g}"
        )


def _names(field: str, names: tuple[str, ...], count: int) -> tuple[str, ...]:
    if not names:
        return tuple(str(index) for index in range(count))
    if len(names) != count:
        raise ValueError(f"{field} must hold {count} names, got {len(names)}")
    return tuple(names)


def _checked_index(name: str, index: int | None, count: int) -> int | None:
    if index is not None and not 0 <= index < count:
        raise ValueError(f"{name} must lie in 0..{count - 1}, got {index}")
    return index
