"""Any Gymnasium vector environment behind CartPole's interface, resets set right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from course_lib.envs.cartpole import Transition
from course_lib.envs.devices import chosen_device
from course_lib.kernels.arguments import require_like

_SYNC = 'gymnasium.make_vec(..., vectorization_mode="sync")'


class GymnasiumVector:
    """A `gymnasium.vector.VectorEnv` whose `step` returns a `Transition`.

    Gymnasium resets an ended environment in one of three ways, and says which in
    `env.metadata["autoreset_mode"]`:

    - NEXT_STEP (its default): the *next* call of `step` ignores the action, pays 0 and
      returns the new episode's start. Taken for a transition, that is a step that
      nobody made. Here the ended environments are reset by hand, within the step that
      ended them, so that the extra one never happens.
    - SAME_STEP: they are reset within the step; the state really reached is read from
      the infos.
    - DISABLED: nobody resets them; this class does.

    A reset by hand is `env.reset(options={"reset_mask": ended})`. An environment that
    does not know the mask resets all of its copies, in the middle of their episodes:
    it is tried out here, and refused. Gymnasium's own `CartPoleVectorEnv` is of that
    kind, and is what `gymnasium.make_vec("CartPole-v1")` returns unless it is told
    `vectorization_mode="sync"`. (Gymnasium's vector wrapper `RecordEpisodeStatistics`
    loses count of the others at such a reset: put the one for a single environment
    inside.)

    Args:
        env: the environment, not stepped by anybody else from now on. Observations
            must be a Box; actions a Discrete (then numbered from 0 here) or a Box.
        seeds: what the first `reset` hands to Gymnasium: an integer (environment i
            gets seeds + i), or a sequence of one for each environment, or None.
        device: where what comes back lives, and where actions are taken from; "auto"
            chooses CUDA, then MPS, then the CPU.
        dtype: of observations and rewards.

    Raises:
        TypeError: no vector environment, or spaces of another kind.
        ValueError: an autoreset mode that is unknown or cannot be set right, or seeds
            that do not fit.

    Source: Towers et al. (2024), Gymnasium; its page on vector autoreset modes.
    """

    def __init__(
        self,
        env: Any,
        *,
        seeds: int | Sequence[int] | None = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        from gymnasium.vector import VectorEnv

        vector: Any = VectorEnv  # Any, so that env's attributes stay unquestioned
        if not isinstance(env, vector):
            raise TypeError(
                "env must be a gymnasium.vector.VectorEnv (of a single environment, "
                f"{_SYNC} makes one), got {type(env).__name__}"
            )
        _require_spaces(env)
        self.env: Any = env
        self.num_envs = int(env.num_envs)
        self.device = chosen_device(device)
        self.dtype = dtype
        if isinstance(seeds, Sequence) and len(seeds) != self.num_envs:
            raise ValueError(
                f"seeds must hold one for each of {self.num_envs} environments, "
                f"got {len(seeds)}"
            )
        self._seeds = list(seeds) if isinstance(seeds, Sequence) else seeds
        self._mode = _autoreset_mode(env)
        self._trusts_mask = _is_known_to_reset_by_mask(env)
        self._running = False
        if self._mode != "SAME_STEP" and not self._trusts_mask and self.num_envs > 1:
            self._try_the_mask()

    @property
    def num_actions(self) -> int:
        """How many actions a Discrete space has.

        Raises:
            TypeError: the actions are a Box; see `action_shape`.
        """
        space = self.env.single_action_space
        if not hasattr(space, "n"):
            raise TypeError(f"actions are continuous ({space}): use action_shape")
        return int(space.n)

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of one action: () for a Discrete space."""
        return tuple(self.env.single_action_space.shape)

    @property
    def observation_size(self) -> int:
        """How many numbers one observation holds."""
        return math.prod(self.env.single_observation_space.shape)

    def reset(self) -> Tensor:
        """Start a new episode everywhere; the first call uses the seeds.

        Returns:
            Tensor: observations, [B, ...].
        """
        observations, _ = self.env.reset(seed=self._seeds)
        self._seeds = None
        self._running = True
        return self._tensor(observations)

    def step(self, actions: Tensor) -> Transition:
        """Take one step everywhere; environments that end start again.

        Args:
            actions: [B] int64 in 0..num_actions - 1, or [B, ...] for a Box, clipped to
                its bounds: a Gaussian policy knows nothing of them.

        Returns:
            Transition: observations [B, ...], the rest [B].

        Raises:
            TypeError: actions of the wrong type.
            ValueError: of another shape or device, or out of a Discrete's range.
            RuntimeError: called before `reset`, or the environment broke its word on
                resets.
        """
        if not self._running:
            raise RuntimeError("call reset() before the first step")
        reached, rewards, terminated, truncated, infos = self.env.step(
            self._gymnasium_actions(actions)
        )
        # Environments made with copy=False write into these arrays again on a reset.
        terminated, truncated = np.array(terminated), np.array(truncated)
        rewards, seen = self._tensor(rewards), np.array(reached)
        reached = seen.copy()
        ended = terminated | truncated
        if ended.any():
            if self._mode == "SAME_STEP":
                reached[ended] = _final_observations(infos, ended)
            else:
                seen[ended] = self._reset_by_mask(ended, reached)[ended]
        return Transition(
            observations=self._tensor(seen),
            rewards=rewards,
            terminated=torch.tensor(terminated, device=self.device),
            truncated=torch.tensor(truncated, device=self.device),
            next_observations=self._tensor(reached),
        )

    def close(self) -> None:
        """Let the environment free what it holds."""
        self.env.close()

    def _reset_by_mask(
        self, ended: NDArray[np.bool_], before: NDArray[Any]
    ) -> NDArray[Any]:
        """Reset the environments that ended; the others must stay where they are."""
        after, _ = self.env.reset(options={"reset_mask": ended.copy()})
        after = np.array(after)
        if not self._trusts_mask and not np.array_equal(
            after[~ended], before[~ended], equal_nan=True
        ):
            raise RuntimeError(_NO_MASK.format(env=self.env, mode=self._mode))
        return after

    def _try_the_mask(self) -> None:
        before, _ = self.env.reset()
        first = np.arange(self.num_envs) == 0
        try:
            self._reset_by_mask(first, np.array(before))
        except RuntimeError as refusal:
            raise ValueError(f"env must reset by mask: {refusal}") from None

    def _gymnasium_actions(self, actions: Tensor) -> NDArray[Any]:
        shape = (self.num_envs, *self.action_shape)
        place = torch.empty(0, device=self.device)
        require_like("actions", actions, shape, place)
        space = self.env.single_action_space
        if not hasattr(space, "n"):
            wanted = actions.detach().cpu().double().numpy()
            bounded: NDArray[Any] = wanted.clip(space.low, space.high)
            return bounded.astype(space.dtype)
        if actions.dtype != torch.int64:
            raise TypeError(f"actions must have dtype torch.int64, got {actions.dtype}")
        chosen = actions.cpu().numpy()
        if chosen.min() < 0 or chosen.max() >= space.n:
            raise ValueError(
                f"actions must lie in 0..{space.n - 1}, "
                f"got values from {chosen.min()} to {chosen.max()}"
            )
        numbered: NDArray[Any] = (
            chosen + space.start
        )  # new: the caller's stays as it is
        return numbered

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.tensor(np.asarray(array), dtype=self.dtype, device=self.device)


