"""Write docs/BENCHMARKS.md from the kept results, and nothing from memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import kernel_cases_log_probs as log_probs
from benchmarks import kernel_cases_losses as losses
from benchmarks import report_words as words
from benchmarks.report_ppo import ppo_part, reinforce_part
from benchmarks.report_rlhf import rlhf_part
from benchmarks.report_stages import stages_part
from benchmarks.timing import ROUNDS_OF_THE_SLOW, WARM_BYTES, rounded
from tools.files import write_text

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "BENCHMARKS.md"


def write_page() -> None:
    """Make the page of all results that are there."""
    record = json.loads((RESULTS / "kernels.json").read_text(encoding="utf-8"))
    machine = record["machine"]
    how = words.HOW.format(
        processor=machine["processor"],
        system=machine["system"],
        cores=machine["cores"],
        load=machine["load"][0] if machine["load"] else "unknown",
        date=record["date"],
        rounds=record["rounds"],
        slow=ROUNDS_OF_THE_SLOW,
        kept=WARM_BYTES // 2**20,
        seconds=record["seconds"],
        versions=versions(record),
    )
    parts = [how, *kernel_parts(record["rows"])]
    if (RESULTS / "device.json").exists():
        parts.append(device_part())
    later = {
        "ppo": ppo_part,
        "reinforce": reinforce_part,
        "rlhf": rlhf_part,
        "stages": stages_part,
    }
    for name, part in later.items():
        if (RESULTS / f"{name}.json").exists():
            runs = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
            parts.append(part(runs))
    write_text(PAGE, "\n".join(parts))


def kernel_parts(rows: list[Row]) -> list[str]:
    """The sections about GAE, log-probabilities, whitening, groups and losses."""

    def of(*names: str) -> list[Row]:
        return [row for row in rows if row["kernel"] in names]

    gae, chosen = of("gae"), of(log_probs.FORWARD, log_probs.BOTH)
    return [
        words.GAE.format(
            times=table(gae, times),
            ratios=table(gae, ratios),
            torch=table(gae, over_torch),
        ),
        words.LOG_PROBS.format(
            times=table(chosen, times, labels),
            ratios=table(chosen, ratios, labels),
            memory=table(chosen, lambda row: row["extra_memory"], labels),
        ),
        words.WHITENING.format(times=both(of(losses.WHITEN))),
        words.GROUPS.format(
            times=both(of(losses.RLOO, losses.GRPO)), groups=losses.GROUPS[0]
        ),
        words.LOSSES.format(times=both(of(losses.POLICY, losses.VALUE))),
    ]


def device_part() -> str:
    """What was kept of the last run on a GPU."""
    record = json.loads((RESULTS / "device.json").read_text(encoding="utf-8"))
    lines = ["| kernel | shape | microseconds |", "|---|---|---|"]
    for row in record["rows"]:
        times = [f"{k} {number(spent)}" for k, spent in row["microseconds"].items()]
        if "steps_per_second" in row:
            times.append(f"{number(row['steps_per_second'])} steps a second")
        lines.append(f"| {row['name']} | {row['shape']} | {', '.join(times)} |")
    return words.DEVICE.format(
        device=record["machine"]["device"],
        date=record["date"],
        seconds=record["seconds"],
        versions=versions(record),
        agree="yes" if all(row["right"] for row in record["checks"]) else "no",
        times="\n".join(lines),
    )


def versions(record: Row) -> str:
    return ", ".join(
        f"{name} {version}" for name, version in record["versions"].items()
    )


def times(row: Row) -> dict[str, float]:
    return row["microseconds"]


def ratios(row: Row) -> dict[str, float]:
    return row["over_ours"]


def over_torch(row: Row) -> dict[str, float]:
    """Others' times over those of the torch engine."""
    spent = times(row)
    return {
        name: rounded(spent[name] / spent["ours, engine torch"])
        for name in spent
        if name.startswith(("plain", "torchrl", "stable"))
    }


def both(rows: list[Row]) -> str:
    """Times, and behind them the ratios, in one table with a line for each case."""
    return table(
        rows,
        lambda row: times(row) | {f"{k}, × ours": v for k, v in ratios(row).items()},
        labels,
    )


def shape(row: Row) -> str:
    return "[" + ", ".join(map(str, row["shape"])) + "]"


def labels(row: Row) -> str:
    return f"{row['kernel']} {shape(row)}"


def table(
    rows: list[Row],
    figures: Callable[[Row], dict[str, float]],
    label: Callable[[Row], str] = shape,
) -> str:
    """A Markdown table: a line for each row, a column for each competitor."""
    names = list(figures(rows[0]))
    lines = ["| input | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        values = figures(row)
        shown = [number(values[name]) if name in values else "" for name in names]
        lines.append(f"| {label(row)} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Three digits, and thousands apart."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"
