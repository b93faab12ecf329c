"""A run on disk: its settings, log and checkpoint, and how it is taken up again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from course_lib.algorithms import ranks
from course_lib.algorithms.history import Record
from course_lib.kernels.arguments import (
    require_fields,
    require_positive_int,
    require_text,
)
from course_lib.train.checkpoint import load_run, save_checkpoint
from course_lib.train.files import replace_file
from course_lib.train.folder import CHECKPOINT, SETTINGS, hold, refuse_another_run
from course_lib.train.interrupt import Interrupted, Interruption
from course_lib.train.log import Log
from course_lib.train.processes import own_device


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
        torch.set_num_threads(config.threads)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.writes:
            self._lock = hold(self.folder)
        self.log = Log(self.folder, config.tensorboard)
        if config.fresh and self.writes:
            self.log.remove()
            for name in (CHECKPOINT, SETTINGS):
                (self.folder / name).unlink(missing_ok=True)
        ranks.wait_for_all()
        self.saved: dict[str, Any] | None = None
        """The checkpoint that lay in the folder."""
        self._inputs: dict[str, str] = {}
        if (self.folder / CHECKPOINT).exists():
            self.saved = load_run(self.folder / CHECKPOINT, self.device)
            refuse_another_run(self.folder, self.saved, program, settings)
        if self.writes:
            whole = {"program": program, **settings}
            text = json.dumps(whole, indent=2, sort_keys=True) + "\n"
            replace_file(self.folder / SETTINGS, text.encode())

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
        if self.writes:
            self.log.begin(run.records)

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
            if self.writes:
                self.log.add(record)
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
