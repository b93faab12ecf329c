"""Writes the drawn diagrams to `figures/NAME.svg`, with their alt text inside.

A diagram is drawn by a function in `course_lib.notebook.plots.diagrams`. Which bytes
come out depends on matplotlib's version, so a file carries the digest of the code that
drew it, and a check compares that.
"""

import importlib
import io
import re
from collections.abc import Callable
from html import escape
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from course_lib.notebook.plots.style import MEDIA, THEMES, Style
from tools.files import BuildError, digest, read_bytes, read_text, write_text

MODULE = "course_lib.notebook.plots.diagrams"
FOLDER = "figures"
# All that a diagram may take its lines and its words from.
SOURCES = ("course_lib/notebook/plots/**/*.py", "course_lib/notebook/**/*.yaml")
# Outlines, not font names, so that a page looks the same wherever it is opened.
SETTINGS = {"svg.hashsalt": "ppo-course", "svg.fonttype": "path"}

Drawing = tuple[Callable[[Figure], str], tuple[float, float]]  # and size, in inches
Diagrams = dict[str, Drawing]


def known_diagrams(root: Path) -> Diagrams:
    """Return the library's diagrams by name; none where `root` has no such module."""
    if not (root / (MODULE.replace(".", "/") + ".py")).exists():
        return {}
    return dict(importlib.import_module(MODULE).DIAGRAMS)


def draw(name: str, drawing: Drawing, source: str) -> str:
    """Return a diagram as SVG with a title, a description and the digest `source`."""
    style = Style(THEMES["light"], MEDIA["notebook"])
    with style.applied():
        matplotlib.rcParams.update(SETTINGS)
        function, size = drawing
        figure = Figure(figsize=size)
        alt = function(figure)
        if not isinstance(alt, str) or not alt.strip():
            raise BuildError(f"{MODULE}: {name} returned {alt!r}, not its alt text")
        buffer = io.StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", metadata=nothing)
    svg = re.sub(r"[ \t]+$", "", buffer.getvalue(), flags=re.M)
    title = name.replace("_", " ").replace("-", " ")
    words = (
        f' role="img" aria-labelledby="{name}-title {name}-desc">\n'
        f" <!-- source: {source} -->\n"
        f' <title id="{name}-title">{escape(title)}</title>\n'
        f' <desc id="{name}-desc">{escape(alt)}</desc>'
    )
    return re.sub(r"(<svg [^>]*)>", lambda found: found[1] + words, svg, count=1)


def write(root: Path, diagrams: Diagrams | None = None) -> list[str]:
    """Draw the diagrams whose code has changed and return the paths written."""
    written = []
    source = _digest(root)
    for name, drawing in _given(root, diagrams).items():
        path = root / FOLDER / f"{name}.svg"
        if source not in read_text(path):
            write_text(path, draw(name, drawing, source))
            written.append(f"{FOLDER}/{name}.svg")
    return written


def check(root: Path, diagrams: Diagrams | None = None) -> list[str]:
    """Return every difference between the stored diagrams and the library's."""
    found = []
    source = _digest(root)
    wanted = _given(root, diagrams)
    for name in wanted:
        shown = f"{FOLDER}/{name}.svg"
        if not (root / shown).exists():
            found.append(f"{shown}: is missing; it has not been drawn")
        elif source not in read_text(root / shown):
            found.append(
                f"{shown}: {MODULE} or its words have changed since it was drawn"
            )
    for path in sorted((root / FOLDER).glob("*.svg")):
        if path.stem not in wanted:
            found.append(f"{FOLDER}/{path.name}: {MODULE} has no such diagram")
    return found


def _given(root: Path, diagrams: Diagrams | None) -> Diagrams:
    return known_diagrams(root) if diagrams is None else diagrams


def _digest(root: Path) -> str:
    files = sorted({path for pattern in SOURCES for path in root.glob(pattern)})
    parts = [part for path in files for part in (path.name, read_bytes(path))]
    return digest(*parts)
