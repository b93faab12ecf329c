"""What a run on language models begins with: a policy, and a judge."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from course_lib.kernels.arguments import require_positive_int
from course_lib.models import (
    PromptedPolicy,
    PromptedRewardModel,
    Sampling,
    Transformer,
    TransformerConfig,
)
from course_lib.models.sampling import UNCHANGED
from course_lib.train.checkpoint import CheckpointError, load_run
from course_lib.train.folder import CHECKPOINT
from course_lib.train.tasks import TaskConfig, make_tokenizer, task_of


@dataclass(frozen=True)
class PolicyConfig:
    """What stands on the trunk."""

    critic: Literal["shared", "detached", "separate"] = "shared"
    """Whether the critic's loss moves the trunk, or it has a trunk of its own."""
    value_hidden: int | None = None
    """A hidden layer of that size in the value head; None: none."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the trunk; log-probabilities, advantages and losses are in float32."""

    def __post_init__(self) -> None:
        if self.value_hidden is not None:
            require_positive_int("value_hidden", self.value_hidden)


def weights_digest(model: torch.nn.Module) -> str:
    """Another one where a weight is another."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        plain = weight.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(name.encode() + plain.numpy().tobytes())
    return digest.hexdigest()


def make_policy(
    task: TaskConfig,
    model: TransformerConfig,
    policy: PolicyConfig,
    sampling: Sampling,
    *,
    seed: int,
    device: torch.device,
    start: str | None = None,
) -> PromptedPolicy:
    """A policy from its seed, or from the trunk of a run of SFT or RLHF.

    Raises:
        CheckpointError, ValueError: a start that cannot be read, or of another size.
    """
    tokenizer = make_tokenizer(task)
    trunk = Transformer(tokenizer.vocab_size, model, seed=seed)
    if start is not None:
        saved = saved_run(start, "sft", "ppo-lm", "grpo")
        refuse_another_model(saved, task, model, start)
        weights = saved["state"]["learner"]["model"]
        trunk.load_state_dict(_below(weights, "trunk."))
    return PromptedPolicy(
        trunk,
        eos_token=tokenizer.eos_token,
        sampling=sampling,
        critic=policy.critic,
        value_hidden=policy.value_hidden,
        precision=policy.precision,
    ).to(device)


def load_policy(path: str, device: torch.device | str = "cpu") -> PromptedPolicy:
    """The policy that a run of `sft`, `ppo-lm` or `grpo` has trained, with its heads.

    Args:
        path: the run's folder, or its checkpoint.
        device: where it is wanted.

    Raises:
        CheckpointError: it cannot be read, or is of another program.
    """
    return saved_policy(saved_run(path, "sft", "ppo-lm", "grpo"), torch.device(device))


def saved_policy(saved: dict[str, Any], device: torch.device) -> PromptedPolicy:
    """The policy in a checkpoint of `sft`, `ppo-lm` or `grpo`."""
    made = json.loads(saved["settings"])
    policy = make_policy(
        task_of(made),
        TransformerConfig(**made["model"]),
        PolicyConfig(**made.get("policy", {})),
        Sampling(**made.get("sampling", {})),
        seed=0,
        device=device,
    )
    policy.load_state_dict(saved["state"]["learner"]["model"])
    return policy


def load_reward_model(
    path: str, task: TaskConfig, model: TransformerConfig, device: torch.device
) -> tuple[PromptedRewardModel, float]:
    """The model that a run of `reward-model` has fitted, frozen; and how many nats of
    log-odds its judge gave for one unit of the verifier's reward.

    Raises:
        CheckpointError, ValueError: it cannot be read, or is of another size.
    """
    saved = saved_run(path, "reward-model")
    refuse_another_model(saved, task, model, path)
    begin = make_policy(
        task, model, PolicyConfig(), UNCHANGED, seed=0, device=torch.device("cpu")
    )
    fitted = PromptedRewardModel(begin)
    fitted.load_state_dict(saved["state"]["learner"]["model"])
    scale = json.loads(saved["settings"])["pairs"]["scale"]
    return fitted.requires_grad_(False).to(device), float(scale)


def saved_run(path: str, *programs: str) -> dict[str, Any]:
    """The checkpoint of a run's folder, or of a file, made by one of the programs.

    Raises:
        CheckpointError: it cannot be read, or another program made it.
    """
    place = Path(path)
    place = place / CHECKPOINT if place.is_dir() else place
    saved = load_run(place)
    if saved.get("program") not in programs:
        raise CheckpointError(
            f"{place}: expected a run of {' or '.join(programs)}, got one of "
            f"{saved.get('program')}"
        )
    return saved


def refuse_another_model(
    saved: dict[str, Any], task: TaskConfig, model: TransformerConfig, path: str
) -> None:
    """Name what is another size there than here, or another alphabet."""
    made = json.loads(saved["settings"])
    its, there = task_of(made), made["model"]
    if its.letters != task.letters:
        raise ValueError(
            f"task.alphabet must be that of {path}, which was made with "
            f"task.problems={its.problems} and so the {its.letters} one, got "
            f"task.problems={task.problems} and so the {task.letters} one; make both "
            "with the same --task.alphabet"
        )
    for name, value in vars(model).items():
        if there[name] != value:
            raise ValueError(
                f"model.{name} must be {there[name]}, that of {path}, got {value}"
            )


def _below(weights: dict[str, Any], start: str) -> dict[str, Any]:
    return {k.removeprefix(start): v for k, v in weights.items() if k.startswith(start)}
