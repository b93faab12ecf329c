"""Stable-Baselines3, tianshou and torchrl asked for what our kernels compute.

Each library's own code runs on numbers of our choosing: its policy and critic are
replaced by tensors, so that log-probabilities and values are what a row says. Time is
the last axis here, as in the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import gymnasium
import numpy as np
import torch
from torch import Tensor


@dataclass
class Batch:
    """Steps [N] of a minibatch; what a row leaves out does not matter to it."""

    log_ratio: Tensor
    advantages: Tensor
    values: Tensor | None = None
    old_values: Tensor | None = None
    returns: Tensor | None = None
    whiten: bool = False
    value_clip: float | None = None


@dataclass
class Answer:
    """What a library's loss said, and the gradients it left."""

    policy_loss: float
    value_loss: float
    policy_grad: list[float]
    value_grad: list[float]
    clip_fraction: float | None = None
    approx_kl: float | None = None


def _filled(batch: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    zero = torch.zeros_like(batch.log_ratio)
    log_ratio = batch.log_ratio.clone().requires_grad_()
    values = (zero if batch.values is None else batch.values).clone().requires_grad_()
    old = zero if batch.old_values is None else batch.old_values
    return log_ratio, values, old, zero if batch.returns is None else batch.returns


class StableBaselines3:
    """`RolloutBuffer` and `PPO.train`."""

    name = "Stable-Baselines3"

    @staticmethod
    def gae(rewards, values, last_value, flags, gamma, lam):
        """[B, T] as [T, B] into the buffer; flags[t] becomes episode_starts[t]."""
        from stable_baselines3.common.buffers import RolloutBuffer

        steps, rows = rewards.shape
        buffer = RolloutBuffer(
            steps,
            gymnasium.spaces.Box(-1, 1, (1,)),
            gymnasium.spaces.Discrete(2),
            "cpu",
            gae_lambda=lam,
            gamma=gamma,
            n_envs=rows,
        )
        buffer.rewards, buffer.values = rewards.numpy(), values.numpy()
        buffer.episode_starts = flags.numpy().astype(np.float32)
        buffer.compute_returns_and_advantage(last_value, np.zeros(rows, dtype=bool))
        return torch.from_numpy(buffer.advantages)

    @staticmethod
    def loss(batch: Batch) -> Answer:
        """One call of `PPO.train` over one minibatch."""
        from stable_baselines3 import PPO

        number = len(batch.log_ratio)
        log_ratio, values, old, returns = _filled(batch)
        model = PPO(
            "MlpPolicy",
            gymnasium.make("CartPole-v1"),
            n_steps=max(number, 2),
            batch_size=max(number, 2),
            n_epochs=1,
            clip_range=0.2,
            clip_range_vf=batch.value_clip,
            normalize_advantage=batch.whiten,
            vf_coef=1.0,
            max_grad_norm=1e9,
            device="cpu",
        )
        model.policy.evaluate_actions = lambda *_: (values, log_ratio, None)
        model.ent_coef = 0.0
        steps = SimpleNamespace(
            actions=torch.zeros(number),
            observations=torch.zeros(number, 4),
            advantages=batch.advantages,
            old_log_prob=torch.zeros(number),
            old_values=old,
            returns=returns,
        )
        model.rollout_buffer = SimpleNamespace(
            get=lambda _: [steps], values=old.numpy(), returns=returns.numpy()
        )
        logged: dict[str, float] = {}
        model.set_logger(
            SimpleNamespace(record=lambda k, v, **_: logged.update({k: v}))
        )
        model.train()
        return Answer(
            float(logged["train/policy_gradient_loss"]),
            float(logged["train/value_loss"]),
            log_ratio.grad.tolist(),
            values.grad.tolist(),
            float(logged["train/clip_fraction"]),
            float(logged["train/approx_kl"]),
        )


class Tianshou:
    """`_gae` and `PPO._update_with_batch`."""

    name = "tianshou"

    @staticmethod
    def gae(rewards, values, next_values, ended, terminated, gamma, lam):
        """One row [T]; the bootstrap is masked by ~terminated, as the caller does."""
        from tianshou.algorithm.algorithm_base import _gae

        return torch.from_numpy(
            _gae(
                values.double().numpy(),
                (next_values * ~terminated).double().numpy(),
                rewards.double().numpy(),
                ended.numpy(),
                gamma,
                lam,
            )
        )

    @staticmethod
    def loss(batch: Batch) -> Answer:
        """One minibatch of one repeat."""
        from tianshou.algorithm import PPO
        from tianshou.data import Batch as Steps

        log_ratio, values, old, returns = _filled(batch)
        algorithm = PPO.__new__(PPO)
        torch.nn.Module.__init__(algorithm)
        algorithm.eps_clip, algorithm._eps = batch.value_clip or 0.2, 1e-8
        algorithm.dual_clip = None
        algorithm.value_clip = batch.value_clip is not None
        algorithm.advantage_normalization = batch.whiten
        algorithm.recompute_adv = False
        algorithm.vf_coef, algorithm.ent_coef = 1.0, 0.0
        zero = torch.zeros_like(log_ratio)
        place = torch.arange(len(zero))  # an observation is where its step stands

        def policy(steps):
            here = log_ratio[steps.obs]
            dist = SimpleNamespace(
                log_prob=lambda _: here, entropy=lambda: torch.zeros_like(here)
            )
            return SimpleNamespace(dist=dist)

        object.__setattr__(algorithm, "policy", policy)
        object.__setattr__(algorithm, "critic", lambda obs: values[obs])
        algorithm.optim = SimpleNamespace(step=lambda loss: loss.backward())
        stats = algorithm._update_with_batch(
            Steps(
                obs=place,
                act=zero,
                adv=batch.advantages,
                logp_old=zero,
                v_s=old,
                returns=returns,
            ),
            None,
            1,
        )
        return Answer(
            stats.actor_loss.mean,
            stats.vf_loss.mean,
            log_ratio.grad.tolist(),
            values.grad.tolist(),
        )


class TorchRL:
    """`generalized_advantage_estimate` and `ClipPPOLoss`."""

    name = "torchrl"

    @staticmethod
    def gae(rewards, values, next_values, done, terminated, gamma, lam, feature=True):
        """[..., T], with or without the feature axis that it expects after time."""
        from torchrl.objectives.value.functional import generalized_advantage_estimate

        def shaped(x):
            return x[..., None] if feature and x is not None else x

        advantages, _ = generalized_advantage_estimate(
            gamma,
            lam,
            *map(shaped, (values, next_values, rewards, done)),
            terminated=shaped(terminated),
        )
        return advantages[..., 0] if feature else advantages

    @staticmethod
    def loss(batch: Batch) -> Answer:
        """One call of the module, critic in squared error."""
        from tensordict import TensorDict
        from tensordict.nn import TensorDictModule
        from torchrl.modules import ProbabilisticActor
        from torchrl.objectives import ClipPPOLoss

        log_ratio, values, old, returns = _filled(batch)
        number = len(log_ratio)

        class Given(torch.distributions.Distribution):
            """A distribution whose every action has the log-probability of the row."""

            arg_constraints: ClassVar[dict[str, object]] = {}

            def __init__(self, level):
                self.level = level
                super().__init__(level.shape, validate_args=False)

            def log_prob(self, value):
                return self.level

            def entropy(self):
                return torch.zeros_like(self.level)

        actor = ProbabilisticActor(
            TensorDictModule(lambda x: log_ratio, ["observation"], ["level"]),
            in_keys=["level"],
            distribution_class=Given,
        )
        critic = TensorDictModule(
            lambda x: values[:, None], ["observation"], ["state_value"]
        )
        module = ClipPPOLoss(
            actor,
            critic,
            clip_epsilon=0.2,
            entropy_bonus=False,
            critic_coeff=1.0,
            loss_critic_type="l2",
            normalize_advantage=batch.whiten,
            clip_value=batch.value_clip,
        )
        told = module(
            TensorDict(
                {
                    "observation": torch.zeros(number, 1),
                    "action": torch.zeros(number),
                    "action_log_prob": torch.zeros(number),
                    "sample_log_prob": torch.zeros(number),
                    "advantage": batch.advantages[:, None],
                    "value_target": returns[:, None],
                    "state_value": old[:, None],
                },
                [number],
            )
        )
        (told["loss_objective"] + told["loss_critic"]).backward()
        return Answer(
            told["loss_objective"].item(),
            told["loss_critic"].item(),
            log_ratio.grad.tolist(),
            values.grad.tolist(),
            told["clip_fraction"].item(),
            told["kl_approx"].item(),
        )
