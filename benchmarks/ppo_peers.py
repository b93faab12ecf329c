"""PPO as others have it, with our settings: Stable-Baselines3, and one long script.

Both are given a `PPOConfig` and return the `History` of a run, so that one measure
serves all. What is called `cleanrl_style` here is written anew in the manner of
CleanRL's `ppo.py` (one function from top to bottom, `nn.Sequential`,
`torch.distributions`, torch's Adam), which is a script and cannot be imported.
"""

from __future__ import annotations

import itertools
import math
import random
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical

from course_lib.algorithms import Episode, History, PPOConfig


def stable_baselines3(
    name: str, num_envs: int, config: PPOConfig, seed: int
) -> History:
    """Its PPO with its MlpPolicy: two networks of tanh layers."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    history = History((seed,))

    class KeepEpisodes(BaseCallback):
        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    gained, length = info["episode"]["r"], info["episode"]["l"]
                    history.episodes.append(
                        Episode(0, self.num_timesteps, gained, length)
                    )
            return True

    def rate(left: float) -> float:
        return config.learning_rate * (left if config.anneal_learning_rate else 1.0)

    hidden = [*config.hidden]
    model = PPO(
        "MlpPolicy",
        make_vec_env(name, num_envs, seed=seed),
        learning_rate=rate,
        n_steps=config.num_steps,
        batch_size=config.minibatch_size,
        n_epochs=config.num_epochs,
        gamma=config.gamma,
        gae_lambda=config.lam,
        clip_range=config.clip_eps,
        ent_coef=config.ent_coef,
        vf_coef=config.vf_coef / 2,  # its critic's loss has no half in it
        max_grad_norm=config.max_grad_norm,
        policy_kwargs={"net_arch": {"pi": hidden, "vf": hidden}},
        seed=seed,
        device="cpu",
    )
    model.learn(config.total_steps, callback=KeepEpisodes())
    return history


class Agent(nn.Module):
    """Two networks, and a distribution of torch's own."""

    def __init__(self, inputs: int, outputs: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.actor = _network((inputs, *hidden, outputs), last_gain=0.01)
        self.critic = _network((inputs, *hidden, 1), last_gain=1.0)

    def judge(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, ...]:
        """An action, its log-probability, the entropy and the value."""
        policy = Categorical(logits=self.actor(x))
        if action is None:
            action = policy.sample()
        values = self.critic(x).flatten()
        return action, policy.log_prob(action), policy.entropy(), values


def _network(sizes: tuple[int, ...], last_gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.Tanh()]
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    for layer in linear:
        gain = last_gain if layer is linear[-1] else math.sqrt(2)
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers[:-1])


def cleanrl_style(name: str, num_envs: int, config: PPOConfig, seed: int) -> History:
    """Everything in one function, for actions that are a choice among several."""
    random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
    envs = SyncVectorEnv(
        [partial(gymnasium.make, name)] * num_envs,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    inputs = math.prod(envs.single_observation_space.shape)
    agent = Agent(inputs, int(envs.single_action_space.n), config.hidden)
    optimizer = torch.optim.Adam(agent.parameters(), config.learning_rate, eps=1e-5)
    shape = (config.num_steps, num_envs)
    obs = torch.zeros(*shape, inputs)
    actions, log_probs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
    history = History((seed,))
    scores, lengths = np.zeros(num_envs), np.zeros(num_envs, dtype=int)
    next_obs = torch.tensor(envs.reset(seed=seed)[0])
    next_done = torch.zeros(num_envs)
    batch_size = config.num_steps * num_envs
    num_updates = config.total_steps // batch_size
    for update in range(num_updates):
        if config.anneal_learning_rate:
            rate = (1.0 - update / num_updates) * config.learning_rate
            optimizer.param_groups[0]["lr"] = rate
        for step in range(config.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, log_probs[step], _, values[step] = agent.judge(next_obs)
            actions[step] = action
            seen, paid, terminated, truncated, _ = envs.step(action.numpy())
            done = terminated | truncated
            rewards[step] = torch.tensor(paid)
            next_obs, next_done = torch.tensor(seen), torch.tensor(done).float()
            scores, lengths = scores + paid, lengths + 1
            steps = update * batch_size + (step + 1) * num_envs
            for place in done.nonzero()[0]:
                history.episodes.append(
                    Episode(0, steps, float(scores[place]), int(lengths[place]))
                )
            scores, lengths = scores * ~done, lengths * ~done
        with torch.no_grad():
            next_value = agent.critic(next_obs).flatten()
            advantages, last = torch.zeros_like(rewards), torch.zeros(num_envs)
            for t in reversed(range(config.num_steps)):
                is_last = t == config.num_steps - 1
                going_on = 1.0 - (next_done if is_last else dones[t + 1])
                after = next_value if is_last else values[t + 1]
                delta = rewards[t] + config.gamma * after * going_on - values[t]
                last = delta + config.gamma * config.lam * going_on * last
                advantages[t] = last
            returns = advantages + values
        b_obs, b_actions = obs.reshape(-1, inputs), actions.reshape(-1)
        b_log_probs, b_advantages = log_probs.reshape(-1), advantages.reshape(-1)
        b_returns = returns.reshape(-1)
        order, clip_fracs = np.arange(batch_size), []
        for _ in range(config.num_epochs):
            np.random.shuffle(order)
            for start in range(0, batch_size, config.minibatch_size):
                mb = order[start : start + config.minibatch_size]
                _, new_log_probs, entropy, new_values = agent.judge(
                    b_obs[mb], b_actions.long()[mb]
                )
                ratio = (new_log_probs - b_log_probs[mb]).exp()
                with torch.no_grad():
                    outside = ((ratio - 1.0).abs() > config.clip_eps).float()
                    clip_fracs.append(outside.mean().item())
                gain = b_advantages[mb]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                held = ratio.clamp(1 - config.clip_eps, 1 + config.clip_eps)
                policy_loss = torch.max(-gain * ratio, -gain * held).mean()
                value_loss = 0.5 * ((new_values - b_returns[mb]) ** 2).mean()
                loss = policy_loss + config.vf_coef * value_loss
                loss = loss - config.ent_coef * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), config.max_grad_norm)
                optimizer.step()
    envs.close()
    return history


PEERS: dict[str, Any] = {
    "stable-baselines3": stable_baselines3,
    "CleanRL-style loop": cleanrl_style,
}
