"""The questions of "Find the bug": one for each letter, and nothing made up."""

import inspect
import re

import pytest

from course_lib.algorithms import faults
from course_lib.notebook import plots
from course_lib.notebook.bank import read_bank

BANK = {name: one for name, one in read_bank().items() if name.startswith("bug-")}
by_case = pytest.mark.parametrize("case", plots.CASES)


def plain(text):
    return " ".join(text.split())


def test_each_letter_has_its_question():
    assert set(BANK) == {f"bug-{case.lower()}" for case in plots.CASES}


@by_case
def test_a_run_is_to_be_named_among_five_bugs_and_each_choice_is_answered(case):
    question = BANK[f"bug-{case.lower()}"]
    assert question.kind == "single"
    assert len(question.options) == 5
    assert len({option.text for option in question.options}) == 5
    assert sum(option.right for option in question.options) == 1


def test_the_same_bug_is_worded_alike_wherever_it_is_offered():
    """Else the wording tells which of the options is new, and so right."""
    offered = {}
    for question in BANK.values():
        for option in question.options:
            offered.setdefault(option.text, set()).add(question.id)
    shared = [text for text, where in offered.items() if len(where) > 1]
    assert len(shared) >= 8
    rights = {o.text for q in BANK.values() for o in q.options if o.right}
    elsewhere = rights & set(shared)
    assert len(elsewhere) >= len(rights) - 2


@by_case
def test_the_code_in_the_explanation_is_the_line_of_the_registry(case):
    explain = plain(BANK[f"bug-{case.lower()}"].explain)
    source = plain(inspect.getsource(faults))
    lines = [code for code in re.findall(r"`([^`]+)`", explain) if len(code) > 25]
    assert lines
    assert any(plain(line) in source for line in lines), lines


@by_case
def test_nothing_before_the_answer_tells_the_name_of_the_fault(case):
    name = plots.CASES[case]
    question = BANK[f"bug-{case.lower()}"]
    assert name not in question.prompt + question.hint
