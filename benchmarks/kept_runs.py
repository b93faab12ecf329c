"""What the makers of kept runs share: one small file for each run, and a command line.

A run takes minutes or hours and its file is read by chapters, so it is written whole or
not at all, with the command, the versions and the date that made it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from benchmarks.timing import warm_allocator
from tools.files import write_text

FOLDER = Path(__file__).resolve().parent.parent / "course_lib" / "data"
PACKAGES = ("torch", "numpy")


def save(name: str, kept: dict[str, Any]) -> int:
    """Put a run in its place in one step, and return its size in bytes.

    Raises:
        ValueError: a number in it that is not finite, which JSON cannot hold.
    """
    text = json.dumps(kept, separators=(",", ":"), allow_nan=False) + "\n"
    write_text(FOLDER / f"{name}.json", text)
    return len(text)


def plain(config: Any) -> dict[str, Any]:
    """A config as JSON can hold it, without its seeds, which a run keeps by itself."""
    return {
        name: str(value) if value == math.inf else value
        for name, value in dataclasses.asdict(config).items()
        if name not in ("seed", "seeds")
    }


def main(
    description: str,
    names: Collection[str],
    make: Callable[[str], dict[str, Any]],
    arguments: list[str] | None,
) -> None:
    """Make the runs that the command line names, or all, on one thread."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("names", nargs="*", metavar="NAME", help="runs to make")
    parser.add_argument("--list", action="store_true", help="print the names")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.names) - set(names)
    if unknown:
        parser.error(f"no run called {', '.join(sorted(unknown))}; see --list")
    if chosen.list:
        print("\n".join(names))
        return
    torch.set_num_threads(1)
    warm_allocator()
    for name in chosen.names or names:
        kept = make(name)
        size = save(name, kept)
        took = kept["cpu_seconds"]
        print(f"{name}: {took} CPU seconds, {size / 1000:.0f} KB", flush=True)
