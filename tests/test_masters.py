"""Masters: what they hold after reading, and what is refused with which words."""

from pathlib import Path

import pytest

from tools.masters import MasterError, read_masters
from tools.notebooks import plan
from tools.tasks import exercise_source, solution_source

HEADER = "---\njupytext:\n  split_at_heading: true\ntitle: A walk\n---\n\n"


def write(root: Path, path: str, body: str, header: str = HEADER) -> None:
    (root / "pyproject.toml").write_text(
        '[project]\nversion = "1.2.3"\n', encoding="utf-8"
    )
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(header + body, encoding="utf-8")


def code(name: str, body: str, more: str = "") -> str:
    return f'```python name="{name}"{more}\n{body}\n```\n\n'


def refused(root: Path) -> str:
    with pytest.raises(MasterError) as caught:
        for page in plan(root):
            page.compose()
    return str(caught.value)


def test_a_code_cell_is_called_by_its_name_and_prose_by_the_code_before_it(tmp_path):
    body = (
        "# Walk\n\nWords.\n\n## First\n\nMore.\n\n" + code("step", "x = 1") + "After.\n"
    )
    write(tmp_path, "chapters/01_walk.md", body)
    (master,) = read_masters(tmp_path)
    assert [cell.id for cell in master.cells] == [
        "opening-text-1",
        "opening-text-2",
        "step",
        "step-text-1",
    ]
    assert master.title == "A walk"
    assert master.language == "en"


def test_ids_stay_when_words_change(tmp_path):
    write(
        tmp_path, "chapters/01_walk.md", "# One\n\n" + code("step", "x = 1") + "Old.\n"
    )
    before = [cell.id for cell in read_masters(tmp_path)[0].cells]
    write(
        tmp_path, "chapters/01_walk.md", "# Two\n\n" + code("step", "x = 2") + "New.\n"
    )
    assert [cell.id for cell in read_masters(tmp_path)[0].cells] == before


def test_a_region_is_one_cell_with_its_own_name_and_slide_mark(tmp_path):
    region = (
        '<!-- #region name="aim" slideshow={"slide_type": "slide"} tags=["slides-only"]'
        " -->\n## Aim\n\n- one\n\n### Sub\n\ntwo\n<!-- #endregion -->\n"
    )
    write(tmp_path, "chapters/01_walk.md", "# Walk\n\n" + region)
    cell = read_masters(tmp_path)[0].cells[1]
    assert (cell.id, cell.slide, cell.tags) == ("aim", "slide", ("slides-only",))
    assert cell.source == "## Aim\n\n- one\n\n### Sub\n\ntwo"


def test_a_hash_inside_a_text_block_starts_no_cell(tmp_path):
    write(
        tmp_path,
        "chapters/01_walk.md",
        "# Walk\n\n```text\n# not a heading\n\n# no\n```\n",
    )
    assert len(read_masters(tmp_path)[0].cells) == 1


def test_a_master_with_windows_line_ends_reads_the_same(tmp_path):
    write(tmp_path, "chapters/01_walk.md", "# Walk\n\n" + code("step", "x = 1"))
    before = plan(tmp_path)
    path = tmp_path / "chapters/01_walk.md"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert plan(tmp_path) == before


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("# A\n\n```python\nx = 1\n```\n", ["01_walk.md:9:", "x = 1", "needs a name"]),
        (code("a", "1") + code("a", "2"), ["01_walk.md:11:", "name a", "line 7"]),
        (code("Big Name", "1"), ["01_walk.md:7", "Big Name", "lower-case"]),
        (code("a", "1", " colour=3"), ["cell a", "colour", "slideshow"]),
        (
            code("a", "1", ' slideshow={"slide_type": "sldie"}'),
            ["cell a", "subslide"],
        ),
        ("```bash\nls\n```\n", ["01_walk.md", "bash", "```text"]),
        (code("a", "x = = 1"), ["cell a", "invalid syntax", "line 1"]),
    ],
)
def test_a_malformed_master_is_refused_by_file_line_and_cell(tmp_path, body, words):
    write(tmp_path, "chapters/01_walk.md", body)
    message = refused(tmp_path)
    assert message.startswith("chapters/01_walk.md:")
    for word in words:
        assert word in message


def test_a_master_without_a_title_is_refused(tmp_path):
    write(tmp_path, "chapters/01_walk.md", "# Walk\n", header="---\nauthor: me\n---\n")
    assert refused(tmp_path) == (
        "chapters/01_walk.md:1: the master needs a header with `title:`"
    )


