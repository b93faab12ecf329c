"""Formulas of the quizzes and drawn diagrams: compiled, written, checked."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from tools import figures, quiz_maths
from tools.build import build, check
from tools.files import BuildError


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8", newline="\n")


def test_formulas_of_the_words_are_compiled_and_checked(tmp_path):
    put(tmp_path, "pyproject.toml", '[project]\nversion = "0.3.0"\n')
    bank = {"q": {"prompt": "What is $V_\\pi$?", "options": ["`$5`", "$\\frac16$"]}}
    put(tmp_path, "course_lib/quizzes/01_walk.yaml", json.dumps(bank))
    put(tmp_path, "course_lib/notebook/words.yaml", "right: Yes, $V_\\pi$.\n")
    assert build(tmp_path) == [quiz_maths.MAP]
    stored = json.loads((tmp_path / quiz_maths.MAP).read_text(encoding="utf-8"))
    assert list(stored) == ["V_\\pi", "\\frac16"]
    assert "<msub><mi>V</mi><mi>" in stored["V_\\pi"]
    assert build(tmp_path) == check(tmp_path) == []
    put(tmp_path, "course_lib/notebook/words.yaml", "right: Yes, $Q_\\pi$.\n")
    assert check(tmp_path) == [
        "course_lib/quizzes/mathml.json: $Q_\\pi$: is not as compiled from the words"
    ]


@pytest.mark.parametrize("formula", ["\\frac{1", "\\nosuchthing x"])
def test_a_formula_that_does_not_compile_is_named(tmp_path, formula):
    put(tmp_path, "course_lib/quizzes/01_walk.yaml", json.dumps([f"${formula}$"]))
    with pytest.raises(BuildError) as caught:
        quiz_maths.compiled(tmp_path)
    assert f"course_lib/quizzes/01_walk.yaml: the formula ${formula}$" in str(
        caught.value
    )


def draw_chain(figure: Figure) -> str:
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], label="a < b")
    axes.legend()
    return "Two states & an arrow."


chain = (draw_chain, (4.0, 2.0))


def test_a_diagram_carries_its_words_and_is_the_same_every_time(tmp_path):
    put(tmp_path, "course_lib/notebook/plots/diagrams.py", "# one\n")
    diagrams = {"random-walk": chain}
    assert figures.write(tmp_path, diagrams) == ["figures/random-walk.svg"]
    svg = (tmp_path / "figures/random-walk.svg").read_text(encoding="utf-8")
    assert 'role="img"' in svg
    assert '<title id="random-walk-title">random walk</title>' in svg
    assert '<desc id="random-walk-desc">Two states &amp; an arrow.</desc>' in svg
    assert "<dc:date>" not in svg
    assert "<text" not in svg
    assert figures.write(tmp_path, diagrams) == figures.check(tmp_path, diagrams) == []
    (tmp_path / "figures/random-walk.svg").unlink()
    figures.write(tmp_path, diagrams)
    assert (tmp_path / "figures/random-walk.svg").read_text(encoding="utf-8") == svg


def test_check_names_stale_missing_and_unknown_diagrams(tmp_path):
    put(tmp_path, "course_lib/notebook/plots/diagrams.py", "# one\n")
    figures.write(tmp_path, {"a": chain, "gone": chain})
    put(tmp_path, "course_lib/notebook/plots/diagrams.py", "# two\n")
    found = figures.check(tmp_path, {"a": chain, "new": chain})
    assert [line.split(":")[0] for line in found] == [
        "figures/a.svg",
        "figures/new.svg",
        "figures/gone.svg",
    ]
