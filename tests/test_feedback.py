"""What copying costs and what a verdict tells, beside matrices and enumeration."""

import itertools
import math

import pytest
import torch

from course_lib.exact import off_path_probabilities, right_in_the_better


def by_matrix_powers(error, num_steps, recovery):
    """The chain of two states, on and off the path, stepped T times."""
    moves = torch.tensor(
        [[1 - error, error], [recovery, 1 - recovery]], dtype=torch.float64
    )
    at, off = torch.tensor([1.0, 0.0], dtype=torch.float64), []
    for _ in range(num_steps):
        at = at @ moves
        off.append(at[1])
    return torch.stack(off)


@pytest.mark.parametrize("error", [0.0, 0.001, 0.3, 1.0])
@pytest.mark.parametrize("recovery", [0.0, 0.05, 0.7, 1.0])
def test_a_walker_is_off_the_path_as_often_as_the_chain_says(error, recovery):
    found = off_path_probabilities(error, 60, recovery)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, by_matrix_powers(error, 60, recovery))


def test_one_percent_a_step_without_a_way_back_costs_37_steps_of_100():
    wrong = off_path_probabilities(0.01, 100).sum().item()
    assert wrong == pytest.approx(100 - 99 * (1 - 0.99**100), abs=1e-9)
    assert wrong == pytest.approx(37.24, abs=0.005)


def test_short_paths_cost_the_square_of_their_length():
    cost = {t: off_path_probabilities(1e-6, t).sum().item() for t in (10, 100)}
    for length, wrong in cost.items():
        assert wrong == pytest.approx(1e-6 * length * (length + 1) / 2, rel=1e-3)


def test_steps_that_forget_the_last_one_keep_the_promise_of_the_test_set():
    """recovery = 1 - error: where it stands does not depend on where it stood."""
    found = off_path_probabilities(0.01, 50, recovery=0.99)
    torch.testing.assert_close(found, torch.full((50,), 0.01, dtype=torch.float64))


def by_enumeration(count, wrong_verdicts=0.0):
    """Every pair of answers, every decision: no binomial coefficient in it."""
    answers = list(itertools.product((0, 1), repeat=count))
    total = 0.0
    for one, other in itertools.product(answers, repeat=2):
        first = 0.5 if sum(one) == sum(other) else float(sum(one) > sum(other))
        first = first * (1 - wrong_verdicts) + (1 - first) * wrong_verdicts
        total += first * one[0] + (1 - first) * other[0]
    return total / len(answers) ** 2


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("wrong_verdicts", [0.0, 0.25, 0.5, 1.0])
def test_the_better_answer_is_right_as_often_as_all_pairs_say(count, wrong_verdicts):
    found = right_in_the_better(count, wrong_verdicts)
    assert found == pytest.approx(by_enumeration(count, wrong_verdicts), abs=1e-12)


def test_what_a_verdict_tells_fades_with_the_root_of_the_length():
    for count in (100, 2_000):
        signal = right_in_the_better(count) - 0.5
        assert signal == pytest.approx(0.5 / math.sqrt(math.pi * count), rel=0.01)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: off_path_probabilities(1.1, 5), ValueError, "error must"),
        (lambda: off_path_probabilities(0.1, 5, -0.1), ValueError, "recovery must"),
        (lambda: off_path_probabilities("a", 5), TypeError, "error must"),
        (lambda: off_path_probabilities(0.1, 0), ValueError, "num_steps must be at"),
        (lambda: off_path_probabilities(0.1, 2.0), TypeError, "num_steps .*float"),
        (lambda: right_in_the_better(0), ValueError, "num_decisions must be at least"),
        (lambda: right_in_the_better(True), TypeError, "num_decisions .*bool"),
        (lambda: right_in_the_better(3, 2.0), ValueError, "wrong_verdicts must"),
    ],
)
def test_what_does_not_fit_is_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
