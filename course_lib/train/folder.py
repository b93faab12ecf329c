"""What lies in a run's folder, and whether a run may go on with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from course_lib.algorithms import ranks

CHECKPOINT, SETTINGS, LOCK = "checkpoint.pt", "settings.json", ".lock"
_ANYTIME = {"out", "fresh", "progress", "threads", "tensorboard"}
_ANYTIME |= {"eval_every", "checkpoint_every"}


def hold(folder: Path) -> BaseFileLock:
    """Hold a folder against other processes, as long as what is returned lives.

    The system holds it: a process that is killed leaves it free.

    Raises:
        ValueError: another process holds it.
    """
    lock = FileLock(folder / LOCK, is_singleton=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"run.out={folder} is being written by another process; give another "
            "folder, or wait for its end"
        ) from None
    return lock


def refuse_another_run(
    folder: Path, saved: dict[str, Any], program: str, settings: dict[str, Any]
) -> None:
    """Go on with a run of the same program, processes and settings only.

    Args:
        folder: where it lies.
        saved: its checkpoint.
        program: that wants to go on.
        settings: its own.

    Raises:
        ValueError: with what is another one, and the way on.
    """
    place, another = f"run.out={folder}", "another folder"
    if saved["program"] != program:
        raise ValueError(
            f"{place} holds a run of {saved['program']}, not of {program}; "
            f"give {another}, or --run.fresh true"
        )
    if (processes := saved.get("processes", ranks.world_size())) != (
        ranks.world_size()
    ):
        raise ValueError(
            f"{place} holds a run of {processes} processes, got "
            f"{ranks.world_size()}: torchrun --nproc_per_node={processes} goes on "
            f"with it; or give {another}, or --run.fresh true"
        )
    theirs = _flat(json.loads(saved["settings"]))
    ours = _flat(json.loads(json.dumps(settings)))  # a tuple is a list there
    anytime = {f"run.{one}" for one in _ANYTIME}
    # Where the step size stays as it is, more epochs change none that was made.
    # Of what learns from its own responses, epochs are another thing.
    fitted = program in ("sft", "reward-model")
    if fitted and not theirs["algorithm.anneal_learning_rate"]:
        anytime.add("algorithm.num_epochs")
    apart = [
        f"{name}={theirs.get(name)!r} there and {ours.get(name)!r} now"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name) and name not in anytime
    ]
    if apart:
        way = ""
        if any(one.startswith("algorithm.num_updates=") for one in apart):
            way = ". The step size falls over all updates, so that more of them "
            way += "would be another run"
            if "start" in settings:
                way += f": begin one with --start.policy {folder}"
        raise ValueError(
            f"{place} holds a run of other settings: {', '.join(apart)}; give "
            f"{another}, or --run.fresh true{way}"
        )


def _flat(nested: dict[str, Any], start: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{start}{name}.")
        else:
            flat[f"{start}{name}"] = value
    return flat
