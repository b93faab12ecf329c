"""PPO with one thing wrong: for tests, and for pages that ask which thing it is.

Each fault replaces a step or a number of the algorithm; the algorithm itself knows
nothing of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from course_lib.algorithms.batch import Batch, in_pieces, make_batch, minibatches
from course_lib.algorithms.history import History
from course_lib.algorithms.learner import Learner
from course_lib.algorithms.ppo import STEPS, PPOConfig, PPOSteps, ppo, ppo_loss
from course_lib.algorithms.rollout import (
    Environment,
    Rollout,
    Sampler,
    collect_steps,
)
from course_lib.kernels import whiten
from course_lib.models import ActorCritic, Categorical

Numbers = dict[str, Tensor]


@dataclass(frozen=True)
class Fault:
    """One mistake: what it does to the config and to the steps of PPO."""

    name: str
    source: str
    """Where people have really made it."""
    config: Callable[[PPOConfig], PPOConfig] = lambda config: config
    steps: Callable[[], PPOSteps] = lambda: STEPS
    """A function, since some mistakes remember something over a run."""


_PPO = PPOConfig()
FAULTS: dict[str, Fault] = {}


def faulty_ppo(
    name: str, env: Environment, config: PPOConfig = _PPO, **options: Any
) -> History:
    """Run PPO with the fault called `name`; everything else as `ppo`.

    Raises:
        ValueError: no such fault, naming those there are; continuous actions, for a
            fault in how a choice is drawn.
    """
    if name not in FAULTS:
        raise ValueError(f"name: no fault {name!r}; there are {', '.join(FAULTS)}")
    fault = FAULTS[name]
    return ppo(env, fault.config(config), steps=fault.steps(), **options)


def _number(name: str, source: str, **changes: Any) -> None:
    FAULTS[name] = Fault(name, source, config=lambda config: replace(config, **changes))


def _batch(name: str, source: str) -> Callable[[Any], Any]:
    """Register a `make_batch` that replaces the algorithm's."""

    def register(function: Any) -> Any:
        steps = replace(STEPS, make_batch=function)
        FAULTS[name] = Fault(name, source, steps=lambda: steps)
        return function

    return register


def _loss(name: str, source: str) -> Callable[[Any], Any]:
    """Register a loss that replaces `ppo_loss`."""

    def register(function: Any) -> Any:
        steps = replace(STEPS, loss=function)
        FAULTS[name] = Fault(name, source, steps=lambda: steps)
        return function

    return register


_number(
    "truncation-as-termination",
    "vwxyzjn/cleanrl #198; Toni-SM/skrl #449",
    bootstrap_truncated=False,
)
_number(
    "step-too-large", "a learning rate copied from another algorithm", learning_rate=0.1
)
# Ten times as hard as it was rewarded: with CartPole's coefficient it would not show.
FAULTS["entropy-punished"] = Fault(
    "entropy-punished",
    "DLR-RM/stable-baselines3 #127",
    config=lambda config: replace(config, ent_coef=-10 * config.ent_coef),
)


@_batch("end-read-late", "anthonytorlucci/rlevo #342; hill-a/stable-baselines #385")
def _end_read_late(
    learner: Learner, rollout: Rollout, config: PPOConfig, advantage_fn: Any
) -> Batch:
    # "Ended before step t", read by a loop that expects "ended after step t - 1", or
    # the other way round: each step is told what became of the one after it.
    late = {
        name: torch.cat((flags[..., 1:], flags[..., -1:]), -1)
        for name, flags in vars(rollout).items()
        if name in ("terminated", "truncated")
    }
    return make_batch(learner, replace(rollout, **late), config, advantage_fn)


@_batch("reward-shifted", "openai/spinningup #50 and #138")
def _reward_shifted(
    learner: Learner, rollout: Rollout, config: PPOConfig, advantage_fn: Any
) -> Batch:
    # Each step holds what the one before it was paid; an episode's first holds 0, and
    # its last reward is lost.
    rewards, ended = rollout.rewards, rollout.terminated | rollout.truncated
    paid = torch.where(ended, 0.0, rewards)[..., :-1]
    shifted = torch.cat((torch.zeros_like(rewards[..., :1]), paid), -1)
    return make_batch(learner, replace(rollout, rewards=shifted), config, advantage_fn)


