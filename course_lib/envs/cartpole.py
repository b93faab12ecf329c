"""CartPole, many at once: Gymnasium's dynamics as tensors, both kinds of end apart."""

from __future__ import annotations

import math
import numbers
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from course_lib.envs.devices import chosen_device
from course_lib.kernels.arguments import (
    require_flags,
    require_like,
    require_positive_int,
)

GRAVITY = 9.8
"""m/s^2."""
CART_MASS, POLE_MASS = 1.0, 0.1
"""kg."""
HALF_LENGTH = 0.5
"""m, from the pole's foot to its centre of mass."""
FORCE = 10.0
"""N, to the left for action 0 and to the right for action 1."""
TIME_STEP = 0.02
"""s for each step."""
POSITION_LIMIT = 2.4
"""m; a cart beyond it on either side ends the episode."""
ANGLE_LIMIT = math.radians(12)
"""rad; a pole that leans further to either side ends the episode."""
START_LIMIT = 0.05
"""Each of the four numbers of a start is uniform between minus and plus this."""

_TOTAL_MASS = CART_MASS + POLE_MASS
_POLE_SHARE = POLE_MASS / _TOTAL_MASS
# 2^64 over the golden ratio, and the two multipliers of SplitMix64.
_GOLDEN = 0x9E3779B97F4A7C15
_MIXERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
# Knuth's generator x <- a x + c modulo 2^64.
_FACTOR, _INCREMENT = 0x5851F42D4C957F2D, 0x14057B7EF767814F


class Transition(NamedTuple):
    """One step of B environments; no field is written to by a later step.

    An ended episode is followed by a new one at once, so two observations come back:
    the state that the step really reached, and what the policy sees next. They differ
    exactly where an episode ended, and a truncated step bootstraps from the first.

    Both flags may be set in one step (the pole falls at the last step that the limit
    allows), as in Gymnasium; `terminated` then rules.
    """

    observations: Tensor
    """What the policy sees next, [B, ...]: a new episode's start where one ended."""
    rewards: Tensor
    """r_t, [B], in units of reward, of the dtype of `observations`."""
    terminated: Tensor
    """[B] bool, the process reached an end of its own: nothing comes after."""
    truncated: Tensor
    """[B] bool, the episode was stopped from outside: its future still has a value."""
    next_observations: Tensor
    """s_{t+1}, [B, ...], the state really reached, before any reset."""


