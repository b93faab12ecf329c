"""The benchmarks run, compare like with like, and their page is made from results."""

import json
import math
import time
from pathlib import Path

import pytest
import torch

from benchmarks import device, kernel_cases_gae, kernels, report
from benchmarks.device_checks import CHECKS, largest_difference
from benchmarks.device_times import (
    cartpole_rollout,
    plain_loop,
    time_cartpole,
    time_gae,
)
from benchmarks.timing import OURS, Case, circumstances, measure
from course_lib.kernels import gae

ROOT = Path(__file__).resolve().parent.parent
CPU = torch.device("cpu")


def test_every_competitor_that_is_here_computes_our_advantages():
    runs = kernel_cases_gae.competitors((3, 40))
    assert {OURS, kernel_cases_gae.BOUND, kernel_cases_gae.PLAIN} <= runs.keys()


def test_a_competitor_that_computes_something_else_is_refused():
    runs = {OURS: lambda: torch.ones(3), "other": lambda: torch.zeros(3)}
    with pytest.raises(ValueError, match="other computes something else"):
        kernel_cases_gae.compare(runs)


def test_a_measurement_orders_a_short_and_a_long_run():
    def spin(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    row = measure(
        Case("spin", (1,), lambda: {OURS: lambda: spin(1e-3), "x": lambda: spin(3e-3)}),
        rounds=3,
    )
    assert row["microseconds"][OURS] == pytest.approx(1000, rel=0.2)
    assert row["over_ours"] == {"x": pytest.approx(3, rel=0.2)}


def test_what_was_kept_says_how_it_was_made():
    told = circumstances("a command", ("torch", "no-such-package"))
    assert told["command"] == "a command" and told["versions"]["torch"]
    assert "no-such-package" not in told["versions"]
    kept = json.loads(kernels.RESULTS.read_text(encoding="utf-8"))
    assert kept["command"] == kernels.COMMAND and kept["rounds"] >= 15
    assert kept["machine"]["threads"] == 1
    assert set(kernel_cases_gae.PACKAGES) <= kept["versions"].keys()
    shapes = [tuple(row["shape"]) for row in kept["rows"] if row["kernel"] == "gae"]
    assert shapes == list(kernel_cases_gae.SHAPES)


def test_the_page_is_the_one_that_the_results_make(monkeypatch, tmp_path):
    kept = report.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(report, "PAGE", tmp_path / "docs" / "BENCHMARKS.md")
    report.write_page()
    assert report.PAGE.read_text(encoding="utf-8") == kept


class TestKeptFigures:
    """The promises of speed, on the kept results: ratios within a round."""

    TIMES_OURS = {  # noqa: RUF012
        "tianshou": {
            (1, 2048): 1 / 2.5, (4, 128): 1 / 5, (8, 2048): 1, (256, 8): 1 / 2.5,
            (64, 512): 1, (256, 1024): 1, (1024, 4096): 1,
        },
        "stable-baselines3": {
            (1, 2048): 20, (4, 128): 20, (8, 2048): 20, (64, 512): 20,
            (256, 1024): 8, (1024, 4096): 3,
        },
        "plain torch loop": dict.fromkeys(
            [(1, 2048), (8, 2048), (64, 512), (256, 1024), (1024, 4096)], 20
        ),
        "torchrl vectorised": dict.fromkeys(
            [(1, 2048), (8, 2048), (64, 512), (256, 1024), (1024, 4096)], 20
        ),
        "streaming bound": {
            shape: 1 / (12 if shape == (4096, 128) else 8)
            for shape in kernel_cases_gae.SHAPES
        },
    }  # fmt: skip

    @pytest.fixture
    def rows(self):
        kept = json.loads(kernels.RESULTS.read_text(encoding="utf-8"))
        return {tuple(r["shape"]): r for r in kept["rows"] if r["kernel"] == "gae"}

    @pytest.mark.parametrize("name", TIMES_OURS)
    def test_gae_is_as_fast_as_promised(self, rows, name):
        for shape, least in self.TIMES_OURS[name].items():
            assert rows[shape]["over_ours"][name] >= least, shape

    def test_the_torch_engine_is_ahead_of_all_other_tensor_code(self, rows):
        for shape, row in rows.items():
            others = report.over_torch(row)
            for name in ("plain torch loop", "torchrl loop", "torchrl vectorised"):
                assert others[name] > 1, shape
            if shape[0] <= 256 and shape[1] >= 128:
                assert others["stable-baselines3"] > 1, shape


def test_a_small_rerun_still_holds():
    """A loop over steps against ours, where they are a hundred times apart."""
    row = measure(
        Case("gae", (8, 512), lambda: kernel_cases_gae.competitors((8, 512))), rounds=3
    )
    assert row["over_ours"]["plain torch loop"] > 20
    assert row["over_ours"]["ours, engine torch"] > 1


def test_without_a_gpu_the_device_benchmark_says_so_and_ends_well(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.main([]) == 0
    assert "no CUDA device" in capsys.readouterr().out


@pytest.mark.parametrize("name", CHECKS)
def test_the_device_checks_pass_where_tests_run(name):
    assert largest_difference(CHECKS[name], CPU, "torch") < 2e-6


def test_a_device_check_sees_a_wrong_result(monkeypatch, capsys):
    check = {"broken": lambda given, engine: (given.rewards + (engine == "torch"),)}
    monkeypatch.setattr(device, "CHECKS", check)
    assert device.main(["--cpu"]) == 1
    assert "Wrong: broken, engine torch" in capsys.readouterr().out


def test_the_device_times_run_small_and_without_a_device(monkeypatch):
    monkeypatch.setattr("benchmarks.device_times.ROUNDS", 1)
    (row,) = time_gae(CPU, ((2, 8),), lambda function: function)
    assert row["microseconds"].keys() == {
        "ours, engine numba", "ours, engine torch", "copy of as many bytes",
        "plain loop", "plain loop, compiled",
    }  # fmt: skip
    (row,) = time_cartpole(CPU, ((8, 4),))
    assert row["steps_per_second"] > 0 and math.isfinite(row["steps_per_second"])


def test_the_plain_loop_and_the_rollout_are_what_they_say():
    given = kernel_cases_gae.make_rollout((3, 20))
    steps = (given.rewards, given.values, given.next_values)
    expected = gae(
        *steps, terminated=given.terminated, gamma=kernel_cases_gae.GAMMA,
        lam=kernel_cases_gae.LAM,
    )  # fmt: skip
    for one, other in zip(plain_loop(*steps, given.terminated), expected, strict=True):
        torch.testing.assert_close(one, other)
    rollout = cartpole_rollout(16, 30, CPU)
    for advantages, returns in (rollout(), rollout()):
        assert advantages.shape == returns.shape == (16, 30)
        assert returns.isfinite().all() and advantages.std() > 0
