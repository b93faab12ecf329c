"""`quiz`: a question from the bank, answered in the notebook or on a page.

The cell holds only the question's id. The answer key travels to the page encoded, so
that nobody reads it by accident; the page itself (`quiz.js`) gives the feedback, which
is why a quiz needs neither kernel nor widgets, nor a network.
"""

import base64
import difflib
import html
import json
import os
import random
from typing import Any

from course_lib.notebook.bank import Question, read_bank
from course_lib.notebook.front_end import script, style
from course_lib.notebook.words import maths, word, words_of

_NOTES = {"multiple": "several", "ordering": "order"}


def _note(kind: str) -> str:
    return word(f"quiz.{_NOTES[kind]}") if kind in _NOTES else ""


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
            "ranks": question.ranks,
            "pairs": [[*places, maths(said)] for *places, said in question.pairs],
            "explain": maths(question.explain),
        }
        encoded = base64.b64encode(json.dumps(key).encode("utf-8")).decode("ascii")
        return {
            "id": question.id,
            "kind": question.kind,
            "prompt": maths(question.prompt),
            "options": [maths(option.text) for option in question.options],
            "lines": [[i, maths(question.lines[i])] for i in self._shuffled()],
            "note": _note(question.kind),
            "hint": maths(question.hint),
            "key": encoded,
            "words": words_of("quiz"),
        }

    def _shuffled(self) -> list[int]:
        """Return the lines' indices as first shown: always alike, never right."""
        order = list(range(len(self._question.lines)))
        generator = random.Random(self.id)
        while order and sorted(order) == order:
            generator.shuffle(order)
        return order

    def markdown(self) -> str:
        """Return the question without its answer, for a page without scripts."""
        lines = [f"**{self._question.prompt}**", ""]
        lines += [f"- {option.text}" for option in self._question.options]
        lines += [f"- {self._question.lines[index]}" for index in self._shuffled()]
        return "\n".join(lines)

    def page_html(self) -> str:
        """Return the form's HTML; the page must hold `quiz.js` and `quiz.css`, once."""
        payload = json.dumps(self.state(), ensure_ascii=False).replace("</", "<\\/")
        options = "".join(f"<li>{maths(o.text)}</li>" for o in self._question.options)
        return (
            f'<div class="course-quiz" id="quiz-{html.escape(self.id)}">'
            f"<p>{maths(self._question.prompt)}</p><ul>{options}</ul>"
            f'<script type="application/json">{payload}</script></div>'
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        page, plain = self.page_html(), repr(self)
        if os.environ.get("COURSE_STATIC"):
            return {"text/html": page, "text/plain": plain}
        # Alone in its output, it brings what it needs.
        page += f"<style>{style('quiz')}</style>"
        module = script("quiz") + "\nmountPage(document);"
        page += f'<script type="module">{module}</script>'
        return {
            "text/html": page,
            "text/markdown": self.markdown(),
            "text/plain": plain,
        }

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
