"""Ctrl-C and SIGTERM: a run ends with a whole update, and says how it goes on."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from course_lib.algorithms import ranks


class Interrupted(KeyboardInterrupt):
    """A run that was asked to end has ended behind a whole update.

    Args:
        words: what is said about it; none by all processes but one.
        code: what the process ends with, 128 and the signal's number.
    """

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.code = code


class Interruption:
    """Whether a run was asked to end; the second Ctrl-C ends it at once."""

    def __init__(self) -> None:
        self.signal = 0
        """The signal's number; 0: nobody has asked."""

    def listen(self) -> None:
        """From now on remember signals in place of ending; in the main thread only."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._ask)
            signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, number: int, _: FrameType | None) -> None:
        # Of several processes none ends alone: the others would wait for it. And
        # torchrun tells them again what the terminal has told them.
        if self.signal and number == signal.SIGINT and ranks.world_size() == 1:
            raise KeyboardInterrupt
        if not self.signal and ranks.rank() == 0:
            print(
                "\nends after this update; a second Ctrl-C ends it at once",
                file=sys.stderr,
                flush=True,
            )
        self.signal = self.signal or number


@contextlib.contextmanager
def signals_as_before() -> Iterator[None]:
    """Whatever listens to signals within does no longer at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
