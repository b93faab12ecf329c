"""The scripts and styles of the widgets, as the pages and notebooks get them."""

import functools
from pathlib import Path

_HERE = Path(__file__).parent


@functools.cache
def script(name: str) -> str:
    """Return the ES module of the widget `name`, with what all of them share."""
    return _read("host.js") + "\n" + _read(f"{name}.js")


@functools.cache
def style(name: str) -> str:
    """Return the style sheet of the widget `name`."""
    return _read(f"{name}.css")


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
