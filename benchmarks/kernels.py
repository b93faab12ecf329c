"""Time of the kernels beside their peers, in one run: `python course.py bench kernels`.

The results go to `benchmarks/results/kernels.json`, and tables of them to
`docs/BENCHMARKS.md`. A peer that is not installed is left out and named. The largest
case holds about 5 GB; the whole run takes some three minutes of CPU time.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from benchmarks import kernel_cases_gae, kernel_cases_log_probs, kernel_cases_losses
from benchmarks.report import write_page
from benchmarks.timing import FEWEST_ROUNDS, circumstances, measure, warm_allocator
from tools.files import write_text

# Each module has `cases()`, which yields them, and the `PACKAGES` they compare with.
CASES = (kernel_cases_gae, kernel_cases_log_probs, kernel_cases_losses)
RESULTS = Path(__file__).parent / "results" / "kernels.json"
COMMAND = "python course.py bench kernels"


def main(arguments: list[str] | None = None) -> None:
    """Measure every case, print a line for each, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS)
    parser.add_argument("--dry", action="store_true", help="print, keep nothing")
    chosen = parser.parse_args(arguments)
    began = time.process_time()
    torch.set_num_threads(1)
    warm_allocator()
    rows = []
    for module in CASES:
        for case in module.cases():
            rows.append(measure(case, chosen.rounds))
            print(json.dumps(rows[-1]), flush=True)
    packages = tuple(dict.fromkeys(name for part in CASES for name in part.PACKAGES))
    record = circumstances(COMMAND, packages)
    seconds = round(time.process_time() - began)
    record |= {"rounds": chosen.rounds, "seconds": seconds, "rows": rows}
    missing = sorted(set(packages) - set(record["versions"]))
    if missing:
        print("Not installed, so left out: " + ", ".join(missing))
    if not chosen.dry:
        text = json.dumps(record, indent=2) + "\n"
        write_text(RESULTS, text)
        write_page()


if __name__ == "__main__":
    main()
