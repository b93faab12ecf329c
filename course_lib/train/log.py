"""The log of a run: a JSON line for each update, and TensorBoard where it is wanted."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

from course_lib.algorithms.history import Record
from course_lib.train.files import replace_file

LOG = "metrics.jsonl"


class Log:
    """The log in a run's folder.

    Args:
        folder: of the run.
        tensorboard: write for TensorBoard too.

    Raises:
        ValueError: TensorBoard is wanted and not installed.
    """

    def __init__(self, folder: Path, tensorboard: bool) -> None:
        self.folder, self.tensorboard = folder, tensorboard
        self._writer: Any = None
        self._lines = 0
        if tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise ValueError(
                "run.tensorboard needs the package tensorboard, which is not "
                "installed: pip install tensorboard"
            )

    def begin(self, records: list[Record]) -> None:
        """A log of these records and no other."""
        text = "".join(map(_line, records))
        replace_file(self.folder / LOG, text.encode())
        self._lines = len(records)
        if self.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # What a killed run had told beyond these records is not shown.
            self._writer = SummaryWriter(self.folder, purge_step=len(records))

    def add(self, record: Record) -> None:
        """One more line."""
        with open(self.folder / LOG, "a", encoding="utf-8", newline="\n") as log:
            log.write(_line(record))
        if self._writer is not None:
            for name, value in record.items():
                self._writer.add_scalar(name, value, self._lines)
            self._writer.flush()
        self._lines += 1

    def remove(self) -> None:
        """Nothing is left of it."""
        (self.folder / LOG).unlink(missing_ok=True)
        for events in self.folder.glob("events.out.tfevents.*"):
            events.unlink()


def read_log(folder: str | Path) -> list[dict[str, float]]:
    """The records of a run's log; null is NaN, and half a line at the end is left out.

    Raises:
        ValueError: no log there, or a line in its middle that is none.
    """
    path = Path(folder) / LOG
    if not path.exists():
        raise ValueError(f"{path}: there is no log")
    found = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                break  # a run was killed in the middle of writing it
            raise ValueError(f"{path}, line {number}: {error.msg}") from None
        found.append({k: math.nan if v is None else v for k, v in record.items()})
    return found


def _line(record: Record) -> str:
    plain = {k: v if math.isfinite(v) else None for k, v in record.items()}
    return json.dumps(plain) + "\n"
