"""The build: what it writes, what it leaves alone, what it refuses."""

import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest

from tools import build as build_module
from tools.build import build, check, check_outputs, main, unlike_the_pinned_machine
from tools.files import BuildError
from tools.masters import up_to_five

CHAPTER = """---
title: A small walk
---

# A small walk

{{minutes}} minutes to read, {{seconds}} seconds to run, version {{version}}.

```python name="first"
import sys
import walk_library_marker
import course_lib
```

Words about steps.

```python name="steps" slideshow={"slide_type": "slide"}
print("one", end=" ")
sys.stdout.flush()
print("two")
print("\\r 10%|#  |", end="", file=sys.stderr)
print("\\r100%|###|", file=sys.stderr)
print("three")
course_lib.double(21)
```

<!-- #region name="aim" slideshow={"slide_type": "slide"} tags=["slides-only"] -->
## Only on a slide
<!-- #endregion -->

```python name="wrong" tags=["raises-exception"]
1 / 0
```

The end: $V = \\\\tfrac16$ and «ünïcode».
""".replace("import walk_library_marker\n", "")

TASKS = """---
title: Tasks of a small walk
---

# Tasks

```python name="double" tags=["task"]
def double(x):
    ### BEGIN SOLUTION
    return x + x
    ### END SOLUTION
```

```python name="try-double" tags=["check"]
assert double(2) == 4
```
"""

BUILT = ("chapters/01_walk.ipynb", "exercises/01_walk.ipynb", "solutions/01_walk.ipynb")


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8", newline="\n")


def change(root: Path, path: str, old: str, new: str) -> None:
    text = (root / path).read_text(encoding="utf-8")
    assert old in text
    put(root, path, text.replace(old, new))


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def notebook(root: Path, path: str = BUILT[0]):
    return nbformat.read(root / path, as_version=4)


@pytest.fixture(scope="module")
def built_once(tmp_path_factory):
    root = tmp_path_factory.mktemp("baum mit ü")
    put(root, "pyproject.toml", '[project]\nversion = "0.3.0"\n')
    put(root, "course_lib/__init__.py", "def double(x):\n    return 2 * x\n")
    put(root, "chapters/01_walk.md", CHAPTER)
    put(root, "solutions/01_walk.md", TASKS)
    assert build(root) == list(BUILT)
    return root


@pytest.fixture
def tree(built_once, tmp_path):
    """A tree of one chapter and one exercise, built."""
    return Path(shutil.copytree(built_once, tmp_path / "tree"))


@pytest.fixture
def no_kernel(monkeypatch):
    """Fail where a notebook is executed."""

    def refuse(*_: object, **__: object) -> float:
        raise AssertionError("a kernel was started")

    monkeypatch.setattr(build_module, "run", refuse)


@pytest.fixture
def quick_kernel(monkeypatch):
    """Leave execution out where a test is about something else."""
    monkeypatch.setattr(build_module, "run", lambda *_, **__: 1.0)


# What is written


def test_the_chapter_is_executed_and_says_how_long_that_takes(built_once):
    cells = {cell.id: cell for cell in notebook(built_once).cells}
    assert list(cells) == [
        "opening-text-1",
        "first",
        "first-text-1",
        "steps",
        "wrong",
        "wrong-text-1",
    ]
    assert cells["opening-text-1"].source.endswith(
        "5 minutes to read, 5 seconds to run, version 0.3.0."
    )
    assert [cells[name].execution_count for name in ("first", "steps", "wrong")] == [
        1,
        2,
        3,
    ]
    stream, result = cells["steps"].outputs
    assert stream.text == "one two\nthree\n"  # joined, and no progress bar
    assert result.data == {"text/plain": "42"}
    assert cells["wrong"].outputs[0].traceback == [
        "ZeroDivisionError: division by zero"
    ]


def test_exercises_and_solutions_share_ids_and_hold_no_outputs(built_once):
    exercise, solution = (notebook(built_once, path) for path in BUILT[1:])
    assert [c.id for c in exercise.cells] == [c.id for c in solution.cells]
    for cell in [*exercise.cells, *solution.cells]:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None
    assert "return x + x" in solution.cells[1].source
    assert "return x + x" not in (built_once / BUILT[1]).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", BUILT)
def test_a_built_notebook_opens_on_any_machine(built_once, path):
    text = (built_once / path).read_text(encoding="utf-8")
    stored = json.loads(text)
    assert stored["metadata"]["kernelspec"]["name"] == "python3"
    assert stored["metadata"]["language_info"] == {"name": "python"}
    assert sorted(stored["metadata"]) == [
        "course",
        "kernelspec",
        "language_info",
        "title",
    ]
    assert "widget" not in text
    assert str(built_once) not in text
    assert "\r" not in text
    assert text.endswith("}\n")


