"""Composes the notebooks that belong in the tree, and tells how others differ.

Everything here follows from the masters alone: nothing is executed, no time and no
random number enters, and no modification time is read.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools.files import digest, read_bytes
from tools.masters import Cell, Master, MasterError, read_masters, read_version
from tools.tasks import exercise_source, grading, solution_source

LIBRARY = "course_lib"
# What the numbers in a notebook can depend on.
SOURCE_SUFFIXES = {".py", ".yaml", ".json", ".js", ".css", ".csv", ".npz"}
BUILT_FOLDERS = ("chapters", "exercises", "solutions")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

_SECONDS = "{{seconds}}"
_MAGIC = re.compile(r"^\s*[%!]", re.M)


@dataclass(frozen=True)
class Page:
    """One notebook that the masters ask for."""

    path: str
    """Relative to the root, with forward slashes."""
    master: Master
    source: str
    """Digest of all that the notebook is made from."""
    version: str

    @property
    def executed(self) -> bool:
        return self.path.startswith("chapters/")

    @property
    def tells_seconds(self) -> bool:
        """Whether the prose gives the measured computing time."""
        return any(_SECONDS in cell.source for cell in self.master.cells)

    def compose(
        self, seconds: int | None = None, *, slides_only: bool = False
    ) -> NotebookNode:
        """Return the notebook without outputs.

        Args:
            seconds: the computing time that the prose tells; needed by a page whose
                master asks for it.
            slides_only: keep the cells that are for slides only.
        """
        tokens = {"version": self.version, "minutes": str(self.master.minutes())}
        if self.executed and seconds is not None:
            tokens["seconds"] = str(seconds)
        cells = []
        for cell in self.master.cells:
            if "slides-only" in cell.tags and not slides_only:
                continue
            source = self._source(cell)
            if source is not None:
                cells.append(self._cell(cell, _fill(source, tokens)))
        course: dict[str, str | int] = {"source": self.source}
        course["master"] = self.master.path
        if self.tells_seconds and seconds is not None:
            course["seconds"] = seconds
        notebook = new_notebook(cells=cells)
        notebook.nbformat_minor = 5
        notebook.metadata.update(
            course=course,
            kernelspec=dict(KERNEL),
            language_info={"name": "python"},
            title=self.master.title,
        )
        return notebook

    def _source(self, cell: Cell) -> str | None:
        if self.executed:
            return cell.source
        if self.path.startswith("exercises/"):
            return exercise_source(cell, self.master.path)
        return solution_source(cell, self.master.path)

    def _cell(self, cell: Cell, source: str) -> NotebookNode:
        where = f"{self.master.path}:{cell.line}: cell {cell.id}"
        if _SECONDS in source and not self.executed:
            raise MasterError(f"{where}: only a chapter is executed and has seconds")
        make = new_code_cell if cell.kind == "code" else new_markdown_cell
        made: NotebookNode = make(source, id=cell.id)
        if cell.kind == "code" and not _MAGIC.search(source):
            try:
                ast.parse(source)
            except SyntaxError as error:
                raise MasterError(
                    f"{where}: {error.msg} in line {error.lineno} of the cell, as it "
                    f"stands in {self.path}"
                ) from error
        if cell.tags:
            made.metadata["tags"] = list(cell.tags)
        if cell.slide:
            made.metadata["slideshow"] = {"slide_type": cell.slide}
        grade = None if self.executed else grading(cell, self.master.path)
        if grade is not None:
            made.metadata["nbgrader"] = grade
        return made


def _fill(text: str, tokens: dict[str, str]) -> str:
    for name, value in tokens.items():
        text = text.replace("{{" + name + "}}", value)
    return text


def plan(root: Path, only: tuple[str, ...] = ()) -> list[Page]:
    """Return every notebook that the masters below `root` ask for."""
    version = read_version(root)
    library = library_digest(root)
    pages = []
    for master in read_masters(root, only):
        main = master.path.rsplit("/", 1)[0] + f"/{master.stem}.md"
        texts = {name: read_bytes(root / name) for name in (main, master.path)}
        if master.folder == "chapters":
            source = digest(version, library, *texts.values())
            pages.append(Page(f"chapters/{master.built_name}", master, source, version))
        else:
            source = digest(version, *texts.values())
            for folder in ("exercises", "solutions"):
                path = f"{folder}/{master.built_name}"
                pages.append(Page(path, master, source, version))
    return pages


def library_digest(root: Path) -> str:
    """Return one digest of the library's code, words, data and scripts."""
    parts = []
    for path in sorted((root / LIBRARY).rglob("*")):
        if path.suffix in SOURCE_SUFFIXES and "__pycache__" not in path.parts:
            parts += [path.relative_to(root).as_posix(), read_bytes(path)]
    return digest(*parts)


