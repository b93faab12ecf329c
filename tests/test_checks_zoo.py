"""The zoos themselves: mistakes one line away from right, and none like another."""

import ast
import difflib
import inspect
import itertools
import re
import textwrap

import pytest
import torch

from course_lib.notebook.checks import load_task, tasks
from course_lib.notebook.checks.core import examine
from course_lib.notebook.checks.outcome import run, same

SEEDS = range(4)
TASKS = [load_task(name) for name in tasks()]
by_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # The deviation of one number, in answers that standardise where they should not.
    pytest.mark.filterwarnings(r"ignore:std\(\)"),
]


def lines_of(function):
    """The body as one entry per logical line, without docstring, layout or the names
    that were given to the arguments."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    new = {arg.arg: f"argument_{i}" for i, arg in enumerate(definition.args.args)}
    for node in ast.walk(definition):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
    body = definition.body
    if ast.get_docstring(definition) is not None:
        body = body[1:]
    return [line.strip() for part in body for line in ast.unparse(part).splitlines()]


def share_half_their_tokens(line, other):
    a, b = (re.findall(r"\w+|\S", text) for text in (line, other))
    blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return 2 * sum(block.size for block in blocks) >= min(len(a), len(b))


def one_line_apart(wrong, right):
    """Is one line of `right` changed, left out or added in `wrong`, and no other? A
    changed line keeps half the tokens of the shorter of the two."""
    matcher = difflib.SequenceMatcher(None, right, wrong, autojunk=False)
    edits = [edit for edit in matcher.get_opcodes() if edit[0] != "equal"]
    if len(edits) != 1:
        return False
    kind, start, end, new_start, new_end = edits[0]
    if max(end - start, new_end - new_start) != 1:
        return False
    return kind != "replace" or share_half_their_tokens(right[start], wrong[new_start])


@pytest.mark.parametrize(
    ("wrong", "apart"),
    [
        (["a = x + y", "return a"], False),  # nothing changed
        (["a = x - y", "return a"], True),
        (["return a"], True),
        (["a = x + y", "a = -a", "return a"], True),
        (["a = x - y", "return -a"], False),  # two lines
        (["raise ValueError", "return a"], False),  # nothing of the line is left
    ],
)
def test_one_line_apart_means_one_line(wrong, apart):
    assert one_line_apart(wrong, ["a = x + y", "return a"]) is apart


# A mistake is near if one of the ways to make it is.
@by_task
def test_three_of_four_wrong_answers_are_one_line_away_from_a_right_one(task):
    rights = [lines_of(right) for right in (task.reference, *task.rights.values())]
    near = {
        wrong.name
        for wrong in task.wrongs.values()
        if any(
            one_line_apart(lines_of(way), right)
            for way in wrong.functions
            for right in rights
        )
    }
    assert len(near) >= 6
    assert len(near) >= 0.75 * len(task.wrongs), set(task.wrongs) - near


@by_task
def test_no_wrong_answer_is_like_another(task):
    for seed in SEEDS:
        cases = task.cases(seed)
        outcomes = {
            way: [run(way, case, task.gradients) for case in cases]
            for wrong in task.wrongs.values()
            for way in wrong.functions
        }
        for way, other in itertools.combinations(outcomes, 2):
            pairs = zip(outcomes[way], outcomes[other], strict=True)
            alike = all(same(mine, theirs, task.tolerance) for mine, theirs in pairs)
            assert not alike, f"{way.__name__} is {other.__name__}, seed {seed}"


def test_a_variant_needs_a_mistake_to_belong_to():
    with pytest.raises(KeyError, match="unheard-of"):
        load_task("td_update").variant("unheard-of")(len)


def doubles(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def flags(*numbers):
    return torch.tensor(numbers).bool()


RATIOS = doubles(1.5, 0.5, 1.5, 10, 10)

# (task, arguments, what comes out), worked out by hand.
KNOWN = [
    ("discounted_returns", (doubles(1, 2, 3), 0.5, flags(0, 0, 0)), [2.75, 3.5, 3]),
    ("discounted_returns", (torch.tensor([1, 0, 2]), 0.5, flags(0, 0, 0)), [1.5, 1, 2]),
    (
        "discounted_returns",
        (doubles(1, 1, 1, 1), 0.9, flags(0, 1, 0, 0)),
        [1.9, 1, 1.9, 1],
    ),
    ("preference_accuracy", (doubles(3, 1, 2, 2), doubles(1, 2, 2, 0)), 0.625),
    ("preference_accuracy", (doubles(1, 1), doubles(1, 1)), 0.5),
    ("td_errors", (doubles(1), doubles(5), doubles(6), flags(0), 0.9), [1.4]),
    ("td_errors", (doubles(1), doubles(5), doubles(torch.nan), flags(1), 0.9), [-4.0]),
    ("masked_mean", (doubles([2, 4, torch.inf]), flags([1, 1, 0])), 3.0),
    (
        "masked_mean",
        (doubles([1, 1, 1, 1], [4, 0, 0, 0]), flags([1, 1, 1, 1], [1, 0, 0, 0])),
        1.6,
    ),
    (
        "token_log_probs",
        (doubles([[1, 0], [0, 1e4]]), torch.tensor([[0, 0]])),
        [[-0.31326169, -1e4]],
    ),
    (
        "clipped_objective",
        (torch.log(RATIOS), torch.zeros_like(RATIOS), doubles(-1, -1, 1, -1, 1), 0.2),
        [-1.5, -0.8, 1.2, -10, 1.2],
    ),
    (
        "clipped_objective",
        (doubles(1000, 1000, -1000), doubles(0, 0, 0), doubles(0, 1, -1), 0.2),
        [0, 1.2, -0.8],
    ),
    # CASES K30; the padding is neutral.
    (
        "importance_ratio",
        (doubles([-1, -2, torch.nan]), doubles([-1.5, -2, 3]), flags([1, 1, 0])),
        [[1.6487212707, 1, 1]],
    ),
    ("critic_loss", (doubles([1], [2]), doubles(1, 2)), 0.0),  # CASES K39
    ("critic_loss", (doubles([1], [2]), doubles(3, 2)), 1.0),
    ("clipped_critic_loss", (doubles(0.5), doubles(0), doubles(0.4), 0.2), 0.02),
    (
        "clipped_critic_loss",
        (doubles(0.1, 3), doubles(0, 3), doubles(1, 1), 0.2),
        1.2025,
    ),
    ("entropy_term", (doubles([7, 7]), 0.01), -0.0069314718),  # CASES K40
    ("entropy_term", (doubles([0.9, 0.1]).log(), 1.0), -0.3250829734),
    ("entropy_term", (doubles([1, 1, -torch.inf]), 1.0), -0.6931471806),
    ("normalised_advantages", (doubles([1, 3]), flags([1, 1])), [[-1, 1]]),  # K32
    (
        "normalised_advantages",  # CLAIMS, error 21
        (doubles([1, 2, 3, 9]), flags([1, 1, 1, 0])),
        [[-1.2247448714, 0, 1.2247448714, 0]],
    ),
    ("normalised_advantages", (doubles([3]), flags([1])), [[0]]),  # CASES K33
    ("variance_explained", (doubles(2, 4, 6), doubles(1, 2, 3)), 0.0),
    ("variance_explained", (doubles(3, 2, 1), doubles(1, 2, 3)), -3.0),
    ("variance_explained", (doubles(11, 12), doubles(1, 2)), 1.0),
    ("variance_explained", (doubles(1, 2), doubles(5, 5)), torch.nan),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), KNOWN)
def test_a_reference_gives_the_numbers_worked_out_by_hand(name, arguments, expected):
    got = load_task(name).reference(*arguments)
    assert got.is_floating_point()
    right = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(
        got.double(), right, atol=1e-7, rtol=1e-7, equal_nan=True
    )


def test_the_reference_of_the_diagnostics_gives_the_numbers_worked_out_by_hand():
    # CASES K45 and CLAIMS row 16: e^0.5 - 1.5, and one of the two has gone silent.
    new, old = doubles(0.5, 0.5), doubles(0, 0)
    told = load_task("policy_diagnostics").reference(new, old, doubles(1, -1), 0.2)
    torch.testing.assert_close(torch.stack(told), doubles(0.1487212707, 1, 0.5))
    new = doubles(0.5, -0.1)
    kl, _, _ = load_task("policy_diagnostics").reference(new, old, doubles(1, 1), 0.2)
    torch.testing.assert_close(kl, torch.tensor(0.0767793444, dtype=torch.float64))


def test_the_reference_of_the_minibatches_cuts_each_epochs_own_order():
    orders = iter([torch.tensor([2, 0, 1]), torch.tensor([1, 2, 0])])
    pieces = load_task("minibatch_indices").reference(3, 2, 2, lambda n: next(orders))
    assert [piece.tolist() for piece in pieces] == [[2, 0], [1], [1, 2], [0]]


def test_the_reference_of_the_clipped_objective_has_the_gradient_worked_out_by_hand():
    log_probs = doubles(0, 0.5, 0.5, 1000, 1000, -1000).requires_grad_()
    advantages = doubles(1, 1, -1, 0, 1, -1)
    objective = load_task("clipped_objective").reference
    objective(log_probs, torch.zeros_like(log_probs), advantages, 0.2).sum().backward()
    expected = doubles(1, 0, -1.6487212707, 0, 0, 0)
    torch.testing.assert_close(log_probs.grad, expected)


def test_a_slope_that_is_wrong_under_right_numbers_is_named():
    task = load_task("token_log_probs")
    wrong = task.wrongs["normaliser-detached"].function
    fault = examine(task, wrong, task.cases(0))
    assert fault.words.startswith("Your numbers are right and their gradient")
    assert fault.wrong == "normaliser-detached"