def test_unicode_is_written_as_it_is(built_once):
    assert "«ünïcode»" in (built_once / BUILT[0]).read_text(encoding="utf-8")


def test_a_second_build_runs_nothing_and_changes_nothing(tree, no_kernel):
    before = files(tree)
    assert build(tree) == []
    assert files(tree) == before


def test_a_new_build_from_scratch_gives_the_same_bytes(tree):
    before = files(tree)
    for path in BUILT:
        (tree / path).unlink()
    assert build(tree) == list(BUILT)
    assert files(tree) == before


def test_a_translation_is_built_beside_its_original(tree):
    german = re.sub(r"(?s)(```python[^\n]*\n).*?```", r"\1```", CHAPTER)
    put(tree, "chapters/01_walk.de.md", german.replace("Words about", "Worte über"))
    assert build(tree) == ["chapters/01_walk.de.ipynb"]
    cells = {
        cell.id: cell for cell in notebook(tree, "chapters/01_walk.de.ipynb").cells
    }
    assert cells["first-text-1"].source == "Worte über steps."
    assert cells["steps"].outputs == notebook(tree).cells[3].outputs


def test_seconds_stay_until_they_are_off_by_a_factor_of_two():
    assert up_to_five(0.2) == 5
    assert up_to_five(11) == 15
    assert build_module._settled(11, None) == 15
    assert build_module._settled(6, 15) == 15
    assert build_module._settled(29, 15) == 15
    assert build_module._settled(31, 15) == 35
    assert build_module._settled(2, 15) == 5


# --check


def test_check_on_a_fresh_build_finds_nothing(tree, no_kernel, capsys):
    before = files(tree)
    assert main(["--check"], tree) == 0
    assert capsys.readouterr().out == "everything is up to date\n"
    assert files(tree) == before


@pytest.mark.parametrize(
    ("path", "old", "new", "found"),
    [
        (
            "chapters/01_walk.md",
            "Words about",
            "Other words about",
            "01_walk.ipynb: cell first-text-1: chapters/01_walk.md has changed",
        ),
        (
            "chapters/01_walk.md",
            'slideshow={"slide_type": "slide"}\nprint',
            "\nprint",
            "chapters/01_walk.ipynb: cell steps: metadata differ from",
        ),
        (
            "chapters/01_walk.md",
            'name="wrong"',
            'name="by-zero"',
            "chapters/01_walk.ipynb: cell by-zero: is missing",
        ),
        (
            "chapters/01_walk.ipynb",
            "Words about",
            "My words about",
            "chapters/01_walk.ipynb: cell first-text-1: was edited in the notebook",
        ),
        (
            "chapters/01_walk.ipynb",
            '"42"',
            '"43"',
            "chapters/01_walk.ipynb: cell steps: outputs are not those",
        ),
        (
            "chapters/01_walk.ipynb",
            '"id": "steps"',
            '"id": "step"',
            "chapters/01_walk.ipynb: cell steps: is missing",
        ),
        (
            "chapters/01_walk.ipynb",
            '"name": "python3"',
            '"name": "my-env"',
            "chapters/01_walk.ipynb: the notebook's metadata differ",
        ),
        (
            "course_lib/__init__.py",
            "2 * x",
            "x + x",
            "chapters/01_walk.ipynb: chapters/01_walk.md, course_lib or the version",
        ),
        (
            "pyproject.toml",
            "0.3.0",
            "0.4.0",
            "solutions/01_walk.ipynb: solutions/01_walk.md or the version",
        ),
        (
            "solutions/01_walk.md",
            "return x + x",
            "return 2 * x",
            "solutions/01_walk.ipynb: cell double: solutions/01_walk.md has changed",
        ),
    ],
)
def test_check_names_file_and_cell(tree, no_kernel, capsys, path, old, new, found):
    change(tree, path, old, new)
    before = files(tree)
    assert main(["--check"], tree) == 1
    assert found in capsys.readouterr().out
    assert files(tree) == before


def test_check_names_missing_orphaned_and_broken_notebooks(tree, no_kernel):
    (tree / BUILT[1]).unlink()
    put(tree, BUILT[2], "<<<<<<< a merge")
    shutil.copy(tree / BUILT[0], tree / "chapters/09_lost.ipynb")
    missing, broken, orphan = check(tree)
    assert missing.startswith("exercises/01_walk.ipynb: is missing")
    assert broken.startswith("solutions/01_walk.ipynb: is not a notebook any more")
    assert orphan == "chapters/09_lost.ipynb: no master asks for it"


