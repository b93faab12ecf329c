"""Makes the lecturer's slides: `python -m tools.slides [NN ...]`.

A deck is one HTML file that needs no network. Cells with a slide mark are on the
slides; the chapter's other prose becomes the speaker notes of the slide before it.
Outputs are those stored in the built notebook; only scrubs and quizzes run again, in
their form for pages.
"""

import argparse
import ast
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbconvert.exporters import TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from pygments.formatters import HtmlFormatter

from tools.execute import run
from tools.files import BuildError, read_text, write_text
from tools.masters import MasterError
from tools.notebooks import Page, differences, load, plan

ROOT = Path(__file__).resolve().parents[1]
TOOLS = Path(__file__).resolve().parent
TEMPLATES = TOOLS / "templates"
VENDOR = TOOLS / "vendor"

INTERACTIVE = {"scrub", "quiz"}
INPUT_HIDDEN = INTERACTIVE | {"picture"}
WIDGETS = ("scrub", "quiz")  # each has NAME.js and NAME.css in the notebook layer
SHOWN = ("slide", "subslide", "fragment", "-")
FORMS = (
    "text/html",
    "text/markdown",
    "image/svg+xml",
    "text/latex",
    "image/png",
    "text/plain",
)
MAX_WIDGET_BYTES = 800_000  # 600 KB of pictures, in base64
MINUTES_A_SLIDE = 2

_FIGURE_REPR = re.compile(r"<Figure size .*>|<.* object.*>", re.S)


@dataclass
class Slide:
    """One screen: what is on it, and what the lecturer reads beside it."""

    id: str
    parts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Deck:
    """A deck that has been written."""

    path: str
    slides: int
    megabytes: float

    def __str__(self) -> str:
        minutes = self.slides * MINUTES_A_SLIDE
        return (
            f"{self.path}: {self.slides} slides, about {minutes} minutes, "
            f"{self.megabytes:.1f} MB"
        )


def write_decks(root: Path, only: tuple[str, ...] = ()) -> list[Deck]:
    """Write `dist/slides/NN_name.html` for the chapters that `only` names, or all.

    Raises:
        BuildError: a chapter's notebook is missing or stale, a picture has no words, or
            a chapter has no slide.
    """
    decks = []
    for page in plan(root, only):
        if page.executed:
            columns = arrange(with_outputs(root, page), page.path)
            html = render(root, page, columns)
            path = f"dist/slides/{Path(page.path).stem}.html"
            write_text(root / path, html)
            size = len(html.encode("utf-8")) / 1e6
            decks.append(Deck(path, sum(map(len, columns)), size))
    return decks


def with_outputs(root: Path, page: Page) -> NotebookNode:
    """Return the page with its slides-only cells and with outputs fit for a page."""
    try:
        built = load(root, page.path)
    except ValueError as error:
        raise BuildError(f"{error}; build first") from error
    if built is None:
        raise BuildError(f"{page.path}: is missing; build first")
    seconds = built.metadata.get("course", {}).get("seconds")
    for difference in differences(page.path, built, page.compose(seconds)):
        raise BuildError(f"{difference}; build first")
    stored = {cell.id: cell for cell in built.cells}
    notebook = page.compose(seconds, slides_only=True)
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    again = [
        cell
        for cell in codes
        if _slide_type(cell) in SHOWN
        and (_calls(cell) & INTERACTIVE or cell.id not in stored)
    ]
    for cell in codes:
        if cell.id in stored:
            cell.outputs = stored[cell.id].outputs
    if again:
        first = next(cell for cell in built.cells if cell.cell_type == "code")
        reduced = page.compose(seconds)
        reduced.cells = [first, *(cell for cell in again if cell.id != first.id)]
        run(reduced, root, page.path, COURSE_STATIC="1")
    return notebook


def arrange(notebook: NotebookNode, where: str) -> list[list[Slide]]:
    """Return the deck as columns of slides.

    Raises:
        BuildError: no cell has a slide mark, or a cell cannot be shown.
    """
    columns: list[list[Slide]] = []
    early_notes: list[str] = []
    for cell in notebook.cells:
        kind = _slide_type(cell)
        if kind in SHOWN:
            if not columns or kind == "slide":
                columns.append([Slide(cell.id)])
            elif kind == "subslide":
                columns[-1].append(Slide(cell.id))
            part = _part(cell, f"{where}: cell {cell.id}")
            part["fragment"] = kind == "fragment"
            columns[-1][-1].parts.append(part)
        elif cell.cell_type == "markdown" and kind != "skip":
            notes = columns[-1][-1].notes if columns else early_notes
            notes.append(cell.source)
    if not columns:
        raise BuildError(f'{where}: no cell has slideshow={{"slide_type": "slide"}}')
    columns[0][0].notes[:0] = early_notes
    return columns


