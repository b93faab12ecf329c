"""A bar that shows how far a run is, where it was taken up too."""

from __future__ import annotations

from collections.abc import Iterable

from tqdm.auto import tqdm


def progress_bar(
    done: int, total: int, name: str, progress: bool | str
) -> Iterable[int]:
    """The numbers of the updates that are left, with a bar that begins at `done`.

    Args:
        done: how many were made.
        total: how many a whole run has.
        name: what the bar says.
        progress: show it; a text is what it says in place of `name`.
    """
    said = progress if isinstance(progress, str) else name
    left = range(done, total)
    bar: Iterable[int] = tqdm(
        left, desc=said, initial=done, total=total, disable=not progress
    )
    return bar
