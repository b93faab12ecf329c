"""Is the answer right? A rule that reads numbers, and the ways to cheat it."""

from __future__ import annotations

import re
from fractions import Fraction

from course_lib.kernels.arguments import require_not_negative

_MINUS = "−–‑-"  # the true one, a dash, a hyphen, and the keyboard's
_OTHER_DIGITS = r"\d²³¹¼-¾⁰-₉⅐-↉"  # of any script, and those that are no digits to int
_PLAIN = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_STRICT = re.compile(
    rf"(?P<sign>[+{_MINUS}]?)\s?[$€£]?(?P<whole>{_PLAIN})"
    r"(?:[eE](?P<exponent>[-+−]?[0-9]{1,3}))?"
    rf"(?:\s?/\s?(?P<below>{_PLAIN}))?(?P<percent>\s?%)?"
)
# As far as something that begins like a number goes on like one: 10-5 is no number,
# and neither 10 nor -5 is what was said. All signs before it belong to it: "- 5" is
# not 5, and "--5" is not -5; nor is 42 said by 42½, 42_41 or 42x10.
_SPAN = re.compile(
    rf"(?<![A-Za-z_.{_OTHER_DIGITS}+{_MINUS}])(?:[+{_MINUS}]\s?)*[$€£]?\.?[0-9]"
    rf"(?:[_.,/+*^{_OTHER_DIGITS}{_MINUS}]|[eE](?=[-+−]?[0-9])|[A-Za-z]+(?=[0-9])"
    r"|\s?%|\s?/\s?(?=[0-9]))*"
)
_MARKED = re.compile(r"####(.*)")
_MOST_DIGITS = 60


def parse_number(text: str) -> Fraction | None:
    """The number that a text is, exactly, or None if it is something else.

    Signs, thousands (1,234), decimals, exponents (1e3), fractions (1/2), percent (50%
    is 1/2) and a currency before it are read; "10-5", "1,23", "1/0" and two numbers
    are none.

        >>> parse_number("-1,234.5"), parse_number("50%"), parse_number("10-5")
        (Fraction(-2469, 2), Fraction(1, 2), None)
    """
    found = _STRICT.fullmatch(text.strip().rstrip(".").rstrip())
    if found is None or len(text) > _MOST_DIGITS:
        return None
    number = Fraction(found["whole"].replace(",", ""))
    if found["exponent"]:
        power = int(found["exponent"].replace("−", "-"))
        number *= Fraction(10) ** power
    if found["below"]:
        below = Fraction(found["below"].replace(",", ""))
        if not below:
            return None
        number /= below
    if found["percent"]:
        number /= 100
    return -number if found["sign"] and found["sign"] in _MINUS else number


def extract_answer(text: str) -> Fraction | None:
    """The one number that a response says is its answer, or None.

    Read where the response says it is: inside <answer> ... </answer>, else behind
    ####, else anywhere. Whatever place it is, it must hold one number; a response that
    names several has not answered, and neither has an empty tag with a number outside
    it.

        >>> extract_answer("It is 41 or 42"), extract_answer("so there are 42 left.")
        (None, Fraction(42, 1))
    """
    _, tagged, rest = text.partition("<answer>")
    if tagged:
        inside, closed, _ = rest.partition("</answer>")
        return _only_number(inside) if closed and tagged not in rest else None
    marked = _MARKED.findall(text)
    if marked:
        return _only_number(marked[0]) if len(marked) == 1 else None
    return _only_number(text)


def well_formed(text: str) -> bool:
    """Whether a response has exactly one <answer> block, with one number in it."""
    return "<answer>" in text and extract_answer(text) is not None


def is_right(text: str, gold: str, tolerance: float = 1e-4) -> bool:
    """Whether the response's answer is the gold one, up to rounding.

    Args:
        text: the response.
        gold: a number.
        tolerance: how far apart they may be, absolutely.

    Raises:
        ValueError: a gold answer that is no number, a tolerance below 0.
    """
    right = parse_number(gold)
    if right is None:
        raise ValueError(f"gold must be a number, got {gold!r}")
    allowed = Fraction(require_not_negative("tolerance", tolerance))
    answer = extract_answer(text)
    return answer is not None and abs(answer - right) <= allowed


def reward(text: str, gold: str, *, format_bonus: float = 0.2) -> float:
    """1 for a right answer, and a bonus for one that is where it should be.

    Args:
        text: the response.
        gold: a number.
        format_bonus: for one <answer> block with one number, right or wrong.
    """
    return float(is_right(text, gold)) + format_bonus * well_formed(text)


def _only_number(text: str) -> Fraction | None:
    # **42** is emphasis, 42. the end of a sentence.
    spans = [one.group().rstrip(".,*") for one in _SPAN.finditer(text)]
    return parse_number(spans[0]) if len(spans) == 1 else None
