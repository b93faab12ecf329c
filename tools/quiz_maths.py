"""Compiles the formulas in quizzes and other words to MathML.

The words are YAML; a formula stands between dollar signs. MathML needs no script on the
page, and compiling it here keeps the converter out of what learners install.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from latex2mathml.converter import convert

from tools.files import BuildError, read_text, write_text

MAP = "course_lib/quizzes/mathml.json"
WORDS = ("course_lib/quizzes/*.yaml", "course_lib/notebook/**/*.yaml")

# As the reader in course_lib.notebook.words: code in backticks holds no formula.
_FORMULA = re.compile(r"\$([^$]+)\$|`[^`]+`")


def compiled(root: Path) -> str | None:
    """Return the map from LaTeX to MathML as JSON, or None where there are no words.

    Raises:
        BuildError: a file that is not YAML, or a formula that does not compile.
    """
    files = sorted({path for pattern in WORDS for path in root.glob(pattern)})
    if not files:
        return None
    formulas: dict[str, str] = {}
    for path in files:
        where = path.relative_to(root).as_posix()
        try:
            content = yaml.safe_load(read_text(path))
        except yaml.YAMLError as error:
            raise BuildError(f"{where}: is not YAML: {error}") from error
        for text in _texts(content):
            for found in _FORMULA.finditer(text):
                latex = found[1]
                if latex is not None and latex not in formulas:
                    formulas[latex] = _mathml(latex, where)
    return json.dumps(formulas, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _texts(key)
            yield from _texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value)


def _mathml(latex: str, where: str) -> str:
    if len(re.findall(r"(?<!\\){", latex)) != len(re.findall(r"(?<!\\)}", latex)):
        raise BuildError(f"{where}: the formula ${latex}$: braces do not pair")
    try:
        mathml = str(convert(latex))
    except Exception as error:  # the converter raises a class for each mistake
        reason = f"{type(error).__name__} {error}".strip()
        raise BuildError(f"{where}: the formula ${latex}$: {reason}") from error
    unknown = re.search(r"\\[A-Za-z]+", mathml.split("<annotation")[0])
    if unknown:
        raise BuildError(f"{where}: the formula ${latex}$: unknown {unknown[0]}")
    return mathml


def write(root: Path) -> list[str]:
    """Write the map where it has changed and return the paths written."""
    text = compiled(root)
    if text is None or text == read_text(root / MAP):
        return []
    write_text(root / MAP, text)
    return [MAP]


def check(root: Path) -> list[str]:
    """Return what differs between the stored map and the words."""
    text = compiled(root)
    if text is None or text == read_text(root / MAP):
        return []
    stored = json.loads(read_text(root / MAP) or "{}")
    fresh = json.loads(text)
    changed = sorted(
        key for key in {*stored, *fresh} if stored.get(key) != fresh.get(key)
    )
    return [f"{MAP}: ${latex}$: is not as compiled from the words" for latex in changed]
