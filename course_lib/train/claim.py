"""A folder for one run at a time: what two of them write is neither's."""

from __future__ import annotations

import errno
import os
import sys
import weakref
from pathlib import Path

_own: set[tuple[int, int]] = set()  # device and number of the folders held here


def claim(folder: Path, owner: object) -> None:
    """Hold a folder against other processes for as long as an object lives.

    The system holds it, so that a process that is killed leaves nothing behind. This
    process itself may claim it again. Not on Windows, nor where a file system has no
    such thing.

    Args:
        folder: is there.
        owner: when it is gone, so is the claim.

    Raises:
        ValueError: another process holds it.
    """
    if sys.platform == "win32":
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    about = os.fstat(handle)
    place = (about.st_dev, about.st_ino)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        busy = error.errno in (errno.EAGAIN, errno.EACCES)
        if busy and place not in _own:
            raise ValueError(
                f"run.out={folder} is being written by another process; give another "
                "folder, or wait for its end"
            ) from None
        return
    _own.add(place)
    weakref.finalize(owner, _release, handle, place)


def _release(handle: int, place: tuple[int, int]) -> None:
    os.close(handle)
    _own.discard(place)
