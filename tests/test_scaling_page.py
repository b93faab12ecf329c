"""docs/SCALING.md: that what it calls ours are settings of our programs."""

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from course_lib.train.program import PROGRAMS

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "SCALING.md").read_text(encoding="utf-8")


def ours(heading):
    """What stands between backticks in the first column of one table."""
    table = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line[:2] == "| "]
    return [name for row in rows[2:] for name in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize(
    ("heading", "program", "least"), [("PPO", "ppo-lm", 20), ("GRPO", "grpo", 14)]
)
def test_every_name_of_ours_is_a_setting_with_that_value(heading, program, least):
    names = ours(heading)
    assert len(names) >= least
    for name in names:
        path, _, value = name.partition("=")
        group, _, setting = path.partition(".")
        config = PROGRAMS[program].groups[group]
        assert setting in {one.name for one in fields(config)}, name
        if value:
            assert value in get_args(get_type_hints(config)[setting]), name


def test_the_values_that_are_said_to_be_ours_are_ours():
    settings = {
        one.name: one.default for one in fields(PROGRAMS["ppo-lm"].groups["algorithm"])
    }
    assert settings["value_clip"] is None and "off here (`value_clip: null`)" in PAGE
    policy = {
        one.name: one.default for one in fields(PROGRAMS["ppo-lm"].groups["policy"])
    }
    assert policy["critic"] == "shared" and "`policy.critic=shared`" in PAGE


def test_files_and_pages_that_it_points_to_are_there():
    for name in re.findall(r"\]\(([\w.]+)\)", PAGE):
        assert (ROOT / "docs" / name).exists(), name
    for name in re.findall(r"`(tests/[\w.]+)`", PAGE):
        assert (ROOT / name).exists(), name
