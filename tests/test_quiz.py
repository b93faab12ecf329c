"""The quiz bank and `quiz`: faults named, keys computed, no answer in sight."""

import base64
import json
import math
import re

import pytest
import torch

from course_lib import kernels
from course_lib.algorithms import evaluation
from course_lib.envs.finite import random_walk, uniform_policy
from course_lib.exact import feedback
from course_lib.exact import mdp as exact
from course_lib.kernels import discounted_returns
from course_lib.notebook import bank, quiz
from course_lib.notebook.bank import read_bank, read_question
from course_lib.notebook.quiz import Quiz
from course_lib.notebook.words import maths

BANK = read_bank()
# What `computed_by` may speak of.
LIBRARY = {
    "discounted_returns": discounted_returns,
    "evaluation": evaluation,
    "exact": exact,
    "feedback": feedback,
    "kernels": kernels,
    "math": math,
    "torch": torch,
    "uniform": uniform_policy(random_walk()),
    "walk": random_walk(),
}
SINGLE = {
    "kind": "single",
    "prompt": "Which?",
    "hint": "Look.",
    "explain": "So.",
    "options": [
        {"text": "a", "feedback": "no"},
        {"text": "b", "feedback": "yes", "right": True},
        {"text": "c", "feedback": "no"},
    ],
}
NUMERIC = {
    "kind": "numeric",
    "prompt": "How much?",
    "hint": "Look.",
    "explain": "So.",
    "answer": 0.5,
    "tolerance": 0.01,
    "computed_by": "1 / 2",
    "feedback": [{"value": 1.0, "text": "Half of that."}],
}

ORDERING = {
    "kind": "ordering",
    "prompt": "In which order?",
    "hint": "Look.",
    "explain": "So.",
    "lines": ["a", "b", "c", "d"],
    "together": [[2, 3]],
    "feedback": [{"earlier": 1, "later": 4, "text": "a comes first."}],
}


def changed(entry, **fields):
    return {k: v for k, v in (entry | fields).items() if v is not None}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (changed(SINGLE, kind="riddle"), "kind must be one of"),
        (changed(SINGLE, hint=None), r"lacks \['hint'\]"),
        (changed(SINGLE, hnit="x"), r"does not know \['hnit'\]"),
        (changed(SINGLE, prompt="  "), "prompt must be a text"),
        (changed(SINGLE, options=SINGLE["options"][:2]), "2 options, 1 of them right"),
        (changed(SINGLE, options=SINGLE["options"][::2] * 2), "0 of them right"),
        (
            changed(SINGLE, options=[*SINGLE["options"], SINGLE["options"][1]]),
            "2 of them right; expected three or more, exactly one right",
        ),
        (
            changed(SINGLE, options=[{"text": "a"}] * 3),
            "options must be a list of text, feedback",
        ),
        (
            changed(SINGLE, options=[{"text": "a", "feedback": ""}] * 3),
            "option 1: feedback must be a text",
        ),
        (changed(NUMERIC, answer="half"), "answer must be a number, not 'half'"),
        (changed(NUMERIC, tolerance=True), "tolerance must be a number"),
        (
            changed(NUMERIC, feedback=[{"value": 0.505, "text": "?"}]),
            "feedback for 0.505, which counts as right",
        ),
        (changed(NUMERIC, feedback=["no"]), "feedback must list value and text"),
        ("a text", "kind must be one of"),
        (changed(ORDERING, lines=["a", "b"]), "lines must be three or more"),
        (changed(ORDERING, lines=["a", "b", "a"]), "all different"),
        (changed(ORDERING, lines="abc"), "lines must be a list of texts"),
        (changed(ORDERING, together=[[1, 5]]), "together must list numbers of lines"),
        (
            changed(ORDERING, feedback=[{"earlier": 4, "later": 1, "text": "x"}]),
            "feedback for lines 4 and 1",
        ),
        (changed(ORDERING, feedback=[{"earlier": 4}]), "feedback must list earlier"),
    ],
)
def test_a_fault_names_file_and_question(entry, words):
    with pytest.raises(ValueError, match=f"^02_bellman.yaml: which: .*{words}"):
        read_question("02_bellman.yaml: which", "which", entry)


def test_sound_questions_are_read():
    assert read_question("x", "which", SINGLE).options[1].right
    assert read_question("x", "half", NUMERIC).answer == 0.5
    assert read_question("x", "order", ORDERING).ranks == (0, 1, 1, 3)


