"""Log-probabilities, whitening and group advantages beside how others write them.

    python benchmarks/kernel_cases_losses.py

Each case makes its inputs when it is asked to, since the largest are a gigabyte, and
gives the competitors as functions without arguments. The peers are written here from
what the libraries do: TRL and verl go over the rows of a batch with logsumexp, TRL
whitens with products of a boolean mask, and RLOO and GRPO are loops over groups.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from course_lib.kernels import (
    group_relative_advantages,
    leave_one_out_advantages,
    token_log_probs,
    whiten,
)

OURS = "ours"
Run = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One thing to measure, ours beside its peers."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[], dict[str, Run]]
    """Makes the inputs; returns what to run, "ours" first."""
    against: str
    """The peer that the target speaks of."""
    faster: float
    """How many times faster than that peer ours has to be."""
    memory_unit: int = 0
    """Bytes of the input that extra memory is told in; 0 where none is measured."""
    memory_limit: float = 0.0
    """How many of these units ours may take beside the input."""


def cases() -> list[Case]:
    """Every case of this file, with its targets."""
    found = []
    for shape in ((8, 256, 50257), (64, 128, 32000), (256, 8, 8)):
        small = shape[-1] < 1000
        unit = 0 if small else 4 * torch.Size(shape).numel()
        for backward in (False, True):
            found.append(
                Case(
                    "token_log_probs" + (", forward and backward" if backward else ""),
                    shape,
                    lambda shape=shape, backward=backward: _log_probs(shape, backward),
                    "log_softmax + gather",
                    3.0 if small and not backward else 1.3 if backward else 1.5,
                    unit,
                    1.05 if backward else 0.02,
                )
            )
    found.append(Case("whiten", (256, 1024), _whitening, "boolean products", 2.2))
    for name in ("leave_one_out_advantages", "group_relative_advantages"):
        found.append(
            Case(name, (1024, 4), lambda name=name: _groups(name), "loop", 20.0)
        )
    return found


def extra_memory(run: Run) -> int:
    """Most bytes that `run` held at one time beyond what was held before it."""
    run()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        run()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        watched.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    held = peak = 0
    for event in sorted(
        (e for e in events if e.get("name") == "[memory]"), key=lambda e: e["ts"]
    ):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak


def log_softmax_gather(logits: Tensor, tokens: Tensor) -> Tensor:
    """The plain form, which makes a second tensor of the logits' size."""
    return logits.log_softmax(-1).gather(-1, tokens[..., None]).squeeze(-1)


def logsumexp_by_rows(logits: Tensor, tokens: Tensor) -> Tensor:
    """A row of the batch at a time, as TRL and verl do it in float32."""
    rows = [
        row.gather(-1, chosen[:, None]).squeeze(-1) - row.logsumexp(-1)
        for row, chosen in zip(logits, tokens, strict=True)
    ]
    return torch.stack(rows)


def boolean_whiten(x: Tensor, mask: Tensor) -> Tensor:
    """Products with a boolean mask and three masked means of it, as in TRL."""

    def mean(values: Tensor) -> Tensor:
        return (values * mask).sum() / mask.sum()

    middle = mean(x)
    var = mean((x - mean(x)) ** 2)
    count = mask.sum()
    var = var * (count / (count - 1))
    return (x - middle) * torch.rsqrt(var + 1e-8)


def leave_one_out_loop(scores: Tensor, groups: Tensor) -> Tensor:
    """Group by group."""
    advantages = torch.empty_like(scores)
    for group in groups.unique():
        mine = groups == group
        same = scores[mine]
        advantages[mine] = same - (same.sum() - same) / (len(same) - 1)
    return advantages


def group_relative_loop(scores: Tensor, groups: Tensor) -> Tensor:
    """Group by group."""
    advantages = torch.empty_like(scores)
    for group in groups.unique():
        mine = groups == group
        same = scores[mine]
        advantages[mine] = (same - same.mean()) / (same.std() + 1e-4)
    return advantages


def _log_probs(shape: tuple[int, ...], backward: bool) -> dict[str, Run]:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(shape, generator=generator)
    tokens = torch.randint(shape[-1], shape[:-1], generator=generator)
    logits.requires_grad_(backward)

    def runs(kernel: Callable[[Tensor, Tensor], Tensor]) -> Run:
        def run() -> None:
            log_probs = kernel(logits, tokens)
            if backward:
                log_probs.sum().backward()
                logits.grad = None

        return run

    return {
        OURS: runs(token_log_probs),
        "log_softmax + gather": runs(log_softmax_gather),
        "logsumexp by rows": runs(logsumexp_by_rows),
    }


def _whitening() -> dict[str, Run]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((256, 1024), generator=generator)
    mask = torch.rand(x.shape, generator=generator) < 0.7
    return {
        OURS: lambda: whiten(x, mask, unbiased=True),
        "boolean products": lambda: boolean_whiten(x, mask),
    }


def _groups(name: str) -> dict[str, Run]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4096, generator=generator)
    groups = torch.arange(1024).repeat_interleave(4)
    groups = groups[torch.randperm(4096, generator=generator)]
    alone = name == "leave_one_out_advantages"
    kernel = leave_one_out_advantages if alone else group_relative_advantages
    loop = leave_one_out_loop if alone else group_relative_loop
    rows = scores.view(1024, 4)
    return {
        OURS: lambda: kernel(scores, groups),
        "ours, a group a row": lambda: kernel(rows),
        "loop": lambda: loop(scores, groups),
    }


def _median_times(runs: dict[str, Run], seconds: float) -> dict[str, float]:
    """Median CPU seconds of a call, the competitors in turns of 5 ms or one call."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    calls = {name: 1 + int(5e-3 / _turn(run, 3)) for name, run in runs.items()}
    start = time.monotonic()
    while len(times[OURS]) < 5 or time.monotonic() - start < seconds:
        for name, run in runs.items():
            times[name].append(_turn(run, calls[name]))
    return {name: statistics.median(values) for name, values in times.items()}


def _turn(run: Run, calls: int) -> float:
    before = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - before) / calls


def main() -> None:
    """Measure every case once and print it beside its target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--only", default="", help="part of a case's name")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.empty(7_500_000)  # once freed, glibc keeps results of up to 30 MB mapped
    for case in cases():
        if chosen.only not in case.name:
            continue
        runs = case.make()
        medians = _median_times(runs, chosen.seconds)
        print(f"{case.name} {[*case.shape]}")
        for name, median in medians.items():
            print(f"  {name:24}{median * 1e3:12.3f} ms", end="")
            if case.memory_unit:
                share = extra_memory(runs[name]) / case.memory_unit
                print(f"{share:9.3f} x the logits", end="")
            print()
        ratio = medians[case.against] / medians[OURS]
        print(f"  {ratio:.2f} x {case.against}, target {case.faster}")
        del runs
        gc.collect()


if __name__ == "__main__":
    main()
