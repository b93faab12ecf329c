"""Accuracy across the stages of training: `python -m benchmarks.stages`.

The training programs with the settings in `configs/`: SFT up to a part of the way, PPO
and GRPO from there with the verifier, a reward model on comparisons and PPO with that;
and from nothing, PPO on a reward for one of 64 tokens. Each seed holds out problems of
its own; the settings were chosen with others, those of split_seed 0.

Each run is a folder in `--folder`; one that was broken off goes on, one that is there
is not made again. `python -m benchmarks.stages STAGE SEED` makes one of them, so that
two may be made at a time; without, all are made, about an hour of one core, and kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.kept_runs import save
from benchmarks.report import write_page
from benchmarks.timing import circumstances
from course_lib.algorithms import PromptSource
from course_lib.envs import Problem
from course_lib.models import TransformerConfig
from course_lib.train.log import read_log
from course_lib.train.program import main as train
from course_lib.train.starts import load_reward_model
from course_lib.train.tasks import make_sources, task_of
from tools.files import write_text

COMMAND = "python -m benchmarks.stages"
PACKAGES = ("torch", "numpy")
SEEDS = (1, 2, 3)
CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"
RESULTS = ROOT / "benchmarks" / "results" / "stages.json"
Row = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """A program with its settings, and what it begins with."""

    program: str
    config: str
    """A file in `configs/`."""
    result: str
    """What counts of its log's last line that has it."""
    starts: tuple[tuple[str, str], ...] = ()
    """Settings that name a run of another stage, of the same seed."""
    seeds: tuple[int, ...] = SEEDS
    splits: bool = True
    """Whether it has problems to hold out."""


FROM_SFT = ("start.policy", "sft")
STAGES = {
    "sft": Stage("sft", "arithmetic/sft.yaml", "accuracy"),
    "ppo": Stage("ppo-lm", "arithmetic/ppo-lm.yaml", "accuracy", (FROM_SFT,)),
    "grpo": Stage("grpo", "arithmetic/grpo.yaml", "accuracy", (FROM_SFT,)),
    "reward-model": Stage(
        "reward-model",
        "arithmetic/reward-model.yaml",
        "held_out_accuracy",
        (("pairs.policy", "sft"),),
    ),
    "ppo-reward-model": Stage(
        "ppo-lm",
        "arithmetic/ppo-reward-model.yaml",
        "accuracy",
        (FROM_SFT, ("start.reward_model", "reward-model")),
    ),
    "reward-model-few": Stage(
        "reward-model",
        "arithmetic/reward-model-few.yaml",
        "held_out_accuracy",
        (("pairs.policy", "sft"),),
    ),
    "ppo-fooled": Stage(
        "ppo-lm",
        "arithmetic/ppo-fooled.yaml",
        "accuracy",
        (FROM_SFT, ("start.reward_model", "reward-model-few")),
    ),
    "token-reward": Stage("rlhf-toy", "toy/token-reward.yaml", "score", splits=False),
}
"""In the order in which they need each other."""
LOGS = {
    "stages-ppo": ("ppo", "verifier"),
    "stages-ppo-fooled": ("ppo-fooled", "weak reward model"),
}
"""Logs of the first seed that notebooks/health.ipynb draws: file, stage and title."""


def measure(name: str, seed: int, folder: Path, *options: str) -> Row:
    """Make a run, or find it made, and say what came of it.

    Raises:
        RuntimeError: the program ended otherwise than well.
    """
    stage, out = STAGES[name], folder / f"{name}-{seed}"
    arguments = [stage.program, "--config", str(CONFIGS / stage.config)]
    arguments += ["--run.out", str(out), "--run.seed", str(seed)]
    if stage.splits:
        arguments += ["--task.split_seed", str(seed)]
    for setting, other in stage.starts:
        arguments += [f"--{setting}", str(folder / f"{other}-{seed}")]
    if train([*arguments, "--run.progress", "false", *options]) != 0:
        raise RuntimeError(f"{name} with seed {seed} did not end well")
    log = read_log(out)
    reached = [line[stage.result] for line in log if stage.result in line]
    row: Row = {"stage": name, "seed": seed, "updates": len(log)}
    row |= {stage.result: round(reached[-1], 4), "first": round(reached[0], 4)}
    if "cpu_seconds" in log[-1]:
        row["cpu_seconds"] = round(log[-1]["cpu_seconds"], 1)
    if stage.program == "reward-model":
        row["right_is_best"] = round(right_is_best(out), 4)
    return row


@torch.no_grad()
def right_is_best(run: Path) -> float:
    """The share of held-out sums of which a reward model likes the right answer best.

    Among all numbers below 120: the largest sum is 108.
    """
    settings = json.loads((run / "settings.json").read_text(encoding="utf-8"))
    task, model = task_of(settings), TransformerConfig(**settings["model"])
    _, test = make_sources(task, CPU)
    fitted, _ = load_reward_model(str(run), task, model, CPU)
    numbers = [str(number) for number in range(120)]
    asked = [[Problem("=", number, number) for number in numbers]]
    answers = PromptSource(asked, test.tokenizer).demonstrations()
    right = 0
    for row, problem in enumerate(test.problems):
        prompts = test.prompts(torch.full((len(numbers),), row))
        liked = fitted(answers.tokens, answers.mask, prompts)
        right += numbers[int(liked.argmax())] == problem.gold
    return right / len(test)


def rows(folder: Path) -> Iterator[Row]:
    """All stages with all of their seeds."""
    for name, stage in STAGES.items():
        for seed in stage.seeds:
            yield measure(name, seed, folder)


def kept_log(stage: str, title: str, folder: Path) -> Row:
    """The log of a stage's first seed, thinned; all lines with an accuracy stay."""
    seed = STAGES[stage].seeds[0]
    log = read_log(folder / f"{stage}-{seed}")
    step = max(1, len(log) // 100)
    lines = [
        {name: float(f"{value:.4g}") for name, value in line.items()}
        for number, line in enumerate(log)
        if number % step == 0 or "accuracy" in line
    ]
    about = {"command": COMMAND, "seeds": [seed], "title": title, "log": lines}
    known = circumstances(COMMAND, PACKAGES)
    return about | {name: known[name] for name in ("date", "versions")}


def main() -> None:
    """Make the runs, print a line for each, keep them and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/stages"))
    parser.add_argument("stage", nargs="?", choices=STAGES)
    parser.add_argument("seed", nargs="?", type=int)
    chosen = parser.parse_args()
    if chosen.stage is not None:
        print(json.dumps(measure(chosen.stage, chosen.seed, chosen.folder)))
        return
    seen = []
    for row in rows(chosen.folder):
        seen.append(row)
        print(json.dumps(row), flush=True)
    kept = circumstances(COMMAND, PACKAGES) | {"rows": seen}
    text = json.dumps(kept, indent=2) + "\n"
    write_text(RESULTS, text)
    for name, (stage, title) in LOGS.items():
        save(name, kept_log(stage, title, chosen.folder))
    write_page()


if __name__ == "__main__":
    main()
