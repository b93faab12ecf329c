"""Checkpoints: written whole or not at all, read without executing anything."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import torch

from course_lib.train.files import replace_file

MAGIC = b"ppo-course checkpoint 1\n"
"""What a checkpoint begins with; the number grows when an old one cannot be read."""
_DIGEST = hashlib.sha256().digest_size


class CheckpointError(ValueError):
    """A file that is no whole checkpoint of this course; says which and why."""


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint in one step: whoever reads the path finds a whole one.

    Args:
        path: where it will be.
        state: tensors, numbers, texts, lists and dicts of them.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    replace_file(path, MAGIC + hashlib.sha256(payload).digest() + payload)


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint; only tensors and plain values come out of it.

    Args:
        path: as it was saved.
        device: where its tensors are wanted.

    Raises:
        CheckpointError: no such file, another kind of file, one that was cut off or
            changed, one that holds more than data.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if not content.startswith(MAGIC):
        kind = (
            "cut off" if MAGIC.startswith(content) else "no checkpoint of this course"
        )
        raise CheckpointError(f"{path}: {kind}")
    start = len(MAGIC) + _DIGEST
    digest, payload = content[len(MAGIC) : start], content[start:]
    if hashlib.sha256(payload).digest() != digest:
        raise CheckpointError(
            f"{path}: cut off or changed since it was written; its checksum is not "
            "that of its content"
        )
    try:
        state = torch.load(io.BytesIO(payload), map_location=device, weights_only=True)
    except Exception as error:  # whatever torch meets in it, for anybody can seal one
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(
            f"{path}: holds something else than tensors and plain values, and nothing "
            f"of it was executed: {reason[:200]}"
        ) from None
    if not isinstance(state, dict):
        raise CheckpointError(f"{path}: holds a {type(state).__name__}, not a run")
    return state


def load_run(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read the checkpoint of a program's run.

    Args:
        path, device: as for `load_checkpoint`.

    Raises:
        CheckpointError: as there, and for a state that no program has saved.
    """
    saved = load_checkpoint(path, device)
    for name in ("program", "settings", "state"):
        if name not in saved:
            raise CheckpointError(f"{path}: holds no run of a program: no {name!r}")
    return saved
