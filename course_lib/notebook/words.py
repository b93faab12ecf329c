"""The words a reader sees outside the chapters, read from YAML by id.

Labels, buttons, diagnoses and alt texts live in `words.yaml` and the quiz banks, so
that a translation is one more file and no code. Formulas in them are written between
dollar signs and shown as MathML, which browsers draw by themselves: that works alike in
JupyterLab, Colab, the slides and the site, without a script and without a network.
"""

import functools
import html
import json
import re
from importlib import resources
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MARKUP = re.compile(r"\$([^$]+)\$|`([^`]+)`")


def read_yaml(package: str, name: str) -> Any:
    """Return the content of the YAML file `name` inside `package`.

    Raises `ValueError` with the file's name and the line where it does not parse.
    """
    text = (resources.files(package) / name).read_text(encoding="utf-8")
    try:
        return yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise ValueError(f"{name}: not valid YAML: {error}") from error


@functools.cache
def _words() -> dict[str, Any]:
    words: dict[str, Any] = read_yaml(__package__, "words.yaml")
    return words


def word(path: str, **values: object) -> str:
    """Return the text at `path` ("check.passed"), with `{name}` replaced by `values`.

    Raises `KeyError` naming the path when there is no such text.
    """
    node: Any = _words()
    for key in path.split("."):
        if not isinstance(node, dict) or key not in node:
            raise KeyError(f"words.yaml has no text {path!r} (stopped at {key!r})")
        node = node[key]
    return str(node).format(**values) if values else str(node)


def words_of(section: str) -> dict[str, str]:
    """Return all texts of one section by name; the page fills in their `{name}`."""
    return {name: str(text) for name, text in _words()[section].items()}


def label(name: str) -> str:
    """Return the label of a control called `name`, or the name itself."""
    return str(_words()["labels"].get(name, name.replace("_", " ")))


@functools.cache
def _mathml() -> dict[str, str]:
    file = resources.files("course_lib.quizzes") / "mathml.json"
    if not file.is_file():
        return {}
    formulas: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return formulas


def maths(text: str) -> str:
    """Return `text` as HTML: `$...$` as MathML, `` `...` `` as code, the rest escaped.

    A formula that the build has not compiled yet is shown as its source, in code.
    """
    pieces, end = [], 0
    for found in _MARKUP.finditer(text):
        pieces.append(html.escape(text[end : found.start()]))
        formula, code = found.groups()
        if formula is not None and formula in _mathml():
            pieces.append(_mathml()[formula])
        else:
            pieces.append(f"<code>{html.escape(formula or code)}</code>")
        end = found.end()
    pieces.append(html.escape(text[end:]))
    return "".join(pieces)
