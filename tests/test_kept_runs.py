"""Keeping a run: whole or not at all, in a form that JSON has."""

import json
import math
from dataclasses import dataclass

import pytest

from benchmarks import kept_runs
from tools import files


@dataclass(frozen=True)
class Config:
    seeds: tuple = (0, 1)
    max_grad_norm: float = math.inf
    beta: float = 0.1


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(kept_runs, "FOLDER", tmp_path)
    return tmp_path


def kept(name):
    path = kept_runs.FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def test_what_was_saved_is_what_is_loaded_and_nothing_else_is_left(folder):
    size = kept_runs.save("one", {"gap": 0.25})
    assert kept("one") == {"gap": 0.25}
    assert [path.name for path in folder.iterdir()] == ["one.json"]
    assert (folder / "one.json").stat().st_size == size


def test_a_run_that_cannot_be_kept_leaves_the_old_one(folder, monkeypatch):
    kept_runs.save("one", {"gap": 0.25})
    with pytest.raises(ValueError, match="not JSON compliant"):
        kept_runs.save("one", {"gap": math.nan})
    assert kept("one") == {"gap": 0.25}

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        kept_runs.save("one", {"gap": 0.5})
    assert kept("one") == {"gap": 0.25}


def test_a_config_is_kept_without_its_seeds_and_without_infinities():
    assert kept_runs.plain(Config()) == {"max_grad_norm": "inf", "beta": 0.1}


def test_the_named_runs_are_made_and_no_other(folder, capsys):
    def make(name):
        return {"cpu_seconds": 1.5, "name": name}

    kept_runs.main("Make.", ("a", "b", "c"), make, ["c", "a"])
    assert sorted(path.stem for path in folder.iterdir()) == ["a", "c"]
    assert capsys.readouterr().out.startswith("c: 1.5 CPU seconds")
    kept_runs.main("Make.", ("a", "b", "c"), make, [])
    assert kept("b")["name"] == "b"
