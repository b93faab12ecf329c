"""The part of docs/BENCHMARKS.md on stages, made of `results/stages.json`."""

from __future__ import annotations

from typing import Any

from benchmarks.report_ppo import where
from course_lib.train.plot import half_interval

PAGE = """\
## Stages of a language model

Written by `python -m benchmarks.stages`: a transformer of 2 layers and width 128 on
two digits plus one, from weights of the seed; the settings are in
`configs/arithmetic/`. SFT is stopped on its way, and each stage below begins with its
policy. Accuracy is the share of the 180 problems that were held out to which the
likeliest answer is right; of a reward model, that of comparisons on problems it has not
seen. Each seed holds out problems of its own, and the settings were chosen with
others; but that the reward model is fitted up to an accuracy, and not for a number of
epochs, was decided when these seeds had needed 7 to 45 of them. Means over {seeds}
seeds, with the 95 % interval of Student's t; CPU seconds are the slowest seed's, on one
thread. PPO and GRPO with the verifier have the same number of responses and epochs, and
the same bonus on entropy.

{where}

{table}

{best}

{token}
"""

BEST = """\
Of all numbers below 120 the reward model likes the right one best for {many}
of the held-out sums, the one fitted to few comparisons for {few}: less
than either decides of comparisons of what SFT writes. A price on leaving
SFT's policy keeps PPO among answers that the model was shown; without one it
finds the others."""

TOKEN = """\
Without SFT and without prompts, on a reward of 1 for one of 64 tokens
(`configs/toy/token-reward.yaml`): from {first:.3f} to {last:.3f} of the tokens in
{updates} updates, {seconds:.0f} CPU seconds."""

NAMES = {
    "sft": "SFT",
    "ppo": "PPO, verifier",
    "grpo": "GRPO, verifier",
    "reward-model": "reward model",
    "ppo-reward-model": "PPO, that reward model",
    "reward-model-few": "reward model, few comparisons",
    "ppo-fooled": "PPO, that one, beta = 0",
}


def stages_part(record: dict[str, Any]) -> str:
    """A line for each stage."""
    rows = record["rows"]
    lines = ["| stage | accuracy | each seed | updates | CPU s |", "|---" * 5 + "|"]
    for stage, name in NAMES.items():
        own = of(rows, stage)
        if not own:
            continue
        seen = [row.get("accuracy", row.get("held_out_accuracy")) for row in own]
        times = [row["cpu_seconds"] for row in own if "cpu_seconds" in row]
        lines.append(
            f"| {name} | {interval(seen)} | {', '.join(f'{x:.3f}' for x in seen)} | "
            f"{max(row['updates'] for row in own)} | "
            f"{f'{max(times):.0f}' if times else ''} |"
        )
    token = of(rows, "token-reward")
    return PAGE.format(
        seeds=len({row["seed"] for row in rows}),
        where=where(record),
        table="\n".join(lines),
        best=BEST.format(
            many=interval([row["right_is_best"] for row in of(rows, "reward-model")]),
            few=interval(
                [row["right_is_best"] for row in of(rows, "reward-model-few")]
            ),
        ),
        token=TOKEN.format(
            first=max(row["first"] for row in token),
            last=min(row["score"] for row in token),
            updates=max(row["updates"] for row in token),
            seconds=max(row["cpu_seconds"] for row in token),
        ),
    )


def of(rows: list[dict[str, Any]], stage: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["stage"] == stage]


def interval(values: list[float]) -> str:
    """Mean ± half of the interval, where there is one."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{sum(values) / len(values):.3f} ± {half_interval(values):.3f}"
