"""Cuts exercises and solutions from a solution master.

In a code cell tagged `task`, the answer stands between `### BEGIN SOLUTION` and
`### END SOLUTION`; in prose tagged `answer`, between the same words in HTML comments. A
code cell tagged `check` is graded and may hold hidden tests. The tags become nbgrader's
metadata, so that an exercise can be collected and graded as it is.
"""

import re
from typing import Any

from tools.masters import Cell, MasterError

STUB = 'raise NotImplementedError("Task {name}: put your code here")'
ANSWER = "Your answer here."

_MARKER = re.compile(
    r"(?P<indent>[ \t]*)(###|<!--)[ ](?P<edge>BEGIN|END)[ ]"
    r"(?P<what>SOLUTION|HIDDEN TESTS)[ ]*(-->)?[ ]*"
)
_MARKER_LIKE = re.compile(r"\b(BEGIN|END)\s+(SOLUTION|HIDDEN\s+TESTS?)\b", re.I)
_GRADED_TAGS = {"task", "check", "answer"}


def exercise_source(cell: Cell, path: str) -> str | None:
    """Return what a learner gets of a cell of a solution master.

    Each solution becomes one line that says what to do, at the marker's indentation;
    hidden tests go; every other line stays as it is.

    Returns:
        The source, or None for a cell tagged `solution-only`.

    Raises:
        MasterError: markers that do not pair, or in a cell without the tag for them.
    """
    if "solution-only" in cell.tags:
        return None
    kept: list[str] = []
    inside = ""
    for line, marker in _marked_lines(cell, path):
        if marker is None:
            if not inside:
                kept.append(line)
        elif marker["edge"] == "END":
            inside = ""
        else:
            inside = marker["what"]
            if inside == "SOLUTION":
                stub = STUB.format(name=cell.id) if cell.kind == "code" else ANSWER
                kept.append(marker["indent"] + stub)
    return "\n".join(kept).rstrip("\n")


def solution_source(cell: Cell, path: str) -> str:
    """Return a cell of a solution master without its marker lines."""
    lines = [line for line, marker in _marked_lines(cell, path) if marker is None]
    return "\n".join(lines).rstrip("\n")


def _marked_lines(cell: Cell, path: str) -> list[tuple[str, re.Match[str] | None]]:
    """Return each line with its marker, if it is one, after checking that they pair."""
    lines = [(line, _MARKER.fullmatch(line)) for line in cell.source.split("\n")]
    inside, solutions = "", 0
    for offset, (line, marker) in enumerate(lines):
        line_number = cell.line + offset + (cell.kind == "code")  # below the fence
        where = f"{path}:{line_number}: cell {cell.id}"
        if marker is None:
            if _MARKER_LIKE.search(line):
                raise MasterError(
                    f"{where}: {line.strip()!r} is not a marker; write it on a line of "
                    "its own as ### BEGIN SOLUTION (in prose <!-- BEGIN SOLUTION -->)"
                )
            continue
        what = marker["what"]
        if marker["edge"] == "BEGIN" and not inside:
            inside = what
            solutions += what == "SOLUTION"
        elif marker["edge"] == "END" and inside == what:
            inside = ""
        else:
            raise MasterError(f"{where}: {line.strip()!r} does not pair with a marker")
    where = f"{path}:{cell.line}: cell {cell.id}"
    if inside:
        raise MasterError(f"{where}: BEGIN {inside} has no END")
    tag = "task" if cell.kind == "code" else "answer"
    if solutions and tag not in cell.tags:
        raise MasterError(f"{where}: holds a solution but lacks the tag {tag!r}")
    if tag in cell.tags and not solutions:
        raise MasterError(f"{where}: is tagged {tag!r} but holds no BEGIN SOLUTION")
    return lines


def grading(cell: Cell, path: str) -> dict[str, Any] | None:
    """Return nbgrader's cell metadata (schema 3), or None for an ordinary cell.

    `task` code is written by the learner and not graded itself; `check` code is locked
    and gives the points; an `answer` in prose is written by the learner and graded by
    hand. Points are 1 unless the master says otherwise.
    """
    kinds = sorted(_GRADED_TAGS & set(cell.tags))
    where = f"{path}:{cell.line}: cell {cell.id}"
    if len(kinds) > 1:
        raise MasterError(f"{where}: is tagged {' and '.join(kinds)}; choose one")
    if cell.points is not None and kinds not in (["check"], ["answer"]):
        raise MasterError(f"{where}: points belong to a cell tagged check or answer")
    if not kinds:
        return None
    if (kinds == ["answer"]) != (cell.kind == "markdown"):
        raise MasterError(f"{where}: {kinds[0]!r} is no tag for a {cell.kind} cell")
    metadata: dict[str, Any] = {
        "grade": kinds != ["task"],
        "grade_id": cell.id,
        "locked": kinds == ["check"],
        "schema_version": 3,
        "solution": kinds != ["check"],
        "task": False,
    }
    if metadata["grade"]:
        metadata["points"] = 1 if cell.points is None else cell.points
    return metadata
