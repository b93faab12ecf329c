"""docs/CONVENTIONS.md from the rows in tools/conventions.yaml.

    python -m tools.conventions

Each row has an input on which libraries differ and what each returns.
tests/test_conventions.py computes our answers, and those of the libraries that are
installed, and compares them with what the rows say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tools.files import write_text

ROOT = Path(__file__).resolve().parents[1]
ROWS = Path(__file__).with_name("conventions.yaml")
PAGE = ROOT / "docs" / "CONVENTIONS.md"
OURS = "this course"


def load() -> dict[str, Any]:
    """The file as it is: `intro`, `libraries` and `topics` with their rows."""
    found: dict[str, Any] = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    return found


def rows() -> dict[str, dict[str, Any]]:
    """Every row by its id."""
    return {row["id"]: row for topic in load()["topics"] for row in topic["rows"]}


def page() -> str:
    """The whole page, as Markdown."""
    given = load()
    parts = ["# Conventions", given["intro"].strip()]
    parts.append(_table(("library", "version", "how"), _libraries(given["libraries"])))
    for topic in given["topics"]:
        parts += [f"## {topic['title']}", topic["ours"].strip()]
        for row in topic["rows"]:
            parts += [f"**{row['question']}** {row['given'].strip()}"]
            parts.append(_table(("who", "returns", "how", "because"), _answers(row)))
    return "\n\n".join(parts) + "\n"


def _libraries(libraries: dict[str, dict[str, str]]) -> list[tuple[str, ...]]:
    return [(name, its["version"], its["how"]) for name, its in libraries.items()]


def _answers(row: dict[str, Any]) -> list[tuple[str, ...]]:
    found = []
    for answer in row["answers"]:
        returns = f"`{answer['returns']}`" if answer["returns"] else "–"
        how = "run" if answer.get("run") else "read"
        names = ", ".join(answer["by"])
        found.append((names, returns, how, answer.get("because", "")))
    return found


def _table(head: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    cells = [[text.replace("|", r"\|") for text in line] for line in body]
    lines = [head, ("---",) * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Write the page."""
    write_text(PAGE, page())
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
