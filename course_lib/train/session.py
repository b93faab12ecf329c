"""A run on disk: its settings, log and checkpoint, and how it is taken up again."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from filelock import BaseFileLock, FileLock, Timeout

from course_lib.algorithms import ranks
from course_lib.algorithms.history import Record
from course_lib.kernels.arguments import (
    require_fields,
    require_positive_int,
    require_text,
)
from course_lib.train.checkpoint import load_run, save_checkpoint
from course_lib.train.interrupt import Interrupted, Interruption
from course_lib.train.processes import own_device

CHECKPOINT, LOG, SETTINGS = "checkpoint.pt", "metrics.jsonl", "settings.json"
LOCK = ".lock"
_ANYTIME = {"out", "fresh", "progress", "threads", "tensorboard"}
_ANYTIME |= {"eval_every", "checkpoint_every"}


@dataclass(frozen=True)
class RunConfig:
    """Where a run lies, and what surrounds it."""

    out: str = "runs/unnamed"
    """The folder for its log and checkpoint; a run that lies there is gone on with."""
    seed: int = 0
    """Of everything random in the run."""
    device: str = "auto"
    """auto: cuda, else mps, else cpu."""
    threads: int = 1
    """CPU threads of torch; on small tensors more only wait for each other."""
    eval_every: int = 10
    """Updates (or epochs) between two evaluations; the last is always evaluated."""
    checkpoint_every: int = 10
    """Updates (or epochs) between two checkpoints; the last always gets one."""
    fresh: bool = False
    """Begin anew where a run lies already."""
    progress: bool = True
    """Show a progress bar."""
    tensorboard: bool = False
    """Write the log for TensorBoard as well."""

    def __post_init__(self) -> None:
        require_text("out", self.out)
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must lie in 0..2^32 - 1, got {self.seed}")
        counts = ("threads", "eval_every", "checkpoint_every")
        require_fields(self, require_positive_int, *counts)


class Resumable(Protocol):
    """A run of any algorithm: `AgentRun`, `LanguageRun` and `SupervisedRun`."""

    @property
    def done(self) -> int: ...
    @property
    def records(self) -> list[Record]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Session:
    """One program's run in its folder.

    Args:
        config: where and how.
        program: its name.
        settings: all of its settings as plain values, with the run's among them.
        unit: what a run has several of.

    Raises:
        ValueError: a run of other settings lies in the folder, or another process is
            at one.
        CheckpointError: what lies there cannot be read.
    """

    def __init__(
        self,
        config: RunConfig,
        program: str,
        settings: dict[str, Any],
        unit: str = "updates",
    ) -> None:
        self.config, self.program, self.settings = config, program, settings
        self.unit = unit
        self.interruption = Interruption()
        self.folder = Path(config.out)
        self.device = own_device(config.device)
        self.writes = ranks.rank() == 0
        """Whether this process writes: of several, one does, and all read."""
        self._writer: Any = None
        self._lines = 0
        torch.set_num_threads(config.threads)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.writes:
            self._lock = self._held()
        if config.fresh and self.writes:
            for name in (CHECKPOINT, LOG, SETTINGS):
                (self.folder / name).unlink(missing_ok=True)
            for events in self.folder.glob("events.out.tfevents.*"):
                events.unlink()
        ranks.wait_for_all()
        self.saved: dict[str, Any] | None = None
        """The checkpoint that lay in the folder."""
        self._inputs: dict[str, str] = {}
        if (self.folder / CHECKPOINT).exists():
            self.saved = load_run(self.folder / CHECKPOINT, self.device)
            self._refuse_other_settings(self.saved)
        if not self.writes:
            return
        text = json.dumps({"program": program, **settings}, indent=2, sort_keys=True)
        _write(self.folder / SETTINGS, text + "\n")
        if config.tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise ValueError(
                "run.tensorboard needs the package tensorboard, which is not "
                "installed: pip install tensorboard"
            )

    @property
    def bar(self) -> str | bool:
        """What the progress bar says, where one is shown."""
        return self.config.progress and self.writes and self.program

    def depends_on(self, name: str, digest: str) -> None:
        """Note what a run is made from besides its settings.

        Args:
            name: what it is, in words.
            digest: of its content.

        Raises:
            ValueError: the run in the folder was made from another content.
        """
        self._inputs[name] = digest
        before = (self.saved or {}).get("inputs", {})
        if before.get(name, digest) != digest:
            raise ValueError(
                f"run.out={self.config.out} holds a run on other data: {name} changed "
                "since; put back what was there, give another folder, or "
                "--run.fresh true"
            )

    def resume(self, run: Resumable, total: int) -> None:
        """Bring a new run to where the one in the folder has come, if there is one.

        The log may be ahead of the checkpoint, or end in half a line: it is cut back.

        Args:
            run: a new one.
            total: updates of the whole run.
        """
        if self.saved is not None:
            run.load_state_dict(self.saved["state"])
            if run.done >= total or getattr(run, "stopped", False):
                self.say(
                    f"is finished, after {run.done} of {total} {self.unit}; "
                    "--run.fresh true begins anew"
                )
            else:
                self.say(f"goes on after {run.done} of {total} {self.unit}")
        self.begin_log(run.records)

    def callback(
        self,
        run: Resumable,
        total: int,
        evaluate: Callable[[], dict[str, float]] = dict,
        before: Record | None = None,
    ) -> Callable[[int, Record], None]:
        """What an algorithm calls after each update: evaluate, log, keep.

        Args:
            run: as it is being made.
            total: updates of the whole run.
            evaluate: numbers for the record, asked for every `eval_every` updates.
            before: numbers for the first record, of what the run starts from.

        Raises:
            Interrupted: from what is returned, where somebody asked for an end.
        """
        self.interruption.listen()

        def called(count: int, record: Record) -> None:
            last = count + 1 == total
            if count == 0:
                record.update(before or {})
            if last or (count + 1) % self.config.eval_every == 0:
                record.update(evaluate())
            self.log(record)
            ended = last or getattr(run, "stopped", False)
            asked = self._asked_to_end()
            if ended or asked or (count + 1) % self.config.checkpoint_every == 0:
                self.save(run.state_dict())
            if asked and not ended:
                words = (
                    f"{self.program} [{self.folder}]: interrupted after {count + 1} of "
                    f"{total} {self.unit}; the same command goes on from there"
                )
                raise Interrupted(words if self.writes else "", 128 + asked)

        return called

    def _asked_to_end(self) -> int:
        """The signal that came, to this process or to another one."""
        own = self.interruption.signal
        if ranks.world_size() == 1:
            return own
        return int(ranks.gathered(torch.tensor(own, device=self.device)).max())

    def begin_log(self, records: list[Record]) -> None:
        """A log of these records and no other."""
        if not self.writes:
            return
        _write(self.folder / LOG, "".join(map(_line, records)))
        self._lines = len(records)
        if self.config.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # What a killed run had told beyond these records is not shown.
            self._writer = SummaryWriter(self.folder, purge_step=len(records))

    def log(self, record: Record) -> None:
        """One more line."""
        if not self.writes:
            return
        with open(self.folder / LOG, "a", encoding="utf-8") as log:
            log.write(_line(record))
        if self._writer is not None:
            for name, value in record.items():
                self._writer.add_scalar(name, value, self._lines)
            self._writer.flush()
        self._lines += 1

    def save(self, state: dict[str, Any]) -> None:
        """Keep a state, with the settings that made it."""
        whole = {
            "program": self.program,
            "settings": json.dumps(self.settings, sort_keys=True),
            "inputs": self._inputs,
            "processes": ranks.world_size(),
            "written": time.time(),
            "state": state,
        }
        if self.writes:
            save_checkpoint(self.folder / CHECKPOINT, whole)

    def say(self, words: str) -> None:
        """A line for whoever watches, from one of several processes."""
        if self.writes:
            print(f"{self.program} [{self.folder}]: {words}", flush=True)

    def _held(self) -> BaseFileLock:
        """Hold the folder against other processes, as long as this one lives.

        The system holds it: a process that is killed leaves it free.
        """
        lock = FileLock(self.folder / LOCK, is_singleton=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ValueError(
                f"run.out={self.folder} is being written by another process; give "
                "another folder, or wait for its end"
            ) from None
        return lock

    def _refuse_other_settings(self, saved: dict[str, Any]) -> None:
        place, another = f"run.out={self.config.out}", "another folder"
        if saved["program"] != self.program:
            raise ValueError(
                f"{place} holds a run of {saved['program']}, not of {self.program}; "
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
        ours = _flat(json.loads(json.dumps(self.settings)))  # a tuple is a list there
        anytime = {f"run.{one}" for one in _ANYTIME}
        # Where the step size stays as it is, more epochs change none that was made.
        if self.unit == "epochs" and not theirs.get("algorithm.anneal_learning_rate"):
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
                if "start" in self.settings:
                    way += f": begin one with --start.policy {self.config.out}"
            raise ValueError(
                f"{place} holds a run of other settings: {', '.join(apart)}; give "
                f"{another}, or --run.fresh true{way}"
            )


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


def _flat(nested: dict[str, Any], start: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{start}{name}.")
        else:
            flat[f"{start}{name}"] = value
    return flat


def _line(record: Record) -> str:
    plain = {k: v if math.isfinite(v) else None for k, v in record.items()}
    return json.dumps(plain) + "\n"


def _write(path: Path, text: str) -> None:
    """A whole file or none, as with checkpoints."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text, encoding="utf-8", newline="\n")
    os.replace(beside, path)
