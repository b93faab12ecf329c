"""The part of docs/BENCHMARKS.md on RLHF, made of `benchmarks/results/rlhf.json`."""

from __future__ import annotations

from typing import Any

from benchmarks.report_ppo import by_competitor, ratio, seconds, where

LOOP = "loop per row"

PAGE = """\
## RLHF

Written by `python course.py bench rlhf`: {num_updates} updates of PPO on the toy, 256
responses of 8 tokens in each, 4 gradient steps on all of them; CPU seconds on one
thread, medians over the seeds. J* - J, the largest of the seeds', is what each trained
policy lacks to the best one there is, over all 8^8 responses.

{where}

{table}

The loop per row (`benchmarks/rlhf_peers.py`) is the usual small script: torch's GRU
behind an embedding, torch's distributions, a second pass over what was just sampled,
and for each of the 256 responses a loop over its steps, which takes {rows} % of its
time. Ours keeps what sampling has already said, estimates all rows at once, and has the
GRU's gradient written out. Of what is left {products} % are matrix products; the rest
is small operations, some hundred for each gradient step, which take longer to start and
to fetch their numbers than to compute.
"""


def rlhf_part(record: dict[str, Any]) -> str:
    """A line for each competitor."""
    rows = record["rows"]
    lines = ["| who | seeds | CPU s | over ours | J* - J |", "|---|---|---|---|---|"]
    for who, own in by_competitor(rows).items():
        lines.append(
            f"| {who} | {len(own)} | {seconds(own):.1f} | {ratio(rows, who):.2f} | "
            f"{max(row['gap'] for row in own):.5f} |"
        )
    return PAGE.format(
        num_updates=record["num_updates"],
        where=where(record),
        table="\n".join(lines),
        rows=round(100 * record["share_of_rows"]),
        products=round(100 * record["share_of_products"]),
    )
