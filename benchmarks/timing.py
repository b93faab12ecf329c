"""How the kernels' benchmarks measure: CPU time, one thread, competitors in turns.

A machine that does other work at the same time spoils wall time, and a second thread
that is put to sleep holds up the first; so what counts is the CPU time of this
process on one thread. The competitors take turns, and a ratio is the median of the
ratios within a turn, which a busy machine disturbs least.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

OURS = "ours"
FEWEST_ROUNDS = 15
ROUNDS_OF_THE_SLOW = 5
WARM_BYTES = 24 * 2**20
_SHORTEST_TURN = 0.004  # CPU seconds that one turn takes at least
Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One input and everything that computes the same from it."""

    name: str
    """What is computed, such as "gae"."""
    shape: tuple[int, ...]
    """The shape of the input."""
    make: Callable[[], Mapping[str, Run]]
    """Makes the input; returns one call of each competitor, ours under `OURS`."""
    memory_unit: int = 0
    """Bytes of the input that extra memory is told in; 0 where none is measured."""


def warm_allocator() -> None:
    """Let the C library keep freed memory of this size instead of giving it back.

    Otherwise each result of some megabytes is fetched page by page from the system
    again, which costs more than computing it.
    """
    for _ in range(3):
        torch.zeros(WARM_BYTES, dtype=torch.uint8)


def measure(case: Case, rounds: int = FEWEST_ROUNDS) -> dict[str, Any]:
    """Time a case; return medians in microseconds, and each over ours.

    Args:
        case: what to run.
        rounds: how many turns each competitor takes; one that needs over a second
            for a call takes `ROUNDS_OF_THE_SLOW`.

    Returns:
        {"kernel", "shape", "microseconds": by name, "over_ours": by name} and, where
        the case has a unit for it, "extra_memory": by name, in that unit
    """
    runs = case.make()
    calls, turns = {}, {}
    for name, run in runs.items():
        calls[name], seconds = _calls_of_a_turn(run)
        turns[name] = rounds if seconds < 1 else min(rounds, ROUNDS_OF_THE_SLOW)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name, run in runs.items():
            if turn < turns[name]:
                times[name].append(_turn(run, calls[name]))
    ours = times[OURS]
    row = {
        "kernel": case.name,
        "shape": list(case.shape),
        "microseconds": {
            name: rounded(1e6 * statistics.median(spent))
            for name, spent in times.items()
        },
        "over_ours": {
            name: rounded(
                statistics.median(a / b for a, b in zip(spent, ours, strict=False))
            )
            for name, spent in times.items()
            if name != OURS
        },
    }
    if case.memory_unit:
        row["extra_memory"] = {
            name: rounded(extra_memory(run) / case.memory_unit)
            for name, run in runs.items()
        }
    return row


def compare(runs: Mapping[str, Callable[[], Tensor]]) -> None:
    """Refuse a competitor whose result is not ours.

    Raises:
        ValueError: names it.
    """
    expected = runs[OURS]()
    for name, run in runs.items():
        if not torch.allclose(run().float(), expected, rtol=1e-4, atol=1e-4):
            raise ValueError(f"{name} computes something else than ours")


def extra_memory(run: Run) -> int:
    """Most bytes that torch held for `run` at one time, beyond what it held before."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else it talks into our lines
    run()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        run()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        watched.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    held = most = 0
    for change in sorted(changes, key=lambda event: event["ts"]):
        held += change["args"]["Bytes"]
        most = max(most, held)
    return most


def _calls_of_a_turn(run: Run) -> tuple[int, float]:
    """How often to call in a turn, and the seconds of one call."""
    run()  # compiles and warms, uncounted
    calls = 1
    while True:
        seconds = _turn(run, calls)
        if seconds * calls >= _SHORTEST_TURN:
            return calls, seconds
        calls = max(2 * calls, int(1.2 * _SHORTEST_TURN / max(seconds, 1e-8)))


def _turn(run: Run, calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - start) / calls


def rounded(value: float) -> float:
    """To three digits, more of which no measurement here has."""
    return float(f"{value:.3g}")


def circumstances(command: str, packages: tuple[str, ...]) -> dict[str, Any]:
    """What has to be known to judge a result: command, machine, versions, date."""
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {
            "system": platform.system(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "load": [round(value, 1) for value in os.getloadavg()]
            if hasattr(os, "getloadavg")
            else None,
        },
        "versions": {"python": platform.python_version()} | installed(packages),
    }


def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of those packages that are there."""
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1] for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0].strip() if names else platform.processor() or platform.machine()