class CartPole:
    """B carts with a pole on each: `CartPole-v1` of Gymnasium, step for step.

    A step of tau = 0.02 s is Euler's with the *old* velocities,

        x' = x + tau v,   v' = v + tau a,   theta' = theta + tau w,   w' = w + tau b,

    where, with force F, masses m (pole) and M (both) and half-length l,

        b = (g sin(theta) - cos(theta) f) / (l (4/3 - m cos(theta)^2 / M)),
        a = f - m l b cos(theta) / M,   f = (F + m l w^2 sin(theta)) / M.

    An episode is terminated where |x| > 2.4 m or |theta| > 12 degrees, truncated at
    its `max_steps`-th step. The reward is 1 for every step, the failing one included.
    Ended environments start again within the step (see `Transition`).

    Each environment owns its stream of starts, a function of its seed and of how many
    episodes it has begun: how many others run beside it changes nothing. (Over 500
    steps the pole multiplies a difference in the last bit by some 10^12: on another
    processor, or in another dtype, long episodes agree in their statistics only.)

    Args:
        num_envs: B, how many environments run side by side.
        seeds: one integer for all (environment i's own seed is then drawn from it and
            from i, so that two integers share no environment), or a sequence of one
            for each environment, or None for fresh ones.
        max_steps: the length at which an episode is truncated.
        device: where states live and observations are handed out; "auto" chooses
            CUDA, then MPS, then the CPU.
        dtype: of observations and rewards. The state is kept in float32 for the half
            precisions, whose last digit is coarser than a step.

    Raises:
        TypeError: an argument of the wrong type, a dtype that is not floating.
        ValueError: a count below 1, seeds that do not fit, a negative seed.

    Source: Barto, Sutton and Anderson (1983); Florian (2007), equations 23 and 24,
    without friction; reset and limits as in Gymnasium's `CartPole-v1`.
    """

    num_actions = 2
    """0 pushes to the left, 1 to the right."""
    observation_size = 4
    """x (m), v (m/s), theta (rad), w (rad/s)."""

    def __init__(
        self,
        num_envs: int,
        *,
        seeds: int | Sequence[int] | None = None,
        max_steps: int = 500,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.num_envs = require_positive_int("num_envs", num_envs)
        self.max_steps = require_positive_int("max_steps", max_steps)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating torch.dtype, got {dtype}")
        self.dtype = dtype
        self.seeds = _environment_seeds(seeds, self.num_envs).to(chosen_device(device))
        """Each environment's own seed, [B] int64: `seeds=` of a run that repeats it."""
        self.device = self.seeds.device
        self._state: Tensor | None = None  # [4, B]: a row for each of the four numbers
        self._clock = 0  # steps of the batch so far
        self._everyone = torch.arange(self.num_envs, device=self.device)
        self._last_step = torch.zeros_like(self._everyone)  # truncated at this clock
        # Four streams for each environment, [4, B], which hash where they begin.
        numbers_of_a_start = torch.arange(1, 5).unsqueeze(1) * _signed(_GOLDEN)
        self._streams = _mix(_mix(self.seeds) + numbers_of_a_start.to(self.device))
        # A tensor of no axes costs an operation half of what a Python number does.
        inner = torch.promote_types(dtype, torch.float32)

        def constant(value: object, kind: torch.dtype = inner) -> Tensor:
            return torch.tensor(value, dtype=kind, device=self.device)

        self._push = constant([-FORCE / _TOTAL_MASS, FORCE / _TOTAL_MASS])
        self._gravity = constant(GRAVITY)
        self._inertia = constant(HALF_LENGTH * 4 / 3)
        self._limits = constant(
            [[POSITION_LIMIT], [math.inf], [ANGLE_LIMIT], [math.inf]]
        )
        self._factor = constant(_FACTOR, torch.int64)
        self._increment = constant(_INCREMENT, torch.int64)
        self._scale = constant(START_LIMIT / 2**63)

    def reset(self) -> Tensor:
        """Start a new episode everywhere.

        Returns:
            Tensor: observations, [B, 4].
        """
        self._state = self._push.new_empty(self.observation_size, self.num_envs)
        self._begin(self._state, self._everyone)
        return self._handed_out(self._state)

    def set_state(self, observations: Tensor, mask: Tensor | None = None) -> Tensor:
        """Let an episode begin in a given state, its step count at 0.

        Args:
            observations: [B, 4], the states to start from.
            mask: [B] bool, the environments this is for; None for all. The others go
                on where they are.

        Returns:
            Tensor: observations of all environments, [B, 4].

        Raises:
            TypeError: no tensors, or a mask that is not boolean.
            ValueError: another shape or device.
            RuntimeError: a mask before the first `reset`.
        """
        shape = (self.num_envs, self.observation_size)
        require_like("observations", observations, shape, self._everyone)
        given = observations.detach().to(self._push.dtype, copy=True).T.contiguous()
        if mask is None:
            self._state = given
            self._last_step.fill_(self._clock + self.max_steps)
        else:
            require_flags("mask", mask, self._everyone)
            self._state = torch.where(mask, given, self._started())
            self._last_step.masked_fill_(mask, self._clock + self.max_steps)
        return self._handed_out(self._state)

    def state_dict(self) -> dict[str, Any]:
        """Where every cart stands, in its episode and in its stream of starts."""
        return {
            "state": self._state,
            "clock": self._clock,
            "last_step": self._last_step,
            "streams": self._streams,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` said of as many carts.

        Raises:
            ValueError: another number of carts.
        """
        require_like("streams", state["streams"], (4, self.num_envs), self._everyone)
        stand = state["state"]
        self._state = None if stand is None else stand.clone()
        self._clock = int(state["clock"])
        self._last_step = state["last_step"].clone()
        self._streams = state["streams"].clone()

    def step(self, actions: Tensor) -> Transition:
        """Push every cart once; environments that end start again.

        Args:
            actions: [B] int64, 0 (left) or 1 (right).

        Returns:
            Transition: observations [B, 4], the rest [B].

        Raises:
            TypeError: actions are no tensor of int64.
            ValueError: another shape or device, an action that is neither 0 nor 1 (on
                CUDA such an action fails CUDA's own assertion instead: to look would
                cost a synchronisation).
            RuntimeError: called before `reset`.
        """
        reached = self._moved(self._started(), self._pushes(actions))  # [4, B]
        beyond = reached.abs() > self._limits  # [4, B], never for the velocities
        terminated = beyond[0] | beyond[2]
        self._clock += 1
        truncated = self._last_step == self._clock
        self._state = reached.clone()
        ended = (terminated | truncated).nonzero().squeeze(1)
        if len(ended):
            self._begin(self._state, ended)
        return Transition(
            observations=self._handed_out(self._state),
            rewards=torch.ones(self.num_envs, dtype=self.dtype, device=self.device),
            terminated=terminated,
            truncated=truncated,
            next_observations=self._cast(reached).T,
        )

    def _moved(self, state: Tensor, push: Tensor) -> Tensor:
        """The state after one Euler step, [4, B], from [4, B] and F/M, [B]."""
        _, velocity, theta, spin = state.unbind(0)
        sine, cosine = theta.sin(), theta.cos()
        f = torch.addcmul(push, spin * spin, sine, value=_POLE_SHARE * HALF_LENGTH)
        torque = torch.addcmul(sine * self._gravity, cosine, f, value=-1.0)
        inertia = torch.addcmul(
            self._inertia, cosine, cosine, value=-_POLE_SHARE * HALF_LENGTH
        )
        spin_rate = torque.div_(inertia)
        speed_up = torch.addcmul(f, spin_rate, cosine, value=-_POLE_SHARE * HALF_LENGTH)
        rates = torch.stack((velocity, speed_up, spin, spin_rate))
        return torch.add(state, rates, alpha=TIME_STEP)

    def _pushes(self, actions: Tensor) -> Tensor:
        """F/M of each action, [B]; the look-up itself finds an action out of range."""
        require_like("actions", actions, (self.num_envs,), self._everyone)
        if actions.dtype != torch.int64:
            raise TypeError(f"actions must have dtype torch.int64, got {actions.dtype}")
        try:
            return self._push.index_select(0, actions)
        except IndexError:
            low, high = actions.min().item(), actions.max().item()
            raise ValueError(
                f"actions must be 0 or 1, got values from {low} to {high}"
            ) from None

    def _begin(self, state: Tensor, which: Tensor) -> None:
        """Draw the next start of environments `which`, [n], into `state`, [4, B]."""
        drawn = self._streams.index_select(1, which)  # [4, n]
        drawn = torch.addcmul(self._increment, drawn, self._factor)
        self._streams.index_copy_(1, which, drawn)
        # Of an int64 that takes all its values alike, START_LIMIT / 2^63 makes a
        # number between plus and minus START_LIMIT, the same in every dtype but for
        # rounding. The low bits of this generator are poor, and lost here.
        state.index_copy_(1, which, drawn * self._scale)
        self._last_step.index_fill_(0, which, self._clock + self.max_steps)

    def _started(self) -> Tensor:
        if self._state is None:
            raise RuntimeError("call reset() before the first step")
        return self._state

    def _handed_out(self, state: Tensor) -> Tensor:
        # A copy: what a caller does to an observation must not move a cart.
        return self._cast(state.clone()).T

    def _cast(self, state: Tensor) -> Tensor:
        return state if state.dtype == self.dtype else state.to(self.dtype)


def _environment_seeds(seeds: int | Sequence[int] | None, num_envs: int) -> Tensor:
    """One seed for each environment, [B] int64, none negative."""
    if seeds is None:
        seeds = secrets.randbits(63)
    if isinstance(seeds, numbers.Integral):
        places = torch.arange(1, num_envs + 1) * _signed(_GOLDEN)
        return _shifted(_mix(places + _checked_seed(seeds)), 1)
    if isinstance(seeds, str) or not isinstance(seeds, Sequence):
        raise TypeError(
            "seeds must be an integer, a sequence of integers or None, "
            f"got {type(seeds).__name__}"
        )
    if len(seeds) != num_envs:
        raise ValueError(
            f"seeds must hold one for each of {num_envs} environments, got {len(seeds)}"
        )
    return torch.tensor([_checked_seed(seed) for seed in seeds], dtype=torch.int64)


def _checked_seed(seed: object) -> int:
    if not isinstance(seed, numbers.Integral) or isinstance(seed, bool):
        raise TypeError(f"seeds must hold integers, got {type(seed).__name__}")
    value = int(seed)
    if not 0 <= value < 2**63:
        raise ValueError(f"seeds must lie in 0..2^63 - 1, got {value}")
    return value


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser: a bijection of int64 in which every bit moves half.

    Source: Steele, Lea and Flood (2014), figure 17, with Stafford's mix 13.
    """
    for shift, multiplier in zip((30, 27), _MIXERS, strict=True):
        x = (x ^ _shifted(x, shift)).mul_(_signed(multiplier))
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    # `>>` copies the sign into the top bits of an int64; the mask takes it out again.
    return (x >> by).bitwise_and_((1 << (64 - by)) - 1)


def _signed(value: int) -> int:
    """`value` modulo 2^64 as the int64 of the same bits."""
    return (value + 2**63) % 2**64 - 2**63