@_batch("reset-state-bootstrapped", "the observation after a reset, taken for s'")
def _reset_state(
    learner: Learner, rollout: Rollout, config: PPOConfig, advantage_fn: Any
) -> Batch:
    after = rollout.observations.roll(-1, 2)
    after[:, :, -1] = rollout.next_observations[:, :, -1]
    wrong = replace(rollout, next_observations=after)
    return make_batch(learner, wrong, config, advantage_fn)


@_batch("stale-value-target", "vwxyzjn/cleanrl PR 337")
def _stale_target(
    learner: Learner, rollout: Rollout, config: PPOConfig, advantage_fn: Any
) -> Batch:
    batch = make_batch(learner, rollout, config, advantage_fn)
    return replace(batch, returns=batch.old_values)  # advantages not yet in it


@_batch("target-of-whitened", "the target made after the advantages are normalised")
def _target_of_whitened(
    learner: Learner, rollout: Rollout, config: PPOConfig, advantage_fn: Any
) -> Batch:
    batch = make_batch(learner, rollout, config, advantage_fn)
    whitened = whiten(batch.advantages, dim=-1)
    return replace(batch, returns=whitened + batch.old_values)


@_batch("rewards-for-returns", "natolambert/rlhf-book PR 216")
def _rewards_for_returns(
    learner: Learner, rollout: Rollout, config: PPOConfig, advantage_fn: Any
) -> Batch:
    batch = make_batch(learner, rollout, config, advantage_fn)
    return replace(batch, returns=rollout.rewards.flatten(1))


@_batch("advantage-sign", "V - G for G - V")
def _advantage_sign(
    learner: Learner, rollout: Rollout, config: PPOConfig, advantage_fn: Any
) -> Batch:
    batch = make_batch(learner, rollout, config, advantage_fn)
    return replace(batch, advantages=-batch.advantages)


def _against_the_first_policy() -> PPOSteps:
    """The ratio's denominator never moves: what sampled is taken for the reference."""
    first: list[ActorCritic] = []

    def frozen(
        learner: Learner, rollout: Rollout, config: PPOConfig, advantage_fn: Any
    ) -> Batch:
        if not first:
            first.append(copy.deepcopy(learner.agent))
        batch = make_batch(learner, rollout, config, advantage_fn)
        with torch.no_grad():
            policy = first[0].policy(batch.observations)
            return replace(batch, old_log_probs=policy.log_probs(batch.actions))

    return replace(STEPS, make_batch=frozen)


FAULTS["ratio-to-the-reference"] = Fault(
    "ratio-to-the-reference",
    "natolambert/rlhf-book PR 488",
    steps=_against_the_first_policy,
)


def _minibatches(name: str, source: str) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        steps = replace(STEPS, minibatches=function)
        FAULTS[name] = Fault(name, source, steps=lambda: steps)
        return function

    return register


@_minibatches("not-shuffled", "minibatches of consecutive steps of one environment")
def _not_shuffled(
    batch: Batch, config: PPOConfig, generators: list[torch.Generator]
) -> Iterator[Batch]:
    return in_pieces(batch, config)


@_minibatches("two-permutations", "alessiodm/drl-zh #17")
def _two_permutations(
    batch: Batch, config: PPOConfig, generators: list[torch.Generator]
) -> Iterator[Batch]:
    size = batch.advantages.shape[1]
    device = batch.advantages.device
    order = torch.randperm(size, generator=generators[0], device=device)
    mixed = replace(batch, advantages=batch.advantages[:, order])
    yield from minibatches(mixed, config, generators)


@_loss("advantages-not-detached", "the critic's gradient runs through A")
def _not_detached(
    agent: ActorCritic, batch: Batch, *, config: PPOConfig, **rest: Any
) -> tuple[Tensor, Numbers]:
    advantages = batch.returns - agent.values(batch.observations)  # with its gradient
    if config.normalize_advantages != "none":  # by numbers, which have no gradient
        spread, mean = torch.std_mean(advantages.detach(), -1, False, keepdim=True)
        advantages = (advantages - mean) / (spread + 1e-8)

    def attached(log_probs: Tensor, old: Tensor, _: Tensor) -> tuple[Tensor, Numbers]:
        return _surrogate_loss(_minimum, log_probs, old, advantages, config)

    rest["policy_loss_fn"] = attached
    return ppo_loss(agent, batch, config=config, **rest)


Surrogate = Callable[[Tensor, Tensor, PPOConfig], Tensor]


