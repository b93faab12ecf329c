"""The engine of `check`, and every task's zoo: none passes, nearly all are named."""

import html
import inspect
import re
import time

import pytest
import torch

from course_lib.notebook import check
from course_lib.notebook.checks import CheckFailed, load_task, tasks
from course_lib.notebook.checks.core import examine, show
from course_lib.notebook.checks.outcome import run
from course_lib.notebook.words import word

SEEDS = range(20)
TASKS = [load_task(name) for name in tasks()]
by_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # The deviation of one number, in answers that standardise where they should not.
    pytest.mark.filterwarnings(r"ignore:std\(\)"),
]


@by_task
def test_every_wrong_answer_is_refused_and_named(task):
    named = total = 0
    for wrong in task.wrongs.values():
        for way in wrong.functions:
            for seed in SEEDS:
                fault = examine(task, way, task.cases(seed))
                assert fault is not None, f"{way.__name__} passes with seed {seed}"
                total += 1
                named += fault.wrong == wrong.name
    assert named >= 0.9 * total


@by_task
def test_every_way_to_make_a_mistake_is_named_as_it(task):
    cases = task.cases(0)
    for wrong in task.wrongs.values():
        for way in wrong.functions:
            assert examine(task, way, cases).wrong == wrong.name, way.__name__


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


@by_task
def test_the_search_for_a_mistake_takes_less_than_40_milliseconds(task):
    def in_pieces(result):
        return result * 0.75

    for lose in (lambda result: result, lambda result: getattr(result, "data", result)):

        def unknown(*arguments, lose=lose):
            return lose(in_pieces(task.reference(*arguments)))

        start = time.process_time()
        for _ in range(3):
            assert examine(task, unknown, task.cases(0)) is not None
        assert (time.process_time() - start) / 3 < 0.160


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


def in_float32(function):
    return lambda *arguments: function(*arguments).float()


def returns_float64(task):
    value = run(task.reference, task.cases(0)[0]).value
    return getattr(value, "dtype", None) == torch.float64


FLOAT64 = [task for task in TASKS if returns_float64(task) and not task.any_float]


@pytest.mark.parametrize("task", FLOAT64, ids=lambda task: task.name)
def test_a_dtype_alone_is_no_mistake_of_the_zoo_and_shows_its_numbers(task):
    fault = examine(task, in_float32(task.reference), task.cases(0))
    assert fault.wrong is None
    assert "dtype torch.float32, and torch.float64" in fault.words
    assert "differ" not in fault.words
    assert fault.got == fault.expected != ""


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("expected_backup", "policy-ignored"),
        ("td_errors", "end-read-one-late"),
        ("masked_mean", "rows-averaged"),
        ("token_log_probs", "next-token-scored"),
        ("clipped_objective", "minimum-of-ratios"),
    ],
)
def test_beside_a_dtype_the_input_is_one_where_the_mistake_shows_in_numbers(
    name, wrong
):
    task = load_task(name)
    answer = in_float32(task.wrongs[wrong].function)
    fault = examine(task, answer, task.cases(0))
    assert fault.wrong == wrong
    assert "dtype torch.float32" in fault.words
    assert fault.got != fault.expected


def test_beside_a_dtype_unknown_numbers_are_said_to_differ():
    reference = load_task("td_errors").reference
    text = refused(lambda *arguments: reference(*arguments).float() + 3, "td_errors")
    assert "dtype torch.float32" in text
    assert "The numbers differ." in text


def test_a_nan_shows_what_was_expected_in_its_place():
    text = refused(lambda *a: load_task("td_errors").reference(*a) / 0.0, "td_errors")
    assert "NaN or infinity" in text
    assert "you returned   [-inf]" in text or "you returned   [inf]" in text
    assert "expected       [1.4]" in text


def test_a_wrong_gradient_is_shown_beside_the_right_one():
    task = load_task("token_log_probs")
    text = refused(task.wrongs["normaliser-detached"].function, "token_log_probs")
    assert "you returned   [[0]], gradient with respect to logits: [[[1]]]" in text
    assert "expected       [[0]], gradient with respect to logits: [[[0]]]" in text


def test_a_gradient_into_a_constant_is_said_to_be_one_too_many():
    task = load_task("critic_loss")
    text = refused(task.wrongs["target-not-detached"].function, "critic_loss")
    assert "A gradient reaches returns, which is a constant" in text
    assert "No gradient reaches" not in text
    assert "you returned   2, gradient with respect to values: [[2]], gradient" in text
    assert "no gradient with respect to returns" in text  # what is expected


