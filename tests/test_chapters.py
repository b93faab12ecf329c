"""What every chapter, exercise and solution must have, whatever it teaches."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from course_lib.notebook.bank import read_bank

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))
EXERCISES = sorted((ROOT / "exercises").glob("*.ipynb"))
SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))
every_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
every_exercise = pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
every_notebook = pytest.mark.parametrize(
    "path",
    [*CHAPTERS, *EXERCISES, *SOLUTIONS],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


def calls(cell, name):
    """The calls of `name(...)` that a code cell makes."""
    nodes = ast.walk(ast.parse(cell.source))
    return [
        node
        for node in nodes
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name
    ]


def test_there_is_something_to_test():
    assert CHAPTERS
    assert len(EXERCISES) == len(SOLUTIONS) > 0


@every_notebook
def test_code_fits_a_screen(path):
    for cell in code_cells(path):
        lines = cell.source.splitlines()
        assert len(lines) <= 26, f"{cell.id}: {len(lines)} lines"
        for line in lines:
            assert len(line) <= 76, f"{cell.id}: {line}"


@every_notebook
def test_a_notebook_runs_on_any_kernel_called_python3_and_holds_no_widget(path):
    notebook = read(path)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    for cell in code_cells(path):
        for output in cell.outputs:
            assert output.output_type != "error"
            assert "application/vnd.jupyter.widget-view+json" not in output.get(
                "data", {}
            )


@every_chapter
def test_a_chapter_asks_and_scrubs(path):
    cells = code_cells(path)
    bank = read_bank()
    asked = [call.args[0].value for cell in cells for call in calls(cell, "quiz")]
    # A game of seven runs, "Find the bug", is one exercise and not seven questions.
    assert 5 <= sum(not name.startswith("bug-") for name in asked) <= 8
    assert len(set(asked)) == len(asked)
    assert set(asked) <= set(bank)
    assert sum(bool(calls(cell, "scrub")) for cell in cells) >= 1


@every_chapter
def test_each_displayed_equation_has_an_id_that_is_not_used_twice(path):
    text = "\n".join(
        cell.source for cell in read(path).cells if cell.cell_type == "markdown"
    )
    shown = re.findall(r"\$\$(.+?)\$\$", text, re.S)
    tags = [re.search(r"\\tag\{(eq-[a-z-]+)\}", formula) for formula in shown]
    assert shown
    assert all(tags), "a displayed equation without \\tag{eq-…}"
    names = [tag[1] for tag in tags]
    assert len(set(names)) == len(names)
    for mentioned in re.findall(r"\beq-[a-z-]+\b", re.sub(r"\\tag\{.*?\}", "", text)):
        assert mentioned in names, f"{mentioned} is mentioned and not defined"


def test_every_question_of_the_bank_is_asked_somewhere():
    asked = {
        call.args[0].value
        for path in [*CHAPTERS, *EXERCISES]
        for cell in code_cells(path)
        for call in calls(cell, "quiz")
    }
    assert asked == set(read_bank())


@every_chapter
def test_interactive_cells_need_only_the_first_cell_and_draw_at_every_position(path):
    """In a process of its own: nothing but the first code cell has run."""
    first, *rest = code_cells(path)
    interactive = [c.source for c in rest if calls(c, "scrub") or calls(c, "quiz")]
    program = "\n".join(
        [
            "from IPython.display import display",
            first.source,
            f"for source in {interactive!r}:",
            "    shown = eval(compile(source, 'cell', 'eval'))",
            "    display(shown)",
            "    for values in getattr(shown, 'positions', list)():",
            "        assert shown.draw(**values)",
        ]
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
    )
    assert done.returncode == 0, done.stderr


@every_exercise
@pytest.mark.slow
def test_an_exercise_runs_to_its_first_stub_and_fails_there_in_its_own_words(path):
    notebook = read(path)
    stubs = [
        cell.id for cell in notebook.cells if "raise NotImplementedError" in cell.source
    ]
    assert stubs
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    with pytest.raises(CellExecutionError) as caught:
        client.execute()
    failing = next(
        cell
        for cell in notebook.cells
        if any(o.output_type == "error" for o in cell.get("outputs", []))
    )
    assert failing.id == notebook.cells[_index(notebook, stubs[0]) + 1].id
    told = [o.data["text/plain"] for o in failing.outputs if "data" in o]
    assert "Replace that line with your code" in told[0]
    assert "stops here" in str(caught.value)


def _index(notebook, cell_id):
    return next(i for i, cell in enumerate(notebook.cells) if cell.id == cell_id)


@every_exercise
def test_an_exercise_holds_no_answer_and_its_solution_the_same_cells(path):
    exercise, solution = read(path), read(ROOT / "solutions" / path.name)
    assert [cell.id for cell in exercise.cells] == [cell.id for cell in solution.cells]
    assert not any("SOLUTION" in cell.source for cell in exercise.cells)
    graded = [c for c in exercise.cells if c.metadata.get("nbgrader", {}).get("grade")]
    assert len(graded) >= 3
