"""Reads masters: jupytext Markdown in `chapters/` and `solutions/`.

A master is prose with fenced `python` cells. Its header gives the title, each code cell
has a name, and a prose cell is named after the code cell before it:

    ```python name="walk-values" tags=["hide-input"] slideshow={"slide_type": "slide"}

Prose splits into cells at headings, or where `<!-- #region name="..." -->` says so. A
master in another language, `NN_name.LANG.md`, has its own prose and empty code cells,
which are filled from `NN_name.md`.
"""

import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jupytext
import yaml

FOLDERS = ("chapters", "solutions")
SLIDE_TYPES = ("slide", "subslide", "fragment", "-", "notes", "skip")
WORDS_A_MINUTE = 130
CODE_LINES_A_MINUTE = 20

_MASTER = re.compile(
    r"(?P<stem>\d\d_[a-z0-9_]+)(\.(?P<language>[a-z]{2,3}(-[A-Z]{2})?))?\.md"
)
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_HEADER = re.compile(r"\A---\n(.*?)\n---\n", re.S)
_KNOWN_METADATA = {"name", "tags", "slideshow", "points"}
_LAYOUT_METADATA = {"lines_to_next_cell", "lines_to_end_of_cell_marker"}  # jupytext's
_LONGEST_NAME = 48  # a cell id may have 64 characters, and prose adds "-text-NN"


class MasterError(ValueError):
    """A master that cannot be built; says which file, line and cell, and what to do."""


@dataclass(frozen=True)
class Cell:
    """One cell of a master."""

    id: str
    """Unique in the master; the cell id in every notebook built from it."""
    kind: str
    """"code" or "markdown"."""
    source: str
    line: int
    """Line of the master at which the source begins (for messages)."""
    tags: tuple[str, ...] = ()
    slide: str = ""
    """A slide type, or "" for a cell without a slide mark."""
    points: float | None = None


@dataclass(frozen=True)
class Master:
    """A master that has been read and checked."""

    path: str
    """Relative to the root, with forward slashes."""
    stem: str
    """The file's name without language and suffix, as in `02_bellman`."""
    language: str
    title: str
    cells: tuple[Cell, ...]

    @property
    def folder(self) -> str:
        return self.path.split("/")[0]

    @property
    def built_name(self) -> str:
        """The built notebook's file name."""
        return Path(self.path).name.removesuffix(".md") + ".ipynb"

    def minutes(self) -> int:
        """Reading time, rounded up to five minutes."""
        words = code_lines = 0
        for cell in self.cells:
            if "slides-only" in cell.tags:
                continue
            if cell.kind == "markdown":
                words += len(cell.source.split())
            else:
                code_lines += sum(
                    bool(line.strip()) for line in cell.source.split("\n")
                )
        return up_to_five(words / WORDS_A_MINUTE + code_lines / CODE_LINES_A_MINUTE)


def up_to_five(amount: float) -> int:
    """Return `amount` rounded up to a multiple of five, at least 5."""
    return max(5, 5 * math.ceil(amount / 5))