def _slide_type(cell: NotebookNode) -> str:
    return str(cell.metadata.get("slideshow", {}).get("slide_type", ""))


def _calls(cell: NotebookNode) -> set[str]:
    """Return the names of the functions that a cell calls."""
    try:
        tree = ast.parse(cell.source)
    except SyntaxError:  # a line of IPython's own
        return set()
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = {getattr(func, "id", getattr(func, "attr", "")) for func in called}
    return names - {""}


def _part(cell: NotebookNode, where: str) -> dict[str, Any]:
    if cell.cell_type == "markdown":
        return {"markdown": cell.source}
    hidden = (
        "hide-input" in cell.metadata.get("tags", []) or _calls(cell) & INPUT_HIDDEN
    )
    shown = [_shown(output, where) for output in cell.outputs]
    return {"code": "" if hidden else cell.source, "outputs": shown}


def _shown(output: NotebookNode, where: str) -> dict[str, str]:
    """Return one output as its form for slides, its content and its alt text."""
    if output.output_type == "stream":
        return {"form": "text/plain", "content": output.text}
    if output.output_type == "error":
        return {"form": "text/plain", "content": f"{output.ename}: {output.evalue}"}
    form = next((form for form in FORMS if form in output.data), "")
    if not form:
        raise BuildError(f"{where}: no output that a slide can show")
    shown = {"form": form, "content": str(output.data[form])}
    if form == "text/html" and len(shown["content"]) > MAX_WIDGET_BYTES:
        size = len(shown["content"]) / 1000
        raise BuildError(f"{where}: {size:.0f} KB on a slide; draw fewer frames")
    if form.startswith("image/"):
        words = output.metadata.get(form, {}).get("alt") or output.data.get(
            "text/plain"
        )
        if not words or _FIGURE_REPR.fullmatch(words):
            raise BuildError(
                f"{where}: the picture has no words; show it with picture(...), whose "
                "draw function returns them"
            )
        shown["alt"] = words
    return shown


def render(root: Path, page: Page, columns: list[list[Slide]]) -> str:
    """Return the deck as one self-contained HTML page."""
    # Not nbconvert's HTML exporter: that parses the page and writes it anew, and puts
    # an alt text of its own where one is missing.
    exporter = TemplateExporter(
        template_name="slides",
        template_file="index.html.j2",
        extra_template_basedirs=[str(TEMPLATES)],
        filters={
            "highlight_code": Highlight2HTML(pygments_lexer="python"),
            "inline_script": _inline_script,
            "markdown2html": _markdown_to_html,
        },
    )
    layer = root / "course_lib" / "notebook"
    resources = {
        "columns": columns,
        "language": page.master.language,
        "title": page.master.title,
        "vendor": {
            path.name: read_text(path) for path in sorted(VENDOR.glob("*/*.*s"))
        },
        "scripts": [
            read_text(layer / "host.js") + text
            for name in WIDGETS
            if (text := read_text(layer / f"{name}.js"))
        ],
        "styles": [read_text(layer / f"{name}.css") for name in WIDGETS],
        "deck_css": read_text(TEMPLATES / "slides" / "deck.css"),
        "deck_js": read_text(TEMPLATES / "slides" / "deck.js"),
        "code_css": HtmlFormatter(style="default").get_style_defs(".highlight"),
    }
    html, _ = exporter.from_notebook_node(page.compose(0), {"deck": resources})
    return str(html)


def _markdown_to_html(text: str) -> str:
    renderer = IPythonRenderer(escape=False, exclude_anchor_links=True)
    return str(MarkdownWithMath(renderer=renderer).render(text))


def _inline_script(text: str) -> str:
    # The words </script would end the element, even inside a string.
    return re.sub(r"</(script)", r"<\\/\1", text, flags=re.I)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="slides", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="NN", help="chapters, such as 02")
    options = parser.parse_args(arguments)
    try:
        for deck in write_decks(root, tuple(options.only)):
            print(deck)
    except (BuildError, MasterError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
