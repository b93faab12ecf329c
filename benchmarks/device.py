"""The kernels on a GPU: right, and how near to the memory's speed.

    python course.py bench device

Under four minutes on one CUDA device. First every kernel is compared with itself in
float64 on the CPU; then GAE and log-probabilities are timed by the device's own
events beside a plain loop, `torch.compile` and a copy of as many bytes; last, batched
CartPole collects a rollout and its advantages without leaving the device, PPO trains on
it, and RLHF on the toy. Without CUDA it says so and ends; `--cpu` does the first part
there, on the torch engine, and a little of RLHF.

A chapter adds a line to `CHECKS` for a new kernel and one to `TIMINGS` for a new time.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from benchmarks.device_checks import CHECKS, RECURRENCES, largest_difference
from benchmarks.device_rlhf import time_rlhf
from benchmarks.device_times import TIMINGS
from benchmarks.report import write_page
from benchmarks.timing import circumstances
from course_lib.kernels import Engine
from tools.files import write_text

Timing = Callable[[torch.device], Iterator[dict[str, Any]]]
RESULTS = Path(__file__).parent / "results" / "device.json"
COMMAND = "python course.py bench device"
DEVICE = torch.device("cuda")
BUDGET = 180.0
"""Seconds after which no further time is begun; the longest takes half a minute."""
SHORT = (functools.partial(time_rlhf, shapes=((16, 8),), num_updates=2),)
"""What is timed on a CPU: nothing to learn from, but it has run."""
TOLERANCE = 2e-6
"""Largest error of float32 over the largest result of a check (or over 1)."""


def main(arguments: list[str] | None = None) -> int:
    """Check, measure, print, and keep what was measured on a GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="a short form on the CPU")
    parser.add_argument("--dry", action="store_true", help="print, keep nothing")
    chosen = parser.parse_args(arguments)
    if not chosen.cpu and not torch.cuda.is_available():
        print("There is no CUDA device here, so nothing was measured.")
        return 0
    began = time.monotonic()
    device = torch.device("cpu") if chosen.cpu else DEVICE
    engines: tuple[Engine, ...] = ("torch",) if chosen.cpu else ("auto", "torch")
    checks = check(device, engines)
    wrong = [row["name"] for row in checks if not row["right"]]
    times = measure(began, device, SHORT if chosen.cpu else TIMINGS)
    print("All kernels agree." if not wrong else "Wrong: " + ", ".join(wrong))
    if not chosen.cpu and not chosen.dry:
        record = circumstances(COMMAND, ("torch", "triton"))
        record["machine"]["device"] = torch.cuda.get_device_name()
        record |= {
            "seconds": round(time.monotonic() - began),
            "checks": checks,
            "rows": times,
        }
        text = json.dumps(record, indent=2) + "\n"
        write_text(RESULTS, text)
        write_page()
    return 1 if wrong else 0


def check(device: torch.device, engines: tuple[Engine, ...]) -> list[dict[str, Any]]:
    """Compare each kernel on the device with float64 on the CPU, relatively."""
    rows = []
    for name, run in CHECKS.items():
        for engine in engines if name in RECURRENCES else engines[:1]:
            found = largest_difference(run, device, engine)
            row = {
                "name": f"{name}, engine {engine}" if name in RECURRENCES else name,
                "difference": float(f"{found:.2g}"),
                "right": found < TOLERANCE,
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def measure(
    began: float, device: torch.device, timings: tuple[Timing, ...]
) -> list[dict[str, Any]]:
    """Take the times one after the other, as long as there is time for another."""
    rows = []
    for row in chain.from_iterable(timing(device) for timing in timings):
        rows.append(row)
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
        if time.monotonic() - began > BUDGET:
            print(f"Over {BUDGET:.0f} s, so nothing more was timed.")
            break
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