def test_shuffled_lines_stand_alike_every_time_and_never_right():
    for question in BANK.values():
        if question.kind == "ordering":
            shown = [index for index, _ in quiz(question.id).state()["lines"]]
            again = [index for index, _ in quiz(question.id).state()["lines"]]
            assert shown == again != sorted(shown)
            assert sorted(shown) == list(range(len(question.lines)))


@pytest.mark.parametrize(
    "question", [q for q in BANK.values() if q.kind == "numeric"], ids=lambda q: q.id
)
def test_numeric_keys_are_what_the_library_computes(question):
    computed = float(eval(question.computed_by, LIBRARY))
    assert abs(computed - question.answer) <= question.tolerance / 10


def test_no_answer_can_be_read_in_what_the_notebook_keeps():
    for name, question in BANK.items():
        bundle = quiz(name)._repr_mimebundle_()
        del bundle["text/html"]  # not kept, and encoded
        kept = json.dumps(bundle, ensure_ascii=False)
        for option in question.options:
            assert option.feedback[:30] not in kept
        assert question.explain[:30] not in kept


def test_a_page_shows_the_question_and_hides_its_key(monkeypatch):
    monkeypatch.setenv("COURSE_STATIC", "1")
    page = quiz("left-from-c")._repr_mimebundle_()["text/html"]
    state = json.loads(
        re.search(r"json\">(.*?)</script>", page, re.S)[1].replace("<\\/", "</")
    )
    key = json.loads(base64.b64decode(state["key"]))
    assert key["answer"] == pytest.approx(-1 / 6, abs=1e-6)
    assert "-0.1666" not in page
    assert 'id="quiz-left-from-c"' in page


def test_two_showings_of_one_question_are_the_same_page():
    assert quiz("value-of-e").page_html() == quiz("value-of-e").page_html()


def test_an_unknown_question_is_told_its_neighbours():
    with pytest.raises(ValueError, match=r"no question 'valueofe'.*value-of-e"):
        quiz("valueofe")


def test_every_formula_of_the_bank_is_compiled():
    for question in BANK.values():
        texts = [question.prompt, question.hint, question.explain]
        texts += [part for o in question.options for part in (o.text, o.feedback)]
        texts += [text for _, text in question.feedback]
        texts += [*question.lines, *(text for *_, text in question.pairs)]
        for text in texts:
            assert maths(text).count("<math") == text.count("$") / 2, text


def test_text_around_formulas_is_escaped():
    assert maths("a < b & `x < y`") == "a &lt; b &amp; <code>x &lt; y</code>"


def key_of(question):
    return json.loads(base64.b64decode(Quiz(question).state()["key"]))


def test_the_key_of_options_says_which_are_right_and_what_each_is_told():
    key = key_of(read_question("x", "which", SINGLE))
    assert key["rights"] == [1]
    assert key["feedback"] == ["no", "yes", "no"]
    assert key["explain"] == "So."


def test_the_key_of_a_number_has_its_tolerance_and_the_known_mistakes():
    key = key_of(read_question("x", "half", NUMERIC))
    assert (key["answer"], key["tolerance"]) == (0.5, 0.01)
    assert key["numbers"] == [[1.0, "Half of that."]]


def test_the_key_of_an_order_has_ranks_and_pairs():
    key = key_of(read_question("x", "order", ORDERING))
    assert key["ranks"] == [0, 1, 1, 3]
    assert key["pairs"] == [[0, 3, "a comes first."]]


def test_only_several_answers_and_orders_carry_a_note():
    single = read_question("x", "which", SINGLE)
    assert Quiz(single).state()["note"] == ""
    multiple = read_question("x", "which", changed(SINGLE, kind="multiple"))
    assert Quiz(multiple).state()["note"] == "Several answers may be right."
    assert Quiz(single).state()["hint"] == "Look."


def test_a_question_in_plain_text_marks_no_answer():
    text = Quiz(read_question("x", "which", SINGLE)).markdown()
    assert text == "**Which?**\n\n- a\n- b\n- c"


def test_right_must_be_true_or_false():
    options = [dict(one, right="false") for one in SINGLE["options"]]
    with pytest.raises(ValueError, match=r"option 1: right must be true or false"):
        read_question("x", "which", changed(SINGLE, options=options))


def test_an_id_that_two_files_use_is_named(monkeypatch):
    monkeypatch.setattr(bank, "bank_files", lambda: ("a.yaml", "b.yaml"))
    monkeypatch.setattr(bank, "read_yaml", lambda _package, _name: {"which": SINGLE})
    with pytest.raises(ValueError, match=r"^b\.yaml: which: this id is already taken"):
        bank.read_bank.__wrapped__()
