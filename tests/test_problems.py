"""Problems: arithmetic, JSON lines from a file, and the course's own."""

import json
import re

import pytest

from course_lib.envs import (
    LEVELS,
    PRINTABLE,
    CharacterTokenizer,
    arithmetic_problems,
    read_problems,
    split,
    word_problems,
)
from tools import word_problems as written


def test_text_comes_back_from_its_tokens():
    tokenizer = CharacterTokenizer()
    text = "6 * 7 = 42\n#### 42"
    tokens = tokenizer.encode(text)
    assert max(tokens) < tokenizer.eos_token == tokenizer.vocab_size - 1
    assert tokenizer.decode([*tokens, tokenizer.eos_token, 3]) == text
    assert len(PRINTABLE) == 96 and tokenizer.decode([]) == ""


def test_a_character_outside_the_alphabet_is_named_with_its_place():
    tokenizer = CharacterTokenizer("0123456789+=")
    with pytest.raises(ValueError, match=r"got 'x' at 1 of '3x4='"):
        tokenizer.encode("3x4=")
    with pytest.raises(ValueError, match=r"alphabet .* with \['a'\] twice"):
        CharacterTokenizer("aba")
    with pytest.raises(ValueError, match=r"tokens must lie in \[0, 13\), got 13"):
        tokenizer.decode([13])


@pytest.mark.parametrize(
    ("level", "count"),
    [*zip(LEVELS, (100, 200, 100, 900, 8100), strict=True)],
)
def test_a_level_holds_each_of_its_problems_once_and_rightly_solved(level, count):
    problems = arithmetic_problems(level)
    assert len({one.question for one in problems}) == len(problems) == count
    for one in problems:
        left, sign, right = re.fullmatch(r"(\d+)([-+*])(\d+)=", one.question).groups()
        right = int(right)  # by repeated steps of one, not by the operator
        step = {"+": 1, "-": -1, "*": int(left)}[sign]
        result = 0 if sign == "*" else int(left)
        for _ in range(right):
            result += step
        assert one.gold == one.answer == str(result)


def test_a_split_shares_nothing_and_is_the_same_each_time():
    problems = arithmetic_problems("add-1")
    train, test = split(problems, 0.2, seed=3)
    assert len(train) == 80 and len(test) == 20
    assert {one.question for one in train + test} == {one.question for one in problems}
    assert (train, test) == split(problems, 0.2, seed=3) != split(problems, 0.2, seed=4)


def test_the_word_problems_are_many_and_every_line_of_them_computes():
    train, test = word_problems("train"), word_problems("test")
    assert len(train) == 200 and len(test) == 40
    assert len({one.question for one in train + test}) == 240
    tokenizer = CharacterTokenizer()
    for one in train + test:
        *steps, last = one.answer.split("\n")
        for step in steps:
            a, sign, b, result = re.fullmatch(
                r"(\d+) ([-+*/]) (\d+) = (\d+)", step
            ).groups()
            a, b, result = int(a), int(b), int(result)
            # Turned round, so that the operator that made the line is not used.
            back = {"+": result - b, "-": result + b, "*": result / b, "/": result * b}
            assert back[sign] == a, step
        assert last == f"#### {result}" and one.gold == str(result)
        assert tokenizer.decode(tokenizer.encode(one.question)) == one.question


def test_the_files_are_those_that_the_tool_writes():
    for place, text in written.files().items():
        assert place.read_text(encoding="utf-8") == text


def test_a_file_of_json_lines_is_read(tmp_path):
    path = tmp_path / "some.jsonl"
    lines = [
        {"question": "How much is 6 times 7?", "answer": "6*7=<<6*7=42>>42\n#### 42"},
        {"question": "Und 1000 + 234?", "answer": "#### 1,234", "source": "grüße"},
    ]
    text = "\n\n".join(json.dumps(one, ensure_ascii=False) for one in lines)
    path.write_text("\ufeff" + text + "\n", encoding="utf-8")
    first, second = read_problems(path)
    assert (first.gold, second.gold) == ("42", "1,234")
    assert first.question == "How much is 6 times 7?" and "<<6*7" in first.answer


GOOD = '{"question": "1+1?", "answer": "#### 2"}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD + '{"question": "a"', r"line 2: not JSON"),
        (GOOD + "\n[1]", r"line 3: expected an object, got \[1\]"),
        (GOOD + '{"question": "a?"}', r"line 2: 'answer' must be a text, got None"),
        (GOOD + '{"question": 3, "answer": "#### 2"}', "line 2: 'question' must be"),
        ('{"question": "a?", "answer": "2"}', "line 1: 'answer' must end with '####"),
        ('{"question": "a?", "answer": "#### two"}', "line 1: 'answer' must end with"),
        ("\n\n", "no problem in it"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as refused:
        read_problems(path)
    assert "bad.jsonl" in str(refused.value)


def test_a_file_in_another_encoding_is_named_with_the_line(tmp_path):
    path = tmp_path / "latin.jsonl"
    path.write_bytes(GOOD.encode() + "grüße".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.jsonl, line 2: not UTF-8"):
        read_problems(path)


def test_refusals_name_what_does_not_fit():
    with pytest.raises(ValueError, match="level must be one of"):
        arithmetic_problems("add-9")
    with pytest.raises(ValueError, match="held_out"):
        split([], 1.5)
    with pytest.raises(ValueError, match="part must be one of"):
        word_problems("dev")