def test_a_constant_that_gets_no_gradient_is_never_said_to_lack_one():
    text = refused(lambda new, old, mask: new.detach() * 0 + 7, "importance_ratio")
    assert "No gradient reaches log_probs" in text
    assert "old_log_probs:" not in text


def test_wrong_numbers_are_told_before_a_gradient_into_a_constant():
    """One headline about a missing detach, over a cause about the padding, misled."""
    answers = {
        "importance_ratio": lambda new, old, mask: (new - old).exp(),
        "critic_loss": lambda v, returns: ((v - returns) ** 2).mean() / 2,
    }
    named = {
        "importance_ratio": "mask-ignored",
        "critic_loss": "every-value-on-every-return",
    }
    for name, answer in answers.items():
        fault = examine(load_task(name), answer, load_task(name).cases(0))
        assert fault.wrong == named[name]
        assert fault.words == "The numbers differ."
        assert "gradient" not in fault.got + fault.expected


CONSTANTS = {
    "importance_ratio": 1,
    "critic_loss": 1,
    "clipped_critic_loss": 1,
}
"""At which place of a task's arguments its constant stands."""


@pytest.mark.parametrize(("name", "place"), CONSTANTS.items())
def test_a_mistake_is_named_although_a_constant_was_not_detached(name, place):
    task, cases = load_task(name), load_task(name).cases(0)
    for wrong in task.wrongs.values():
        answer = wrong.function
        if examine(task, answer, cases).words.startswith(("A grad", "No grad", "Your")):
            continue  # in the gradient only, or an answer that holds NaN

        def attached(*arguments, answer=answer):
            constant = arguments[place]
            return answer(*arguments) + (constant - constant).nan_to_num(0.0).sum()

        fault = examine(task, attached, cases)
        assert fault.wrong == wrong.name
        assert "A gradient reaches" not in fault.words


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ("minimum-for-maximum", lambda a, b: 0.5 * torch.minimum(a, b).mean()),
        ("larger-of-two-means", lambda a, b: 0.5 * torch.maximum(a.mean(), b.mean())),
    ],
)
def test_the_held_back_losses_mistakes_are_named_with_old_values_left_attached(
    wrong, answer
):
    def loss(values, old_values, returns, clip):
        held = old_values + (values - old_values).clamp(-clip, clip)
        return answer((values - returns) ** 2, (held - returns) ** 2)

    task = load_task("clipped_critic_loss")
    assert examine(task, loss, task.cases(0)).wrong == wrong


@pytest.mark.parametrize("cap", [1e2, 1e6, 1e9])
def test_a_ratio_that_is_capped_after_its_exponential_is_told_so(cap):
    def answer(log_probs, old_log_probs, advantages, clip_eps):
        ratio = (log_probs - old_log_probs).exp().clamp(max=cap)
        clipped = ratio.clamp(1 - clip_eps, 1 + clip_eps)
        return torch.minimum(ratio * advantages, clipped * advantages)

    task = load_task("clipped_objective")
    fault = examine(task, answer, task.cases(0))
    assert fault.wrong == "ratio-overflows"
    assert "A bound on the ratio comes too late" in fault.text


def test_a_small_number_may_stand_under_the_root_of_the_deviation():
    def answer(advantages, mask):
        real = advantages[mask]
        spread = (real.var(correction=0) + 1e-8).sqrt()
        return torch.where(mask, (advantages - real.mean()) / spread, 0.0)

    assert check("normalised_advantages", answer).passed


@pytest.mark.parametrize("tiny", [1e-12, 1e-8, 1e-6])
@pytest.mark.parametrize("correction", [0, 1])
def test_a_tiny_number_below_the_explained_variance_is_named(tiny, correction):
    def answer(values, returns):
        left = (returns - values).var(correction=correction)
        return 1 - left / (returns.var(correction=correction) + tiny)

    fault = examine(
        load_task("variance_explained"),
        answer,
        load_task("variance_explained").cases(0),
    )
    assert fault.wrong == "nothing-to-explain"
    assert "returns = [4, 4, 4]" in fault.inputs


