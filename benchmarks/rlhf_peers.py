"""RLHF on the toy as it is usually written, with our settings: one loop per row.

Written anew in the manner of the field's small scripts: torch's GRU behind an
embedding, `torch.distributions` to sample, a second pass for the log-probabilities and
values of the policy that sampled, and for each response the GAE of one trajectory, step
by step. It logs a score and a KL, and nothing else.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn.functional import mse_loss

from course_lib.algorithms import RLHFConfig
from course_lib.algorithms.responses import ScoreFn
from course_lib.models import GRULanguageModel


class TinyModel(nn.Module):
    """A policy and its critic on one GRU; heads of zeros, so that it starts uniform."""

    def __init__(self, vocab_size: int = 8, hidden: int = 64) -> None:
        super().__init__()
        self.bos = vocab_size
        self.embedding = nn.Embedding(vocab_size + 1, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.lm_head = nn.Linear(hidden, vocab_size)
        self.value_head = nn.Linear(hidden, 1)
        for head in (self.lm_head, self.value_head):
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the tokens and values of their prefixes, [B, T]."""
        bos = torch.full_like(tokens[:, :1], self.bos)
        read = torch.cat((bos, tokens[:, :-1]), dim=1)
        states, _ = self.gru(self.embedding(read))  # [B, T, H]
        every = torch.log_softmax(self.lm_head(states), dim=-1)
        log_probs = every.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        return log_probs, self.value_head(states).squeeze(-1)

    @torch.no_grad()
    def generate(self, batch_size: int, length: int) -> Tensor:
        """Sample responses, a token at a time, [B, T]."""
        token, state, tokens = torch.full((batch_size, 1), self.bos), None, []
        for _ in range(length):
            output, state = self.gru(self.embedding(token), state)
            policy = Categorical(logits=self.lm_head(output[:, -1]))
            token = policy.sample().unsqueeze(1)
            tokens.append(token)
        return torch.cat(tokens, dim=1)


def trajectory_gae(
    rewards: Tensor, values: Tensor, dones: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of one trajectory, step by step: all [T]."""
    advantages = torch.zeros_like(rewards)
    last, next_value = 0.0, torch.tensor(0.0)
    for t in reversed(range(len(rewards))):
        goes_on = 1.0 - dones[t]
        delta = rewards[t] + gamma * next_value * goes_on - values[t]
        last = delta + gamma * lam * goes_on * last
        advantages[t] = last
        next_value = values[t]
    return advantages, advantages + values


def judge(
    policy: TinyModel, ref: TinyModel, tokens: Tensor, scores: Tensor, beta: float
) -> tuple[Tensor, ...]:
    """What policy and reference say about responses: old log-probabilities, values,
    KL and rewards, [B, T] each."""
    with torch.no_grad():
        old_log_probs, values = policy(tokens)
        ref_log_probs, _ = ref(tokens)
    kl = old_log_probs - ref_log_probs
    rewards = -beta * kl
    rewards[:, -1] += scores
    return old_log_probs, values, kl, rewards


def estimate_advantages(
    rewards: Tensor, values: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Row by row, as if a row were an episode of CartPole; whitened over the batch."""
    dones = torch.zeros(rewards.shape[1])
    dones[-1] = 1.0
    rows = [
        trajectory_gae(rewards[row], values[row], dones, gamma, lam)
        for row in range(len(rewards))
    ]
    advantages, returns = (torch.stack(column) for column in zip(*rows, strict=True))
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8), returns


def ppo_loss(
    policy: TinyModel,
    tokens: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    returns: Tensor,
    clip_eps: float,
) -> Tensor:
    """PPO's clip over all tokens, and half the squared error of the critic."""
    log_probs, values = policy(tokens)
    ratio = torch.exp(log_probs - old_log_probs)
    held = torch.clamp(ratio, 1 - clip_eps, 1 + clip_eps)
    surrogate = torch.min(ratio * advantages, held * advantages)
    return -surrogate.mean() + 0.5 * mse_loss(values, returns)


def per_row_loop(
    score_fn: ScoreFn, config: RLHFConfig
) -> tuple[TinyModel, list[tuple[float, float]]]:
    """Train for `config.num_updates`; the policy, and score and KL of every batch."""
    torch.manual_seed(config.seed)
    policy = TinyModel()
    ref = copy.deepcopy(policy).requires_grad_(False)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.learning_rate)
    history = []
    for done in range(config.num_updates):
        if config.anneal_learning_rate:
            left = 1.0 - done / config.num_updates
            optimizer.param_groups[0]["lr"] = left * config.learning_rate
        tokens = policy.generate(config.batch_size, config.length)
        scores = score_fn(tokens, torch.ones_like(tokens, dtype=torch.bool))
        old_log_probs, values, kl, rewards = judge(
            policy, ref, tokens, scores, config.beta
        )
        advantages, returns = estimate_advantages(
            rewards, values, config.gamma, config.lam
        )
        for _ in range(config.num_epochs):
            loss = ppo_loss(
                policy, tokens, old_log_probs, advantages, returns, config.clip_eps
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        history.append((scores.mean().item(), kl.sum(-1).mean().item()))
    return policy, history


def as_ours(model: TinyModel) -> GRULanguageModel:
    """The same policy and critic as a model of ours: embedding and input matrix
    multiplied, and biases that are always added together in one."""
    gru, size = model.gru, model.gru.hidden_size
    found = GRULanguageModel(model.lm_head.out_features, hidden=size)
    with torch.no_grad():
        table = model.embedding.weight @ gru.weight_ih_l0.t() + gru.bias_ih_l0
        table[:, : 2 * size] += gru.bias_hh_l0[: 2 * size]
        found.trunk.table.copy_(table)
        found.trunk.weight.copy_(gru.weight_hh_l0.t())
        found.trunk.bias.copy_(gru.bias_hh_l0[2 * size :])
    found.lm_head.load_state_dict(model.lm_head.state_dict())
    found.value_head.load_state_dict(model.value_head.state_dict())
    return found
