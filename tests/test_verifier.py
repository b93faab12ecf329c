"""The verifier: what counts as an answer, and the ways to cheat that do not work."""

import time
from fractions import Fraction

import pytest

from course_lib.envs import verifier
from course_lib.envs.verifier import extract_answer, is_right, parse_number, reward


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("−7", -7),
        ("+7", 7),
        ("1,234", 1234),
        ("1,234,567.5", Fraction(2469135, 2)),
        ("1/2", Fraction(1, 2)),
        ("-3 / 4", Fraction(-3, 4)),
        ("50%", Fraction(1, 2)),
        ("12.5 %", Fraction(1, 8)),
        ("1e3", 1000),
        ("2.5E-1", Fraction(1, 4)),
        (".5", Fraction(1, 2)),
        ("$18", 18),
        ("€1,000.25", Fraction(4001, 4)),
        (" 42. ", 42),
        ("0007", 7),
    ],
)
def test_a_number_is_read_exactly(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-", ".", "%", "seven", "7 apples", "41 42", "1,23", "12,3456"),
        *("1/0", "1/", "10-5", "3+4", "2*3", "2^3", "1.2.3", "--7", "0x1f", "1e", "e3"),
        *("1e9999999999", "9" * 500, "٣", "inf", "nan", "1_000"),
    ],
)
def test_what_is_no_number_is_refused(text):
    """The last ones would be numbers to `float`, or would not come back for hours."""
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>42</answer>", 42),
        ("I say 41, no: <answer> 42 </answer>", 42),
        ("<answer>the\n42 of them</answer>", 42),
        ("6 * 7 = 42\n#### 42", 42),
        ("#### 1,234 ", 1234),
        ("There are 42 left.", 42),
        ("It is 1/2", Fraction(1, 2)),
        ("It is 50%", Fraction(1, 2)),
        ("It costs $1e3", 1000),
        ("= -5", -5),
        ("<answer>- 5</answer>", -5),
        ("it is - $5", -5),
        ("–5", -5),
        ("The answer is **42**.", 42),
        ("答案是42元", 42),
    ],
)
def test_an_answer_is_read_where_it_is_said_to_be(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        ("<answer></answer> 42", "42"),  # 1.2 for an empty tag
        ("It is 41 or 42", "42"),  # the last of several
        ("<answer>42 43 44</answer>", "42"),  # the first of several
        ("<answer>41</answer><answer>42</answer>", "42"),
        ("<answer>42", "42"),  # never closed
        ("#### 41\n#### 42", "42"),
        ("1/2", "1"),
        ("50%", "50"),
        ("1e3", "3"),
        ("10-5", "-5"),
        ("10-5", "5"),  # an exercise put back is not an answer
        ("1,234", "234"),
        ("3.14.15", "15"),
        ("x42", "42"),
        ("- 5", "5"),  # the sign is not left behind
        ("--5", "-5"),
        ("+-5", "-5"),
        ("x-5", "5"),
        ("x-5", "-5"),
        ("3–5", "3"),
        ("42½", "42"),
        ("42²", "42"),
        ("4٢", "4"),
        ("٤2", "2"),
        ("42_41", "42"),
        ("0x10", "0"),
        ("3x4", "3"),
        ("<answer>1 <answer>42</answer>", "42"),
        ("<answer>42</answer> <answer>", "42"),
        ("", "0"),
        ("one", "1"),
    ],
)
def test_ways_to_cheat_pay_nothing(text, gold):
    """Error 35: each of these earned a reward in a verifier that people train with."""
    assert not is_right(text, gold)
    assert reward(text, gold) in (0.0, 0.2)


@pytest.mark.parametrize(
    "part",
    ["<answer>", "<answer>1", "####", "#### 1", "1/", "1 / ", "1 ", "1.", "-", "1a"],
)
def test_a_long_text_is_read_once_and_not_once_for_each_of_its_beginnings(part):
    """160,000 characters of tags that nobody closes took 17 seconds."""
    started = time.process_time()
    assert extract_answer(part * (200_000 // len(part))) is None
    assert time.process_time() - started < 2


def test_the_three_rewards_that_the_format_has():
    """CLAIMS row 24."""
    assert reward("<answer>42</answer>", "42") == pytest.approx(1.2)
    assert reward("<answer>41</answer>", "42") == pytest.approx(0.2)
    assert reward("It is 42", "42") == 1.0
    assert reward("<answer></answer>", "42") == 0.0
    assert reward("<answer>42</answer><answer>42</answer>", "42") == 0.0
    assert reward("<answer>42</answer>", "42", format_bonus=0.0) == 1.0


def test_answers_agree_up_to_rounding_and_no_further():
    assert is_right("0.33333", "1/3") and not is_right("0.333", "1/3")
    assert is_right("0.333", "1/3", tolerance=1e-3)
    assert is_right("42.0", "42") and not is_right("42.001", "42")
    assert is_right("100%", "1") and is_right("1,000", "1000")


def test_refusals_name_what_does_not_fit():
    with pytest.raises(ValueError, match="gold must be a number, got 'many'"):
        is_right("42", "many")
    with pytest.raises(ValueError, match="tolerance"):
        is_right("42", "42", tolerance=-1.0)
    assert verifier.well_formed("<answer>1</answer>")