def read_version(root: Path) -> str:
    """Return the version in `pyproject.toml`, the only place where it stands."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


def read_masters(root: Path, only: Iterable[str] = ()) -> list[Master]:
    """Read the masters below `root`, translations filled, in the order of their paths.

    Args:
        root: the repository.
        only: beginnings of stems, such as "02"; none means all.

    Raises:
        MasterError: a master is malformed, or `only` names one that does not exist.
    """
    files: dict[Path, re.Match[str]] = {}
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("*.md")):
            named = _MASTER.fullmatch(path.name)
            if named:
                files[path] = named
            elif path.name != "README.md":
                raise MasterError(
                    f"{folder}/{path.name}: a master is called NN_name.md or "
                    "NN_name.LANG.md, in lower case"
                )
    wanted = tuple(only)
    for beginning in wanted:
        if not any(named["stem"].startswith(beginning) for named in files.values()):
            raise MasterError(f"{beginning}: no master begins with that")
    masters = []
    for path, named in files.items():
        if wanted and not named["stem"].startswith(wanted):
            continue
        master = read_master(root, path)
        if named["language"]:
            main = path.with_name(named["stem"] + ".md")
            if main not in files:
                raise MasterError(
                    f"{master.path}: there is no {main.name} to translate"
                )
            master = fill_translation(master, read_master(root, main))
        masters.append(master)
    return masters


def read_master(root: Path, path: Path) -> Master:
    """Read one master as it stands; a translation keeps its empty code cells."""
    shown = path.relative_to(root).as_posix()
    named = _MASTER.fullmatch(path.name)
    if named is None:
        raise MasterError(f"{shown}: a master is called NN_name.md or NN_name.LANG.md")
    text = path.read_text(encoding="utf-8-sig")
    header = _HEADER.match(text)
    title = _title(header[1], shown) if header else ""
    if header is None or not title:
        raise MasterError(f"{shown}:1: the master needs a header with `title:`")
    body = text[header.end() :].lstrip("\n")  # else an empty cell comes first
    # The split is asked for here, because jupytext reads it from the header only in a
    # form (below `jupyter:`) that GitHub shows to readers as a nested table.
    notebook = jupytext.reads(body, fmt={"extension": ".md", "split_at_heading": True})
    cells = _cells(notebook.cells, text.split("\n"), header[0].count("\n"), shown)
    language = named["language"] or "en"
    return Master(shown, named["stem"], language, title, tuple(cells))


def _title(header: str, shown: str) -> str:
    try:
        parsed = yaml.safe_load(header)
    except yaml.YAMLError as error:
        raise MasterError(f"{shown}:1: the header is not YAML: {error}") from error
    return str(parsed.get("title") or "") if isinstance(parsed, dict) else ""


def _cells(read: list[Any], lines: list[str], at: int, shown: str) -> list[Cell]:
    """Turn jupytext's cells into ours; `at` is the line to look for the first one."""
    cells: list[Cell] = []
    seen: dict[str, int] = {}
    after, count = "opening", 0
    for raw in read:
        at = _place(raw, lines, at) + 1
        metadata = dict(raw.metadata)
        name = metadata.get("name", "")
        where = f"{shown}:{at}: cell {name or repr(raw.source[:40])}"
        if raw.cell_type == "markdown" and not raw.source.strip():
            continue
        if raw.cell_type == "code":
            _check_code(lines[at - 1], name, where)
            after, count = name, 0
        elif raw.cell_type != "markdown":
            raise MasterError(f"{where}: a master holds Markdown and Python cells only")
        else:
            count += 1
        cell_id = name or f"{after}-text-{count}"
        if not _NAME.fullmatch(cell_id) or len(name) > _LONGEST_NAME:
            raise MasterError(
                f"{where}: a name is lower-case words joined by hyphens, at most "
                f"{_LONGEST_NAME} characters"
            )
        if cell_id in seen:
            raise MasterError(
                f"{where}: the name {cell_id} is taken, in line {seen[cell_id]}"
            )
        seen[cell_id] = at
        cells.append(
            Cell(cell_id, raw.cell_type, raw.source, at, **_marks(metadata, where))
        )
    return cells


def _check_code(fence: str, name: str, where: str) -> None:
    if not fence.startswith("```python"):
        raise MasterError(
            f"{where}: a {fence.split()[0]} block becomes a code cell; show it with "
            "```text, or write a ```python cell"
        )
    if not name:
        raise MasterError(f'{where}: a code cell needs a name: ```python name="..."')


def _place(raw: Any, lines: list[str], at: int) -> int:
    """Return the index of the line where a cell begins, looking from `at` on."""
    name = raw.metadata.get("name")
    mark = f'name="{name}"' if name else raw.source.split("\n")[0]
    for index in range(at, len(lines)):
        if mark and mark in lines[index]:
            return index - (raw.cell_type == "code" and not name)  # the fence above
        if not mark and lines[index].startswith("```"):
            return index
    return at


def _marks(metadata: dict[str, Any], where: str) -> dict[str, Any]:
    unknown = sorted(set(metadata) - _KNOWN_METADATA - _LAYOUT_METADATA)
    if unknown:
        known = ", ".join(sorted(_KNOWN_METADATA))
        raise MasterError(f"{where}: unknown {', '.join(unknown)}; a cell has {known}")
    tags = metadata.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise MasterError(f'{where}: tags are a list of words: tags=["task"]')
    slideshow = metadata.get("slideshow", {})
    slide = slideshow.get("slide_type", "") if isinstance(slideshow, dict) else None
    if slide not in ("", *SLIDE_TYPES):
        raise MasterError(f"{where}: slide_type is one of {', '.join(SLIDE_TYPES)}")
    points = metadata.get("points")
    if points is not None and not (isinstance(points, int | float) and points >= 0):
        raise MasterError(f"{where}: points is a number, 0 or more")
    return {"tags": tuple(tags), "slide": slide, "points": points}


def fill_translation(translation: Master, main: Master) -> Master:
    """Give a translation the code, tags and slide marks of the master it translates.

    Both must have the same cells in the same order.
    """
    theirs = [cell.id for cell in translation.cells]
    ours = [cell.id for cell in main.cells]
    for cell_id in ours:
        if cell_id not in theirs:
            raise MasterError(
                f"{translation.path}: cell {cell_id} of {main.path} is missing"
            )
    for cell, expected in zip(translation.cells, [*ours, *theirs], strict=False):
        where = f"{translation.path}:{cell.line}: cell {cell.id}"
        if cell.id not in ours:
            raise MasterError(f"{where}: {main.path} has no such cell")
        if cell.id != expected:
            raise MasterError(f"{where}: {main.path} has {expected} in this place")
        if cell.kind == "code" and cell.source.strip():
            raise MasterError(
                f"{where}: code is written once, in {main.path}; leave this body empty"
            )
    pairs = zip(translation.cells, main.cells, strict=True)
    cells = tuple(
        replace(code, line=cell.line)
        if code.kind == "code"
        else replace(code, source=cell.source, line=cell.line)
        for cell, code in pairs
    )
    return replace(translation, cells=cells)
