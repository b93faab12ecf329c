"""The stages' runs: what is kept of them is what is claimed, and the command works."""

import json

import pytest
import torch
import yaml

from benchmarks import stages as bench
from benchmarks.report_stages import NAMES, interval, of, stages_part
from course_lib import data
from course_lib.train.plot import half_interval
from course_lib.train.program import PROGRAMS
from course_lib.train.settings import read_settings
from course_lib.train.tasks import TaskConfig, make_sources

pytest.importorskip("jsonargparse")
KEPT = json.loads(bench.RESULTS.read_text(encoding="utf-8"))
SMALL = ["--model.width", "16", "--model.num_layers", "1", "--model.num_heads", "2"]


def column(stage, name):
    return [row[name] for row in of(KEPT["rows"], stage)]


def settings(stage):
    path = bench.CONFIGS / bench.STAGES[stage].config
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_what_was_kept_says_how_it_was_made():
    assert KEPT["command"] == bench.COMMAND and KEPT["machine"]["threads"] == 1
    found = [(row["stage"], row["seed"]) for row in KEPT["rows"]]
    assert found == [(n, seed) for n, x in bench.STAGES.items() for seed in x.seeds]
    assert all(len(stage.seeds) == 3 for stage in bench.STAGES.values())
    for stage in NAMES:
        size = settings(stage)["model"]
        assert size["num_layers"] >= 2 and size["width"] >= 128


def test_sft_stops_part_of_the_way():
    assert all(0.3 <= accuracy <= 0.5 for accuracy in column("sft", "accuracy"))


def test_ppo_with_the_verifier_comes_to_nine_of_ten_within_five_minutes():
    assert min(column("ppo", "accuracy")) >= 0.9
    assert max(column("ppo", "cpu_seconds")) <= 300


def test_the_reward_model_knows_more_than_chance():
    assert min(column("reward-model", "held_out_accuracy")) > 0.9
    few, many = (
        max(column(stage, "held_out_accuracy"))
        for stage in ("reward-model-few", "reward-model")
    )
    assert 0.6 < few < many


@pytest.mark.parametrize("stage", ["grpo", "ppo-reward-model"])
def test_it_goes_on_from_where_sft_stopped(stage):
    before = dict(zip(bench.SEEDS, column("sft", "accuracy"), strict=True))
    for row in of(KEPT["rows"], stage):
        assert row["accuracy"] > before[row["seed"]] + 0.2


def test_a_weak_judge_ruins_what_listens_to_it():
    assert max(column("ppo-fooled", "accuracy")) < 0.2


def test_grpo_and_ppo_are_compared_at_equal_samples_epochs_and_bonus():
    one, other = (settings(stage)["algorithm"] for stage in ("ppo", "grpo"))
    assert {k: v for k, v in other.items() if k != "group_size"} == one


def test_one_of_64_tokens_is_found_without_sft():
    assert max(column("token-reward", "first")) < 2.5 / 64
    assert min(column("token-reward", "score")) > 0.9


def test_the_problems_to_test_with_are_none_to_learn_from():
    levels, held_out = tuple(settings("ppo")["task"]["levels"]), []
    for seed in (0, *bench.SEEDS):
        task = TaskConfig(levels=levels, split_seed=seed)
        sources = make_sources(task, torch.device("cpu"))
        asked = [{one.question for one in source.problems} for source in sources]
        assert list(map(len, asked)) == [720, 180] and not asked[0] & asked[1]
        held_out.append(asked[1])
    # Of those that the settings were chosen with, no more than chance brings back.
    assert all(len(held_out[0] & other) < 60 for other in held_out[1:])


@pytest.mark.parametrize("name", bench.LOGS)
def test_the_kept_logs_are_thinned_and_say_how_they_were_made(name):
    kept, (stage, title) = data.load(name), bench.LOGS[name]
    assert kept["command"] == bench.COMMAND and kept["title"] == title
    seed, updates = bench.SEEDS[0], settings(stage)["algorithm"]["num_updates"]
    assert kept["seeds"] == [seed] and kept["log"][-1]["update"] == updates - 1
    assert 100 <= len(kept["log"]) <= 150
    (row,) = (one for one in of(KEPT["rows"], stage) if one["seed"] == seed)
    assert kept["log"][-1]["accuracy"] == pytest.approx(row["accuracy"], abs=1e-3)


def test_every_stage_is_read_by_its_program_and_every_file_is_a_stage():
    files = {stage.config for stage in bench.STAGES.values()}
    rooms = ("arithmetic", "toy")
    paths = [path for room in rooms for path in (bench.CONFIGS / room).iterdir()]
    assert files == {f"{path.parent.name}/{path.name}" for path in paths}
    for stage in bench.STAGES.values():
        given = [stage.program, "--config", str(bench.CONFIGS / stage.config)]
        name, values = read_settings(PROGRAMS, given)
        assert PROGRAMS[name].configs(values)["run"].out.startswith("runs/")


def test_the_interval_is_students():
    # 4.303 is its quantile of two degrees of freedom, 1 the deviation.
    assert half_interval([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5)
    assert interval([1.0, 2.0, 3.0]) == "2.000 ± 2.484" and interval([1.0]) == "1.000"
    assert "± " in stages_part(KEPT)


def test_the_command_makes_the_stages_one_after_another(tmp_path, one_thread):
    few = ["--algorithm.num_epochs", "1", "--run.device", "cpu"]
    row = bench.measure("sft", 1, tmp_path, *SMALL, *few)
    assert row["stage"] == "sft" and 0 <= row["accuracy"] <= 1 and row["updates"] == 1
    few = ["--algorithm.num_updates", "2", "--algorithm.batch_size", "16"]
    row = bench.measure("grpo", 1, tmp_path, *SMALL, *few)
    assert row["updates"] == 2 and row["cpu_seconds"] >= 0
    again = bench.measure("grpo", 1, tmp_path, *SMALL, *few)  # it is there
    assert again == row
    said = json.loads((tmp_path / "grpo-1" / "settings.json").read_text("utf-8"))
    assert said["task"]["split_seed"] == 1
    with pytest.raises(RuntimeError, match="ppo with seed 2 did not end well"):
        bench.measure("ppo", 2, tmp_path, *SMALL)