def test_an_order_of_ones_own_is_named_and_leaves_the_global_numbers_alone():
    def answer(num_samples, minibatch_size, num_epochs, shuffle):
        for _ in range(num_epochs):
            order = torch.randperm(num_samples)
            for start in range(0, num_samples, minibatch_size):
                yield order[start : start + minibatch_size]

    task = load_task("minibatch_indices")
    before = torch.get_rng_state()
    for seed in SEEDS:
        assert examine(task, answer, task.cases(seed)).wrong == "order-of-your-own"
    assert torch.equal(torch.get_rng_state(), before)
    texts = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        texts.add(refused(answer, "minibatch_indices"))
    assert len(texts) == 1


def test_minibatches_may_be_yielded_returned_as_a_list_or_as_a_tuple():
    task = load_task("minibatch_indices")
    for make in (iter, list, tuple):
        answer = lambda *a, make=make: make(task.reference(*a))  # noqa: E731
        assert check("minibatch_indices", answer).passed


def test_a_tensor_where_a_list_is_expected_is_told_so():
    text = refused(lambda n, size, epochs, shuffle: shuffle(n), "minibatch_indices")
    assert "returned a Tensor, and a list is expected" in text


def test_a_list_of_another_length_is_counted():
    task = load_task("minibatch_indices")
    text = refused(task.wrongs["windows"].function, "minibatch_indices")
    assert "Your list holds 4 entries, and 2 are expected." in text


def test_a_generator_that_stops_with_an_error_names_its_line():
    def broken(num_samples, minibatch_size, num_epochs, shuffle):
        yield shuffle(num_samples)
        raise RuntimeError("lost")

    assert "stopped with RuntimeError in its line" in refused(
        broken, "minibatch_indices"
    )


def test_a_list_of_one_tensor_is_no_tensor():
    reference = load_task("critic_loss").reference
    text = refused(lambda *a: [reference(*a)], "critic_loss")
    assert "returned a list, and a torch.Tensor is expected" in text


def test_several_results_are_named_in_the_order_in_which_they_are_expected():
    text = refused(lambda *a: a[0].mean(), "policy_diagnostics")
    assert "3 are expected: approx_kl, clip_frac, clip_frac_active" in text


def test_a_mistake_of_numbers_is_not_shown_where_only_its_gradient_is_wrong():
    def zeros_dropped(x, mask):
        kept = torch.where(mask, x, 0.0)
        # Another gradient from the first input on, other numbers only later.
        return kept.sum() / (kept != 0).sum() + (x - x.detach()).sum()

    text = refused(zeros_dropped, "masked_mean")
    assert "The numbers differ." in text
    assert "you returned   3\n  expected       2" in text


def test_a_gradient_that_is_not_there_is_said_to_be_missing():
    text = refused(load_task("masked_mean").wrongs["detached"].function, "masked_mean")
    assert "No gradient reaches x" in text
    assert "you returned   7, no gradient with respect to x" in text
    assert "expected       7, gradient with respect to x: [[1]]" in text


@pytest.mark.parametrize(
    ("name", "wrong", "argument"),
    [
        ("token_log_probs", "logits-gathered", "logits"),
        ("token_log_probs", "negated", "logits"),
        ("clipped_objective", "clip-without-sign", "log_probs"),
        ("masked_mean", "divided-by-all", "x"),
    ],
)
def test_a_mistake_without_a_gradient_is_told_both(name, wrong, argument):
    task = load_task(name)
    answer = task.wrongs[wrong].function
    fault = examine(task, lambda *a: answer(*a).detach(), task.cases(0))
    assert fault.wrong == wrong
    assert f"No gradient reaches {argument}" in fault.words


def test_a_right_answer_without_a_gradient_is_only_detached():
    for name, wrong in (
        ("token_log_probs", "detached"),
        ("clipped_objective", "ratio-detached"),
        ("masked_mean", "detached"),
    ):
        task = load_task(name)
        for right in task.rights.values():

            def answer(*arguments, right=right):
                return right(*arguments).detach()

            assert examine(task, answer, task.cases(0)).wrong == wrong


def test_a_number_in_a_tensor_has_its_own_words_and_hides_no_mistake():
    task = load_task("td_update")
    for function, wrong in (
        (task.reference, None),
        (task.wrongs["weights-swapped"].function, "weights-swapped"),
    ):

        def answer(*arguments, function=function):
            return torch.tensor(function(*arguments), dtype=torch.float64)

        fault = examine(task, answer, task.cases(0))
        assert "a plain number is expected: float(...) or .item()" in fault.words
        assert fault.wrong == wrong
        assert "differ" not in fault.words