def test_a_chapter_that_does_not_exist_is_refused(tmp_path):
    write(tmp_path, "chapters/01_walk.md", "# Walk\n")
    with pytest.raises(MasterError, match="07: no master begins with that"):
        read_masters(tmp_path, ["07"])


def test_minutes_grow_with_words_and_code_in_steps_of_five(tmp_path):
    write(tmp_path, "chapters/01_walk.md", "# Walk\n\n" + "word " * 500)
    assert read_masters(tmp_path)[0].minutes() == 5  # 3.8 minutes
    lines = "\n".join(f"x = {i}" for i in range(40))
    write(tmp_path, "chapters/01_walk.md", "word " * 500 + "\n\n" + code("a", lines))
    assert read_masters(tmp_path)[0].minutes() == 10  # 5.8 minutes


def test_version_and_minutes_are_filled_in(tmp_path):
    body = "# Walk\n\n{{minutes}} minutes, $\\frac{{a}}{b}$\n\n"
    write(tmp_path, "chapters/01_walk.md", body + code("a", 'begin("{{version}}")'))
    first, second = plan(tmp_path)[0].compose().cells
    assert first.source == "# Walk\n\n5 minutes, $\\frac{{a}}{b}$"
    assert second.source == 'begin("1.2.3")'


# Translations


def test_a_translation_has_its_own_prose_and_the_masters_code(tmp_path):
    english = "# Walk\n\n" + code("a", "x = 1", ' tags=["deep"]') + "After.\n"
    german = "# Gang\n\n" + code("a", "") + "Danach.\n"
    write(tmp_path, "chapters/01_walk.md", english)
    write(tmp_path, "chapters/01_walk.de.md", german)
    page = next(page for page in plan(tmp_path) if page.master.language == "de")
    assert page.path == "chapters/01_walk.de.ipynb"
    cells = page.compose().cells
    assert [cell.source for cell in cells] == ["# Gang", "x = 1", "Danach."]
    assert cells[1].metadata == {"tags": ["deep"]}


@pytest.mark.parametrize(
    ("german", "words"),
    [
        ("# Gang\n\n" + code("a", "x = 2"), ["cell a", "leave this body empty"]),
        ("# Gang\n\n" + code("b", ""), ["cell a of chapters/01_walk.md is missing"]),
        ("# Gang\n\n" + code("a", "") + code("b", ""), ["cell b", "no such cell"]),
        (code("a", "") + "# Gang\n", ["opening-text-1", "missing"]),
    ],
)
def test_a_translation_that_does_not_match_is_refused(tmp_path, german, words):
    write(tmp_path, "chapters/01_walk.md", "# Walk\n\n" + code("a", "x = 1"))
    write(tmp_path, "chapters/01_walk.de.md", german)
    message = refused(tmp_path)
    assert message.startswith("chapters/01_walk.de.md:")
    for word in words:
        assert word in message


def test_a_changed_original_makes_its_translation_stale(tmp_path):
    write(tmp_path, "chapters/01_walk.md", "# Walk\n\n" + code("a", "x = 1"))
    write(tmp_path, "chapters/01_walk.de.md", "# Gang\n\n" + code("a", ""))
    before = {page.path: page.source for page in plan(tmp_path)}
    write(tmp_path, "chapters/01_walk.md", "# Walk\n\n" + code("a", "x = 2"))
    after = {page.path: page.source for page in plan(tmp_path)}
    assert all(before[path] != after[path] for path in before)


# Exercises and solutions

TASK = """\
def backup(rewards, gamma):
    # Work from the end.
    if not rewards:
        return []
    ### BEGIN SOLUTION
    total = 0.0
    for reward in reversed(rewards):
        total = reward + gamma * total
    return total
    ### END SOLUTION


limit = 3  # stays"""


def task_master(root: Path, task: str = TASK, tags: str = ' tags=["task"]'):
    write(root, "solutions/01_walk.md", "# Walk\n\n" + code("backup", task, tags))
    return read_masters(root)[0]


def test_only_the_marked_lines_are_replaced_and_the_exercise_still_parses(tmp_path):
    master = task_master(tmp_path)
    stripped = exercise_source(master.cells[1], master.path)
    lines = TASK.split("\n")
    stub = '    raise NotImplementedError("Task backup: put your code here")'
    assert stripped.split("\n") == [*lines[:4], stub, *lines[10:]]
    scope: dict = {}
    exec(stripped, scope)
    assert scope["limit"] == 3
    with pytest.raises(NotImplementedError, match="Task backup: put your code"):
        scope["backup"]([1.0], 0.9)