def _minimum(ratio: Tensor, advantages: Tensor, config: PPOConfig) -> Tensor:
    clipped = ratio.clamp(1 - config.clip_eps, 1 + config.clip_eps)
    return torch.minimum(ratio * advantages, clipped * advantages)


def _surrogate_loss(
    surrogate: Surrogate,
    log_probs: Tensor,
    old: Tensor,
    advantages: Tensor,
    config: PPOConfig,
) -> tuple[Tensor, Numbers]:
    """Minus the mean of a surrogate, and the numbers that the clipped loss tells."""
    ratio = (log_probs - old).exp()
    gains = surrogate(ratio, advantages, config)
    (slopes,) = torch.autograd.grad(gains.sum(), ratio, retain_graph=True)
    far = ratio.detach()
    return -gains.mean(), {
        "approx_kl": (far - 1 - far.log()).mean(),
        "ratio_max": far.max(),
        "clip_frac": ((far - 1).abs() > config.clip_eps).float().mean(),
        "clip_frac_active": ((slopes == 0) & (advantages != 0)).float().mean(),
    }


def _surrogate_fault(name: str, source: str) -> Callable[[Any], Any]:
    """Register another surrogate(ratio, advantages, config) than the clipped one."""

    def register(function: Surrogate) -> Surrogate:
        def wrong(
            agent: ActorCritic, batch: Batch, *, config: PPOConfig, **rest: Any
        ) -> tuple[Tensor, Numbers]:
            def own(log_probs: Tensor, old: Tensor, advantages: Tensor) -> Any:
                return _surrogate_loss(function, log_probs, old, advantages, config)

            rest["policy_loss_fn"] = own
            return ppo_loss(agent, batch, config=config, **rest)

        _loss(name, source)(wrong)
        return function

    return register


@_surrogate_fault("maximum-for-minimum", "takuseno/ppo #3, for A < 0")
def _maximum(ratio: Tensor, advantages: Tensor, config: PPOConfig) -> Tensor:
    clipped = ratio.clamp(1 - config.clip_eps, 1 + config.clip_eps)
    return torch.maximum(ratio * advantages, clipped * advantages)


@_surrogate_fault("ratio-upside-down", "old - new in the exponent")
def _upside_down(ratio: Tensor, advantages: Tensor, config: PPOConfig) -> Tensor:
    clipped = (1 / ratio).clamp(1 - config.clip_eps, 1 + config.clip_eps)
    return torch.minimum(advantages / ratio, clipped * advantages)


@_loss("values-against-a-table", "RLinf/RLinf #1568; [N] against [N, 1]")
def _table(
    agent: ActorCritic, batch: Batch, *, config: PPOConfig, **rest: Any
) -> tuple[Tensor, Numbers]:
    def broadcast(values: Tensor, returns: Tensor) -> tuple[Tensor, Numbers]:
        return 0.5 * (values.unsqueeze(-1) - returns.unsqueeze(-2)).square().mean(), {}

    rest["value_loss_fn"] = broadcast
    return ppo_loss(agent, batch, config=config, **rest)


class _SoftmaxTwice(ActorCritic):
    """Samples from softmax(softmax(logits)); scoring knows nothing of it."""

    def policy(self, observations: Tensor) -> Categorical:
        logits = self.policy_net(self.trunk(observations))
        return Categorical(logits.softmax(-1))


class _Greedy(ActorCritic):
    """Always takes the likeliest action; scoring takes it for a sample."""

    def policy(self, observations: Tensor) -> Categorical:
        logits = self.policy_net(self.trunk(observations))
        return Categorical(logits * 1e6)


def _sampling(name: str, source: str, kind: type[ActorCritic]) -> None:
    """Register a rollout whose actions another policy draws than the one scored."""

    def collect(
        env: Environment, sampler: Sampler, observations: Tensor, num_steps: int
    ) -> tuple[Rollout, Tensor]:
        if sampler.agent.log_std is not None:
            raise ValueError(
                f"env must offer a choice among actions for the fault {name!r}, got "
                "continuous ones"
            )
        other = copy.copy(sampler)
        other.agent = copy.copy(sampler.agent)
        other.agent.__class__ = kind
        return collect_steps(env, other, observations, num_steps)

    steps = replace(STEPS, collect=collect)
    FAULTS[name] = Fault(name, source, steps=lambda: steps)


_sampling("softmax-twice", "probabilities passed on as logits", _SoftmaxTwice)
_sampling("greedy-sampling", "argmax in the rollout", _Greedy)
