"""notebooks/health.ipynb: its cells draw what a run has left."""

import json
from pathlib import Path

import nbformat
import pytest

from course_lib.train.program import main

pytest.importorskip("jsonargparse")
PAGE = Path(__file__).resolve().parents[1] / "notebooks" / "health.ipynb"
SMALL = ["--model.context", "16", "--model.width", "16", "--model.num_layers", "1"]
SMALL += ["--model.num_heads", "2", "--task.levels", "[add-1]", "--run.device", "cpu"]
SMALL += ["--run.progress", "false", "--algorithm.num_updates", "4"]
SMALL += ["--algorithm.length", "3", "--algorithm.batch_size", "16"]
SMALL += ["--run.eval_every", "2"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch, one_thread):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.chdir(folder)


def shown(program):
    """Runs the program and then every cell; the alt texts of what is drawn."""
    out = ["--run.out", "../runs/smoke/ppo-lm"]
    assert main([program, *SMALL, *out]) == 0
    said, names = [], {}
    for cell in nbformat.read(PAGE, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        exec(compile(cell.source, cell.id, "exec"), names)
        if cell.id == "read":

            def picture(draw):
                from matplotlib.figure import Figure

                said.append(draw(Figure(figsize=(8, 5))))

            names["picture"] = picture
    return said


def test_every_curve_of_a_run_of_ppo_is_drawn():
    learnt, moves = shown("ppo-lm")
    log = [
        json.loads(line)
        for line in Path("../runs/smoke/ppo-lm/metrics.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    ]
    assert "accuracy" not in log[0] and "accuracy" in log[-1]
    assert f"{log[-1]['score']:.3g}" in learnt
    for said in (learnt, moves):
        assert said.count("at the end") >= 6


def test_what_a_run_does_not_have_is_left_out():
    learnt, moves = shown("grpo")
    assert learnt.count("at the end") >= 6 and moves.count("at the end") < 6


def test_it_is_kept_without_outputs_and_in_narrow_lines():
    for cell in nbformat.read(PAGE, as_version=4).cells:
        assert not cell.get("outputs")
        if cell.cell_type == "code":
            lines = cell.source.splitlines()
            assert len(lines) <= 25 and max(map(len, lines)) <= 76
