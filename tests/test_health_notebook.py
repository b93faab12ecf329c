"""notebooks/health.ipynb: its cells draw what a run has left."""

import json
from pathlib import Path

import nbformat
import pytest

from course_lib import data
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


def shown(runs=()):
    """Runs every cell; what is printed and the alt texts of what is drawn."""
    said, names = [], {"print": lambda *words: said.append(" ".join(words))}
    for cell in nbformat.read(PAGE, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        source = cell.source.replace("RUNS = []", f"RUNS = {list(runs)}")
        exec(compile(source, cell.id, "exec"), names)
        if cell.id == "read":
            assert ("RUNS = []" in source) is not bool(runs)

            def picture(draw):
                from matplotlib.figure import Figure

                said.append(draw(Figure(figsize=(8, 5))))

            names["picture"] = picture
    return said


def trained(program, out):
    assert main([program, *SMALL, "--run.out", out]) == 0
    text = Path(out, "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_the_kept_runs_show_what_the_text_says_of_them():
    logs = [data.load(name)["log"] for name in ("stages-ppo", "stages-ppo-fooled")]
    for log in logs:
        assert log[-1]["score"] > log[0]["score"] + 0.2 and log[0]["kl"] == 0
        assert log[-1]["explained_variance"] > 0.8 > 0.2 > log[0]["explained_variance"]
        ratios = [line["ratio_max"] for line in log]
        assert max(ratios) > 20 and max(ratios[-len(ratios) // 10 :]) < 3
    (healthy, fooled), names = logs, ("accuracy", "kl")
    assert healthy[-1]["accuracy"] > 0.9 and fooled[-1]["accuracy"] < 1 / 6
    assert healthy[0]["accuracy_before"] == fooled[0]["accuracy_before"] > 0.38
    assert 2.8 < fooled[-1]["kl"] / healthy[-1]["kl"] < 3.2
    first, _, _, learnt, moves = shown()
    assert first.startswith("verifier: ") and all(name in learnt for name in names)
    assert "explained variance" in moves


def test_every_curve_of_a_run_of_ppo_is_drawn():
    log = trained("ppo-lm", "../a")
    assert "accuracy" not in log[0] and "accuracy" in log[-1]
    _, score, learnt, moves = shown(["../a"])
    assert f"{log[-1]['score']:.3g}" in score
    assert learnt.count("at the end") == 5 and moves.count("at the end") == 5


def test_what_one_of_several_runs_does_not_have_is_left_out_of_its_curve():
    trained("ppo-lm", "../a")
    trained("grpo", "../b")
    *_, moves = shown(["../a", "../b"])
    assert moves.count("at the end") > 6 and "informative" in moves


def test_a_run_of_sft_is_drawn_by_its_epochs():
    assert main(["sft", *SMALL[:12], "--run.out", "../s"]) == 0
    _, loss, learnt, _ = shown(["../s"])
    assert "epoch" in loss and "accuracy" in learnt and "perplexity" in learnt


def test_it_is_kept_without_outputs_and_in_narrow_lines():
    for cell in nbformat.read(PAGE, as_version=4).cells:
        assert not cell.get("outputs")
        if cell.cell_type == "code":
            lines = cell.source.splitlines()
            assert len(lines) <= 25 and max(map(len, lines)) <= 76