@pytest.mark.parametrize("bound", [20, 30, 60])
def test_a_log_ratio_held_between_two_bounds_is_right(bound):
    def answer(log_probs, old_log_probs, advantages, clip_eps):
        ratio = (log_probs - old_log_probs).clamp(-bound, bound).exp()
        clipped = ratio.clamp(1 - clip_eps, 1 + clip_eps)
        return torch.minimum(ratio * advantages, clipped * advantages)

    assert check("clipped_objective", answer).passed


@pytest.mark.parametrize("bound", [10, 50, 80, 1e9])
def test_a_mistake_is_named_whatever_guards_it_against_a_huge_ratio(bound):
    def answer(log_probs, old_log_probs, advantages, clip_eps):
        ratio = (log_probs - old_log_probs).clamp(max=bound).exp()
        clipped = ratio.clamp(1 - clip_eps, 1 + clip_eps)
        return torch.maximum(ratio * advantages, clipped * advantages)

    task = load_task("clipped_objective")
    fault = examine(task, answer, task.cases(0))
    assert fault.wrong == "maximum-for-minimum"


def test_a_mistake_is_named_although_the_padding_is_multiplied_away():
    text = refused(lambda x, mask: (x * mask).sum(), "masked_mean")
    assert load_task("masked_mean").diagnosis("not-divided") in text
    text = refused(lambda r, v, n, end, gamma: v - r - gamma * n * ~end, "td_errors")
    assert load_task("td_errors").diagnosis("sign-turned") in text


def test_a_mistake_is_named_although_a_nan_was_replaced_before():
    def answer(rewards, values, next_values, terminated, gamma):
        return rewards + gamma * next_values.nan_to_num(0.0, 0.0, 0.0) - values

    task = load_task("td_errors")
    assert examine(task, answer, task.cases(0)).wrong == "end-ignored"


def test_a_mistake_is_named_although_unvisited_states_hold_zero():
    task = load_task("first_visit_returns")
    for wrong in ("last-visit", "every-visit", "best-visit", "discount-left-out"):
        answer = task.wrongs[wrong].function
        fault = examine(task, lambda *a, f=answer: f(*a).nan_to_num(0.0), task.cases(0))
        assert fault.wrong == wrong


def test_a_learner_reads_no_warning_of_the_zoos(recwarn):
    reference = load_task("clipped_objective").reference
    refused(lambda *arguments: 3 * reference(*arguments), "clipped_objective")
    assert not recwarn.list


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


def test_a_failed_check_shows_its_report_before_it_stops(monkeypatch):
    shown = []
    monkeypatch.setattr("course_lib.notebook.checks.core.display", shown.append)
    with pytest.raises(CheckFailed) as caught:
        check("td_update", lambda *_: 0.0)
    assert shown == [caught.value.report]


def test_a_check_is_the_same_every_time():
    texts = {refused(lambda *_: 0.0, "td_update") for _ in range(3)}
    assert len(texts) == 1


def test_what_a_learner_wrote_cannot_break_the_card():
    def angry(*_):
        raise ValueError("<b>&</b>")

    with pytest.raises(CheckFailed) as caught:
        check("td_update", angry)
    page = caught.value.report.html()
    assert "<b>&</b>" not in page
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in page


def test_an_interrupt_is_not_taken_for_a_fault():
    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check("td_update", interrupted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "task", [task for task in TASKS if task.any_float], ids=lambda task: task.name
)
def test_where_the_text_leaves_the_float_open_any_of_them_is_right(task, dtype):
    def each(result, change):
        several = isinstance(result, tuple)
        return tuple(map(change, result)) if several else change(result)

    def in_dtype(function):
        return lambda *a: each(function(*a), lambda one: one.to(dtype))

    def whole(*arguments):
        return each(task.reference(*arguments), lambda one: one.nan_to_num().long())

    cases = task.cases(0)
    assert examine(task, in_dtype(task.reference), cases) is None
    wrong = next(iter(task.wrongs.values()))
    assert examine(task, in_dtype(wrong.function), cases).wrong == wrong.name
    assert "torch.int64" in examine(task, whole, cases).text
