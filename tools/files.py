"""Reads and writes the tree's files alike on every system."""

import hashlib
import os
import tempfile
from pathlib import Path


class BuildError(Exception):
    """A build that cannot go on; says which file and cell, and what to do."""


def read_text(path: Path) -> str:
    """Return a file's text with LF line ends, or "" where there is no file."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes, a Windows checkout's line ends turned into LF."""
    return path.read_bytes().replace(b"\r\n", b"\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with LF in one step, so that an interrupted build leaves no half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(temporary).chmod(0o644)  # mkstemp makes it private
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def digest(*parts: str | bytes) -> str:
    """Return a SHA-256 in which the borders between the parts count."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8") if isinstance(part, str) else part
        whole.update(b"%d\n" % len(data) + data)
    return whole.hexdigest()
