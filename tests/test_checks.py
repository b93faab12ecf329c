"""The engine of `check`, and every task's zoo: none passes, nearly all are named."""

import html
import inspect
import re
import time

import pytest
import torch

from course_lib.notebook import check
from course_lib.notebook.checks import CheckFailed, load_task, tasks
from course_lib.notebook.checks.core import examine, run, show
from course_lib.notebook.words import word

SEEDS = range(20)
TASKS = [load_task(name) for name in tasks()]
by_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


@by_task
def test_every_wrong_answer_is_refused_and_named(task):
    named = total = 0
    for wrong in task.wrongs.values():
        for seed in SEEDS:
            fault = examine(task, wrong.function, task.cases(seed))
            assert fault is not None, f"{wrong.name} passes with seed {seed}"
            total += 1
            named += fault.wrong == wrong.name
    assert named >= 0.9 * total


@by_task
def test_right_answers_are_never_refused(task):
    assert len(task.rights) >= 2
    for right in [task.reference, *task.rights.values()]:
        for seed in SEEDS:
            assert examine(task, right, task.cases(seed)) is None


@by_task
def test_a_zoo_has_eight_members_each_with_a_sentence_and_a_source(task):
    assert len(task.wrongs) >= 8
    assert set(task.wrongs) == set(task._texts["wrong"])
    for wrong in task.wrongs.values():
        assert wrong.source
        assert len(task.diagnosis(wrong.name).split()) >= 8
        assert "`" not in task.diagnosis(wrong.name) or "=" not in task.diagnosis(
            wrong.name
        )


@by_task
def test_no_constant_passes(task):
    for case in task.cases(0):
        constant = run(task.reference, case).value
        fault = examine(task, lambda *_, value=constant: value, task.cases(0))
        assert fault is not None


@by_task
def test_expectations_do_not_come_from_the_learners_function(task):
    """A function that answers right only when called twice must not pass."""
    first = {}

    def only_the_second_time(*arguments):
        key = str(arguments)
        if key in first:
            return first[key]
        first[key] = task.reference(*arguments)
        return None

    assert examine(task, only_the_second_time, task.cases(0)) is not None


@by_task
def test_a_check_takes_less_than_15_milliseconds(task):
    check(task.name, task.reference)
    start = time.process_time()
    for _ in range(10):
        check(task.name, task.reference)
    # CPU time of the median machine; a busy one is given four times as much.
    assert (time.process_time() - start) / 10 < 0.060


def refused(function, name="expected_backup"):
    with pytest.raises(CheckFailed) as caught:
        check(name, function)
    return caught.value.report.text


def test_the_untouched_stub_is_told_so():
    def stub(mdp, policy, values, gamma):
        raise NotImplementedError("Task sweep: put your code here")

    assert "still ends in NotImplementedError" in refused(stub)


def test_a_missing_return_is_told_so():
    assert "returned None" in refused(lambda mdp, policy, values, gamma: None)


def test_an_exception_names_the_learners_own_line():
    def broken(mdp, policy, values, gamma):
        ahead = values + 1
        return ahead / torch.zeros(3)

    words = refused(broken)
    line = inspect.getsourcelines(broken)[1] + 2
    assert f"stopped with RuntimeError in its line {line}" in words
    assert "(return ahead / torch.zeros(3))" in words


def test_a_wrong_signature_is_told_so():
    assert "could not be called" in refused(lambda mdp: None)


def test_a_changed_argument_is_told_first():
    def in_place(mdp, policy, values, gamma):
        values.mul_(gamma)
        return values

    assert "changed its argument values in place" in refused(in_place)


def test_a_right_result_that_changes_an_argument_is_refused():
    reference = load_task("expected_backup").reference

    def polluting(mdp, policy, values, gamma):
        result = reference(mdp, policy, values, gamma)
        values.fill_(7.0)
        return result

    assert "changed its argument values in place" in refused(polluting)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda right: right.tolist(), "returned a list, and a torch.Tensor"),
        (lambda right: right.float(), "dtype torch.float32, and torch.float64"),
        (lambda right: right[:, None], "shape [2, 1], and [2]"),
        (lambda right: right.clone().requires_grad_(), "carries a gradient graph"),
        (lambda right: right / torch.zeros_like(right), "NaN or infinity"),
        (lambda right: (right, right), "returned 2 values, and 1 are expected"),
        (lambda right: right + 0.125, "The numbers differ."),
    ],
)
def test_each_kind_of_result_has_its_own_words(spoil, words):
    reference = load_task("expected_backup").reference
    text = refused(lambda *arguments: spoil(reference(*arguments)))
    assert words in text
    assert "A → B" in text  # the smallest input


def test_unknown_numbers_show_the_smallest_input_with_both_values():
    text = refused(lambda *a: load_task("td_update").reference(*a) + 1, "td_update")
    assert "value = 0.5, reward = 0, next_value = 0, gamma = 1" in text
    assert "you returned   1.45" in text
    assert "expected       0.45" in text


def test_a_failed_check_shows_its_words_and_no_traceback():
    with pytest.raises(CheckFailed) as caught:
        check("td_update", lambda *_: 0.0)
    assert caught.value._render_traceback_() == [word("check.stopped")]
    assert str(caught.value).startswith("TD(0): not yet.")


def test_a_report_says_the_same_in_html_and_in_plain_text():
    with pytest.raises(CheckFailed) as caught:
        check("td_update", load_task("td_update").wrongs["weights-swapped"].function)
    shown = caught.value.report._repr_mimebundle_()
    words = " ".join(re.sub(r"<[^>]+>", " ", html.unescape(shown["text/html"])).split())
    assert words == " ".join(shown["text/plain"].split())


def test_a_called_function_is_told_not_to_call_it():
    with pytest.raises(TypeError, match=r"given a float.*without calling it"):
        check("td_update", 0.45)


def test_an_unknown_task_is_told_which_there_are():
    with pytest.raises(ValueError, match=r"no check called 'gae'.*td_update"):
        check("gae", print)


def test_praise_counts_the_inputs():
    report = check("td_update", load_task("td_update").reference)
    assert report.passed
    assert repr(report).startswith("TD(0): right.\nTried on 7 inputs")


def test_values_are_shown_as_a_reader_would_write_them():
    assert show(torch.tensor([1.0, 2.5, 1 / 3])) == "[1, 2.5, 0.3333]"
    assert show(torch.zeros(5, 7)) == "tensor of shape [5, 7]"
