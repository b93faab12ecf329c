"""Results of long runs, each with the command, seeds, versions and date behind it."""

from __future__ import annotations

import difflib
import json
from importlib import resources
from typing import Any


def names() -> tuple[str, ...]:
    """Return the names of all stored runs, in order."""
    files = (file.name for file in resources.files(__package__).iterdir())
    return tuple(sorted(n.removesuffix(".json") for n in files if n.endswith(".json")))


def load(name: str) -> dict[str, Any]:
    """Return the stored run called `name`, as its "command" has made it.

    Args:
        name: such as "ppo"; `names()` lists them.

    Returns:
        What the run's file holds: "command", "date", "versions" and "seeds" say what it
        is, the rest is its maker's. Of `benchmarks.chapter_runs`: "config"; "env_steps"
        [N] and "returns" [10 seeds][N], its curves, each point the mean return of the
        last 10 episodes, None where there is none; "solved_at" [10], the steps at which
        that first reached 475, or None; "records", every number that was logged, by
        name, means over the seeds.

    Raises:
        ValueError: no such run, with the nearest names.
    """
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.0)
        raise ValueError(f"name: no stored run {name!r}; near: {', '.join(near)}")
    file = resources.files(__package__) / f"{name}.json"
    run: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return run