def test_check_names_cells_out_of_order_and_cells_too_many(tree, no_kernel):
    page = notebook(tree)
    page.cells.append(page.cells.pop(1))
    put(tree, BUILT[0], nbformat.writes(page))
    assert any(line.startswith(BUILT[0]) for line in check(tree))
    page.cells.append(nbformat.v4.new_markdown_cell("more", id="more"))
    put(tree, BUILT[0], nbformat.writes(page))
    assert any("more" in line for line in check(tree))


@pytest.mark.parametrize("name", ["words.yaml", "scrub.js", "scrub.css", "map.json"])
def test_a_chapter_is_stale_when_any_part_of_the_library_changes(tree, no_kernel, name):
    assert check(tree) == []
    put(tree, f"course_lib/notebook/{name}", "{}")
    assert any(line.startswith(BUILT[0]) for line in check(tree))


def test_a_chapter_is_stale_when_the_version_changes(tree, no_kernel):
    put(tree, "pyproject.toml", '[project]\nversion = "0.4.0"\n')
    assert any(line.startswith(BUILT[0]) for line in check(tree))


def test_a_windows_checkout_is_no_difference(tree, no_kernel):
    for path in files(tree):
        file = tree / path
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    before = files(tree)
    assert check(tree) == []
    assert build(tree) == []
    assert files(tree) == before


def test_outputs_are_compared_by_running_again(tree):
    assert check_outputs(tree) == []
    change(tree, BUILT[0], '"42"', '"43"')
    assert check_outputs(tree) == [
        "chapters/01_walk.ipynb: a new run gives other outputs"
    ]


def test_outputs_are_compared_only_under_the_pinned_versions(tree, monkeypatch, capsys):
    put(tree, "constraints.txt", "# pins\nnbformat==0.0.1\n")
    assert re.fullmatch(
        r"nbformat is [\d.]+ here, 0\.0\.1 in constraints\.txt|this is .*",
        unlike_the_pinned_machine(tree),
    )
    monkeypatch.setattr(build_module.platform, "machine", lambda: "arm64")
    assert "not Linux on x86-64" in unlike_the_pinned_machine(tree)
    monkeypatch.setattr(build_module, "check_outputs", lambda *_: ["not skipped"])
    assert main(["--check", "--outputs"], tree) == 0
    assert "outputs are not compared: " in capsys.readouterr().out


# An edit is never lost


def test_an_edit_in_a_master_older_than_its_notebook_is_built(tree, quick_kernel):
    change(tree, "chapters/01_walk.md", "Words about", "New words about")
    os.utime(tree / "chapters/01_walk.md", (0, 0))
    assert build(tree) == ["chapters/01_walk.ipynb"]
    assert "New words about" in (tree / BUILT[0]).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", BUILT)
def test_an_edit_in_a_notebook_stops_the_build(tree, no_kernel, path):
    edited = notebook(tree, path)
    edited.cells[0].source += "\nA sentence of mine."
    nbformat.write(edited, tree / path)
    change(tree, "chapters/01_walk.md", "Words about", "New words about")
    change(tree, "solutions/01_walk.md", "x + x", "2 * x")
    before = files(tree)
    with pytest.raises(BuildError) as caught:
        build(tree)
    assert f"{path}: cell opening-text-1: was edited" in str(caught.value)
    assert "build --force" in str(caught.value)
    assert files(tree) == before


def test_a_cell_added_in_a_notebook_stops_the_build(tree, no_kernel):
    edited = notebook(tree)
    edited.cells.append(nbformat.v4.new_code_cell("mine = 1", id="mine"))
    nbformat.write(edited, tree / BUILT[0])
    with pytest.raises(BuildError, match="cell mine: was edited"):
        build(tree)


def test_an_edit_that_moved_into_the_master_needs_no_force(tree, quick_kernel):
    for path in ("chapters/01_walk.md", BUILT[0]):
        change(tree, path, "Words about", "New words about")
    assert build(tree) == ["chapters/01_walk.ipynb"]


def test_force_replaces_an_edited_notebook(tree, quick_kernel):
    change(tree, BUILT[0], "Words about", "My words about")
    assert build(tree, force=True) == ["chapters/01_walk.ipynb"]
    assert "My words" not in (tree / BUILT[0]).read_text(encoding="utf-8")


def test_outputs_of_a_readers_run_are_replaced(tree):
    before = files(tree)
    ran = notebook(tree)
    ran.cells[3].outputs[1].data["text/plain"] = "43"
    ran.cells[3].execution_count = 17
    ran.metadata["widgets"] = {}
    nbformat.write(ran, tree / BUILT[0])
    assert build(tree) == ["chapters/01_walk.ipynb"]
    assert files(tree) == before


# The tree this test stands in


def test_this_tree_is_up_to_date():
    assert check(build_module.ROOT) == []
