"""Write docs/BENCHMARKS.md from the kept results, and nothing from memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "BENCHMARKS.md"

HOW = """\
# Benchmarks

Written by `python course.py bench kernels`; not edited by hand. The same command makes
the figures anew, on your machine.

Times are microseconds of CPU time for one call, on one thread: {processor}, {system},
{cores} cores, load {load}, on {date}. All competitors take turns in one process;
{rounds} rounds (3 of what takes over a second), medians; a ratio is the median of the
ratios within a round. The C library was made to keep freed memory first, because
fetching a result's pages anew costs more than the arithmetic. Versions: {versions}.
"""

GAE = """\
## GAE

`gae` on a CPU with `engine="auto"` (numba), episodes that terminate at a step with
probability .02, float32, [rows, steps]. Each peer is its package's own function and has
its inputs ready in its own layout and dtype. The plain torch loop is the recursion of
TRL, verl and OpenRLHF, which work on all rows one step at a time. The streaming bound
reads once what GAE reads and writes once what it writes, in a compiled loop without the
chain of sums.

{times}

The same as multiples of ours (above 1: slower than ours):

{ratios}

`engine="torch"`, which needs neither numba nor triton, beside the other pure tensor
code and Stable-Baselines3's NumPy loop, as multiples of its own time:

{torch}

What is left to the streaming bound: up to some thousand numbers, about six
microseconds to look at the arguments and make tensors of results, which the bound does
not do. From there on the chain of sums: a step has to wait for the one after it, and
four rows side by side hide most of that wait, not all. For arrays beyond the caches
the memory is the larger part of both.
"""


DEVICE = """\
## On a GPU

Written by `python course.py bench device`: {device}, {date}, {seconds} s in all,
versions {versions}. All kernels agree with their float64 results on the CPU: {agree}.
Microseconds by the device's own events; a copy moves as many bytes as the kernel has to
read and write.

{times}
"""


def write_page() -> None:
    """Make the page of all results that are there."""
    record = json.loads((RESULTS / "kernels.json").read_text(encoding="utf-8"))
    machine = record["machine"]
    parts = [
        HOW.format(
            processor=machine["processor"],
            system=machine["system"],
            cores=machine["cores"],
            load=machine["load"][0] if machine["load"] else "unknown",
            date=record["date"],
            rounds=record["rounds"],
            versions=", ".join(f"{k} {v}" for k, v in record["versions"].items()),
        )
    ]
    rows = [row for row in record["rows"] if row["kernel"] == "gae"]
    parts.append(
        GAE.format(
            times=table(rows, lambda row: row["microseconds"]),
            ratios=table(rows, lambda row: row["over_ours"]),
            torch=table(rows, over_torch),
        )
    )
    if (RESULTS / "device.json").exists():
        parts.append(device_part())
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join(parts), encoding="utf-8", newline="\n")


def device_part() -> str:
    """What was kept of the last run on a GPU."""
    record = json.loads((RESULTS / "device.json").read_text(encoding="utf-8"))
    lines = ["| kernel | shape | microseconds |", "|---|---|---|"]
    for row in record["rows"]:
        times = [f"{k} {number(spent)}" for k, spent in row["microseconds"].items()]
        if "steps_per_second" in row:
            times.append(f"{number(row['steps_per_second'])} steps a second")
        lines.append(f"| {row['name']} | {row['shape']} | {', '.join(times)} |")
    return DEVICE.format(
        device=record["machine"]["device"],
        date=record["date"],
        seconds=record["seconds"],
        versions=", ".join(f"{k} {v}" for k, v in record["versions"].items()),
        agree="yes" if all(row["right"] for row in record["checks"]) else "no",
        times="\n".join(lines),
    )


def over_torch(row: dict[str, Any]) -> dict[str, float]:
    """Others' times over those of the torch engine."""
    times = row["microseconds"]
    return {
        name: float(f"{times[name] / times['ours, engine torch']:.3g}")
        for name in times
        if name.startswith(("plain", "torchrl", "stable"))
    }


def table(rows: list[dict[str, Any]], figures: Any) -> str:
    """A Markdown table: a line for each shape, a column for each competitor."""
    names = list(figures(rows[0]))
    lines = ["| shape | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in rows:
        values = figures(row)
        shown = [number(values[name]) if name in values else "" for name in names]
        shape = "[" + ", ".join(map(str, row["shape"])) + "]"
        lines.append(f"| {shape} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Three digits, and thousands apart."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"
