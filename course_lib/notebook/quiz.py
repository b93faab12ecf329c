"""`quiz`: a question from the bank, answered in the notebook or on a page.

The cell holds only the question's id. The answer key travels to the front end encoded,
so that nobody reads it by accident; the front end (`quiz.js`) gives the feedback, which
is why a quiz needs no kernel on slides and on the site.
"""

import base64
import difflib
import html
import json
import os
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from course_lib.notebook.bank import Question, read_bank
from course_lib.notebook.picture import widget_bundle
from course_lib.notebook.words import maths, word

_HERE = Path(__file__).parent


class _QuizView(anywidget.AnyWidget):
    _esm = _HERE / "quiz.js"
    _css = _HERE / "quiz.css"
    question = traitlets.Dict().tag(sync=True)


class Quiz:
    """One question that shows itself; `id` is its id in the bank."""

    def __init__(self, question: Question) -> None:
        self.id = question.id
        self._question = question

    def state(self) -> dict[str, Any]:
        """Return what the front end needs, the key in base64."""
        question = self._question
        key = {
            "rights": [i for i, option in enumerate(question.options) if option.right],
            "feedback": [maths(option.feedback) for option in question.options],
            "answer": question.answer if question.kind == "numeric" else None,
            "tolerance": question.tolerance,
            "numbers": [[value, maths(said)] for value, said in question.feedback],
            "explain": maths(question.explain),
        }
        encoded = base64.b64encode(json.dumps(key).encode("utf-8")).decode("ascii")
        names = ("check", "hint", "choose", "number", "right", "wrong", "answer")
        return {
            "id": question.id,
            "kind": question.kind,
            "prompt": maths(question.prompt),
            "options": [maths(option.text) for option in question.options],
            "note": word("quiz.several") if question.kind == "multiple" else "",
            "hint": maths(question.hint),
            "key": encoded,
            "words": {name: word(f"quiz.{name}") for name in names},
        }

    def markdown(self) -> str:
        """Return the question without its answer, for a page without scripts."""
        lines = [f"**{self._question.prompt}**", ""]
        lines += [f"- {option.text}" for option in self._question.options]
        return "\n".join(lines)

    def page_html(self) -> str:
        """Return self-contained HTML; `quiz.js` must be on the page, once."""
        payload = json.dumps(self.state(), ensure_ascii=False).replace("</", "<\\/")
        return (
            f'<div class="course-quiz" id="quiz-{html.escape(self.id)}">'
            f"<p>{maths(self._question.prompt)}</p>"
            f'<script type="application/json">{payload}</script></div>'
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        if os.environ.get("COURSE_STATIC"):
            return {"text/html": self.page_html(), "text/plain": repr(self)}
        live = widget_bundle(_QuizView(question=self.state()).model_id)
        texts = {"text/markdown": self.markdown(), "text/plain": repr(self)}
        return live | texts

    def __repr__(self) -> str:
        return self.markdown()


def quiz(name: str) -> Quiz:
    """Return the question called `name`; as the last line of a cell it shows itself.

    Raises `ValueError` with the nearest names where the bank has no such question.
    """
    bank = read_bank()
    if name not in bank:
        near = difflib.get_close_matches(name, bank, n=3, cutoff=0.0)
        raise ValueError(
            f"name: no question {name!r} in the bank; near: {', '.join(near)}"
        )
    return Quiz(bank[name])
