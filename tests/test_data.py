"""Stored runs: found by name, whole, and named where they are not there."""

import json
from pathlib import Path

import pytest

from course_lib import data

FOLDER = Path(data.__file__).parent


def test_every_file_of_the_folder_is_a_run_with_its_name():
    assert data.names() == tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
    assert {"ppo", "trpo", "actor-critic"} <= set(data.names())


def test_a_run_is_loaded_as_it_was_written():
    text = (FOLDER / "ppo.json").read_text(encoding="utf-8")
    assert data.load("ppo") == json.loads(text)


def test_who_changes_a_loaded_run_changes_no_other():
    data.load("ppo")["returns"].clear()
    assert len(data.load("ppo")["returns"]) == 10


def test_a_run_that_is_not_there_is_refused_with_the_nearest_names():
    with pytest.raises(ValueError, match=r"^name: no stored run 'pop'; near: .*\bppo"):
        data.load("pop")