_NO_MASK = (
    '{env}, in autoreset mode {mode}, does not honour options={{"reset_mask": ...}}: '
    "asked to reset some environments, it moved the others too. Use " + _SYNC + ", or "
    "an environment in autoreset mode SAME_STEP"
)


def _require_spaces(env: Any) -> None:
    from gymnasium.spaces import Box, Discrete

    if not isinstance(env.single_observation_space, Box):
        raise TypeError(
            f"env must have Box observations, got {env.single_observation_space}; "
            "gymnasium.wrappers.FlattenObservation makes a Box of the others"
        )
    if not isinstance(env.single_action_space, Box | Discrete):
        raise TypeError(
            f"env must have Discrete or Box actions, got {env.single_action_space}"
        )


def _autoreset_mode(env: Any) -> str:
    """NEXT_STEP, SAME_STEP or DISABLED, from the environment's metadata."""
    mode = env.metadata.get("autoreset_mode")
    name = getattr(mode, "name", mode)
    if name not in ("NEXT_STEP", "SAME_STEP", "DISABLED"):
        raise ValueError(
            'env must say how it resets, in metadata["autoreset_mode"] as a '
            f"gymnasium.vector.AutoresetMode, got {mode!r}"
        )
    shares_memory = getattr(env.unwrapped, "shared_memory", True)
    if name == "NEXT_STEP" and not shares_memory:
        # Its workers forget a reset that came from outside and reset once more.
        raise ValueError(
            "env must not be an AsyncVectorEnv with shared_memory=False in autoreset "
            "mode NEXT_STEP: leave shared_memory at True, or choose SAME_STEP"
        )
    return str(name)


def _is_known_to_reset_by_mask(env: Any) -> bool:
    # Their word is taken, since a wrapper (one that normalises by running statistics,
    # say) may move the observations of environments that were not reset.
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    return isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)


def _final_observations(
    infos: dict[str, Any], ended: NDArray[np.bool_]
) -> NDArray[Any]:
    """The states in which the `ended` environments ended, [n, ...]."""
    told = infos.get("_final_obs", ended if "final_obs" in infos else ~ended)
    if not np.all(np.asarray(told)[ended]):
        raise RuntimeError(
            'an episode ended in autoreset mode SAME_STEP without infos["final_obs"]'
        )
    return np.stack([np.asarray(infos["final_obs"][i]) for i in ended.nonzero()[0]])
