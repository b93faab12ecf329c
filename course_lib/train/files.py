"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in its place in one step.

    It is written beside, brought to the disk, and only then given its name, so that a
    process killed at any moment leaves the old one or the new one.

    Args:
        path: where it will be; its folder is made.
        content: all of it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".part")
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Bring the new name to the disk too, where folders can be opened."""
    with contextlib.suppress(OSError):  # Windows has no such thing
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
