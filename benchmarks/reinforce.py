"""REINFORCE beside the loop that people write first: `python -m benchmarks.reinforce`.

CPU seconds on one thread, with equal episodes and updates; `python course.py bench
ppo` runs it as well. The results go to `benchmarks/results/reinforce.json` and into
`docs/BENCHMARKS.md`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from benchmarks.report import write_page
from benchmarks.timing import OURS, circumstances
from course_lib.algorithms import Episode, History, ReinforceConfig, reinforce
from course_lib.envs import CartPole
from tools.files import write_text

RESULTS = Path(__file__).parent / "results" / "reinforce.json"
COMMAND = "python -m benchmarks.reinforce"
PACKAGES = ("torch", "numpy", "gymnasium")
ENVS = 5
"""Episodes for each update."""
SEEDS = (0, 1)
LOOP = "one environment, step by step"
CONFIG = ReinforceConfig(baseline="value")


def ours(config: ReinforceConfig, seed: int) -> History:
    """The course's, an environment for each episode of an update."""
    return reinforce(CartPole(ENVS, seeds=seed), replace(config, seeds=(seed,)))


def plain_loop(config: ReinforceConfig, seed: int) -> History:
    """One environment, a forward pass for each step, a Python loop over the returns."""
    torch.manual_seed(seed)
    env, history = gymnasium.make("CartPole-v1"), History((seed,))
    policy, critic = _network(4, 2, config.hidden), _network(4, 1, config.hidden)
    policy_steps = torch.optim.Adam(policy.parameters(), config.learning_rate)
    critic_steps = torch.optim.Adam(critic.parameters(), config.learning_rate)
    played = 0
    for _ in range(config.num_episodes // ENVS):
        seen, log_probs, returns = [], [], []
        for _ in range(ENVS):
            rewards = []
            observation, _ = env.reset(seed=seed + len(history.episodes))
            over = False
            while not over:
                state = torch.as_tensor(observation)
                choice = Categorical(logits=policy(state))
                action = choice.sample()
                seen.append(state)
                log_probs.append(choice.log_prob(action))
                observation, reward, ended, stopped, _ = env.step(action.item())
                rewards.append(float(reward))
                over = ended or stopped
            total, own = 0.0, []
            for reward in reversed(rewards):
                total = reward + config.gamma * total
                own.append(total)
            returns += own[::-1]
            played += len(rewards)
            episode = Episode(0, played, sum(rewards), len(rewards))
            history.episodes.append(episode)
        states, targets = torch.stack(seen), torch.tensor(returns)
        baseline = critic(states).squeeze(-1).detach()
        loss = -(torch.stack(log_probs) * (targets - baseline)).sum() / ENVS
        _step(policy_steps, loss)
        for _ in range(config.critic_steps):
            errors = critic(states).squeeze(-1) - targets
            _step(critic_steps, errors.square().mean() / 2)
    env.close()
    return history


def _network(inputs: int, outputs: int, hidden: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.Tanh()]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


COMPETITORS: dict[str, Callable[[ReinforceConfig, int], History]] = {
    OURS: ours,
    LOOP: plain_loop,
}


def measure(who: str, config: ReinforceConfig, seed: int) -> dict[str, Any]:
    """One run: its time, the steps it played, and what it came to."""
    start = time.process_time()
    history = COMPETITORS[who](config, seed)
    spent = time.process_time() - start
    last = history.returns()[-100:]
    return {
        "who": who,
        "seed": seed,
        "cpu_seconds": round(spent, 2),
        "env_steps": history.episodes[-1].env_steps,
        "last_hundred": round(sum(last) / len(last), 1),
    }


def main() -> None:
    """Measure in turns, print a line for each run, and keep the results."""
    torch.set_num_threads(1)
    for who in COMPETITORS:
        measure(who, replace(CONFIG, num_episodes=2 * ENVS), 0)  # imports, compilation
    rows = []
    for seed in SEEDS:
        for who in COMPETITORS:
            rows.append(measure(who, CONFIG, seed))
            print(json.dumps(rows[-1]), flush=True)
    kept = circumstances(COMMAND, PACKAGES) | {"rows": rows}
    text = json.dumps(kept, indent=2) + "\n"
    write_text(RESULTS, text)
    write_page()


if __name__ == "__main__":
    main()