def test_the_solution_loses_only_its_marker_lines(tmp_path):
    master = task_master(tmp_path)
    kept = [line for line in TASK.split("\n") if "###" not in line]
    assert solution_source(master.cells[1], master.path).split("\n") == kept


def test_hidden_tests_and_solution_only_cells_stay_with_the_solution(tmp_path):
    check = "assert f(1)\n### BEGIN HIDDEN TESTS\nassert f(2)\n### END HIDDEN TESTS"
    body = (
        code("try", check, ' tags=["check"] points=2')
        + code("why", "print(1)", ' tags=["solution-only"]')
        + '<!-- #region name="words" tags=["answer"] -->\nWhy?\n\n'
        + "<!-- BEGIN SOLUTION -->\nBecause.\n<!-- END SOLUTION -->\n"
        + "<!-- #endregion -->\n"
    )
    write(tmp_path, "solutions/01_walk.md", body)
    exercise, solution = (page.compose() for page in plan(tmp_path))
    assert [cell.id for cell in exercise.cells] == ["try", "words"]
    assert [cell.id for cell in solution.cells] == ["try", "why", "words"]
    assert exercise.cells[0].source == "assert f(1)"
    assert solution.cells[0].source == "assert f(1)\nassert f(2)"
    assert exercise.cells[1].source == "Why?\n\nYour answer here."
    assert solution.cells[2].source == "Why?\n\nBecause."


# nbgrader's cell metadata, schema version 3: keys, types, and what goes together.
SCHEMA = {
    "grade": bool,
    "grade_id": str,
    "locked": bool,
    "points": (int, float),
    "schema_version": int,
    "solution": bool,
    "task": bool,
}


def test_tags_become_valid_grading_metadata(tmp_path):
    body = (
        code("backup", TASK, ' tags=["task"]')
        + code("try", "assert backup", ' tags=["check"] points=2')
        + code("plain", "1")
        + '<!-- #region name="words" tags=["answer"] points=3 -->\nWhy?\n\n'
        + "<!-- BEGIN SOLUTION -->\nSo.\n<!-- END SOLUTION -->\n<!-- #endregion -->\n"
    )
    write(tmp_path, "solutions/01_walk.md", body)
    for page in plan(tmp_path):
        cells = {
            cell.id: cell.metadata.get("nbgrader") for cell in page.compose().cells
        }
        assert cells.pop("plain") is None
        for name, grading in cells.items():
            assert grading["grade_id"] == name
            assert grading["schema_version"] == 3
            required = set(SCHEMA) - ({"points"} if not grading["grade"] else set())
            assert set(grading) == required
            for key, value in grading.items():
                assert isinstance(value, SCHEMA[key]), key
        kinds = {
            name: (grading["grade"], grading["solution"], grading["locked"])
            for name, grading in cells.items()
        }
        assert kinds == {
            "backup": (False, True, False),
            "try": (True, False, True),
            "words": (True, True, False),
        }
        assert cells["try"]["points"] == 2


@pytest.mark.parametrize(
    ("task", "tags", "words"),
    [
        (TASK, "", "lacks the tag 'task'"),
        ("x = 1", ' tags=["task"]', "holds no BEGIN SOLUTION"),
        (TASK.replace("### END SOLUTION", "# end"), ' tags=["task"]', "has no END"),
        (TASK.replace("### BEGIN", "## BEGIN"), ' tags=["task"]', "is not a marker"),
        (TASK.replace("BEGIN SOLUTION", "END SOLUTION"), ' tags=["task"]', "pair"),
        (TASK, ' tags=["task", "check"]', "choose one"),
        (TASK, ' tags=["task"] points=1', "points belong"),
        ("x = {{seconds}}", "", "only a chapter is executed"),
        (
            "if x:\n    ### BEGIN SOLUTION\n    1\n    ### END SOLUTION\n  y",
            ' tags=["task"]',
            "indent",
        ),
    ],
)
def test_a_malformed_task_is_refused_by_cell(tmp_path, task, tags, words):
    task_master(tmp_path, task, tags)
    message = refused(tmp_path)
    assert "cell backup" in message
    assert words in message
