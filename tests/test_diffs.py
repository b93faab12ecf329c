"""docs/DIFFS.md is made of the algorithms' files, and neighbours stay near."""

import re

import pytest

from tools import diffs


def test_the_page_is_the_one_that_the_files_make():
    assert diffs.PAGE.read_text(encoding="utf-8") == diffs.page()


@pytest.mark.parametrize("step", diffs.STEPS, ids=lambda step: step.after)
def test_neighbours_are_fewer_lines_apart_than_the_limit(step):
    before, after = (diffs.functions(diffs.source(name)) for name in step.files)
    lines = diffs.difference(before, after)
    assert 10 < diffs.changed(lines) < diffs.LIMIT
    # Every line of both files is in the diff or alike in both.
    assert len(before) - diffs.changed(lines, "-") == len(after) - diffs.changed(
        lines, "+"
    )


def test_every_skeleton_goes_through_the_same_steps_in_one_order():
    order = (r"collect", r"estimate_advantages|make_batch", r"update\w*\(", r"\.add\(")
    for name in ("reinforce.py", "actor_critic.py", "ppo.py", "trpo.py"):
        code = "\n".join(diffs.functions(diffs.source(name)))
        loop = code[code.index("in progress_bar(") :]
        places = [re.search(step, loop).start() for step in order]
        assert places == sorted(places), name


def test_words_and_line_breaks_are_not_counted_and_code_is():
    plain = "import a\ndef f(x, y):\n    z: int = x + y\n    return z\n"
    wordy = (
        '"""A module."""\nimport a, b\n# why\ndef f(\n    x: int,\n    y: int,\n)'
        ' -> int:\n    """A function."""\n\n    z = (\n        x + y  # both\n    )'
        "\n    return z\n"
    )
    assert diffs.functions(plain) == diffs.functions(wordy)
    other = plain.replace("x + y", "x - y")
    lines = diffs.difference(diffs.functions(plain), diffs.functions(other))
    assert diffs.changed(lines) == 2 and diffs.changed(lines, "+") == 1
    assert diffs.difference(diffs.functions(plain), diffs.functions(plain)) == []