def seal(notebook: NotebookNode) -> str:
    """Store digests of cells and outputs, and return the notebook's text.

    By the digests a later build tells an edit made in the notebook from one made in the
    master, and an output it wrote from one that a reader's run left there.
    """
    course = notebook.metadata["course"]
    course["cells"] = {cell.id: _cell_digest(cell) for cell in notebook.cells}
    outputs = {cell.id: _output_digest(cell) for cell in notebook.cells}
    course["outputs"] = {name: value for name, value in outputs.items() if value}
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook, version=4, indent=1)).rstrip("\n") + "\n"


def _cell_digest(cell: NotebookNode) -> str:
    return digest(cell.cell_type, cell.source)[:12]


def _output_digest(cell: NotebookNode) -> str:
    if not cell.get("outputs"):
        return ""
    plain = nbformat.writes(new_notebook(cells=[cell]), version=4)
    return digest(plain)[:12]


def load(root: Path, path: str) -> NotebookNode | None:
    """Return a built notebook, None where there is none; raise ValueError if broken."""
    file = root / path
    if not file.exists():
        return None
    try:
        return nbformat.reads(file.read_text(encoding="utf-8"), as_version=4)
    except Exception as error:  # nbformat raises many kinds
        raise ValueError(f"{path}: is not a notebook any more: {error}") from error


def edited_by_hand(built: NotebookNode, wanted: NotebookNode) -> list[str]:
    """Return the ids of cells whose text a build would lose.

    Those are cells that somebody changed in the built notebook, unless the master says
    the same by now.
    """
    stored = built.metadata.get("course", {}).get("cells", {})
    new = {cell.id: _cell_digest(cell) for cell in wanted.cells}
    lost = []
    for cell in built.cells:
        name, now = cell.get("id", "(without id)"), _cell_digest(cell)
        if now not in (stored.get(name), new.get(name)) and cell.source.strip():
            lost.append(name)
    return lost


def differences(path: str, built: NotebookNode, wanted: NotebookNode) -> Iterator[str]:
    """Yield, as "file: cell id: what", how `built` differs from what is wanted.

    Compares sources, ids, metadata and digests; outputs are compared with the digest
    that the build stored, not with a new run.
    """
    master = wanted.metadata["course"]["master"]
    course = built.metadata.get("course", {})
    lost = edited_by_hand(built, wanted)
    old = {cell.get("id", "(without id)"): cell for cell in built.cells}
    new = {cell.id: cell for cell in wanted.cells}
    for name, cell in new.items():
        where = f"{path}: cell {name}"
        if name not in old:
            yield f"{where}: is missing; {master} has it"
        elif name in lost:
            yield f"{where}: was edited in the notebook; move the edit into {master}"
        elif _cell_digest(old[name]) != _cell_digest(cell):
            yield f"{where}: {master} has changed since the last build"
        elif old[name].metadata != cell.metadata:
            yield f"{where}: metadata differ from {master}"
        elif _output_digest(old[name]) != course.get("outputs", {}).get(name, ""):
            yield f"{where}: outputs are not those that the build wrote"
    for name in (name for name in old if name not in new):
        yield f"{path}: cell {name}: is not in {master}"
    if old.keys() == new.keys() and list(old) != list(new):
        yield f"{path}: the cells stand in another order than in {master}"
    kept = {key: course.get(key) for key in wanted.metadata["course"]}
    if {**built.metadata, "course": kept} != wanted.metadata:
        if course.get("source") != wanted.metadata["course"]["source"]:
            also = f", {LIBRARY}" if path.startswith("chapters/") else ""
            yield f"{path}: {master}{also} or the version has changed since the build"
        else:
            yield f"{path}: the notebook's metadata differ from the build's"


def orphans(root: Path, pages: list[Page]) -> list[str]:
    """Return notebooks in the built folders that no master asks for."""
    wanted = {page.path for page in pages}
    found = [
        path.relative_to(root).as_posix()
        for folder in BUILT_FOLDERS
        for path in sorted((root / folder).glob("*.ipynb"))
    ]
    return [path for path in found if path not in wanted]
