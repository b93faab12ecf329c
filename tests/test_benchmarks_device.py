"""What runs on a GPU runs here too, on a CPU and small."""

import functools
import inspect
import json
import math
import time

import pytest
import torch

from benchmarks import (
    device,
    device_checks,
    device_checks_losses,
    device_times,
    report,
)
from benchmarks import kernels as kernels_bench
from benchmarks.device_checks import CHECKS, largest_difference
from benchmarks.device_inputs import Inputs
from benchmarks.device_times import (
    cartpole_rollout,
    time_cartpole,
    time_gae,
    time_log_probs,
    time_rlhf,
)
from course_lib import kernels

CPU = torch.device("cpu")


def test_without_a_gpu_the_device_benchmark_says_so_and_ends_well(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device.main([]) == 0
    assert "no CUDA device" in capsys.readouterr().out


@pytest.mark.parametrize("name", CHECKS)
def test_the_device_checks_pass_where_tests_run(name):
    assert largest_difference(CHECKS[name], CPU, "torch") < 2e-6


def test_a_device_check_sees_a_wrong_result(monkeypatch, capsys):
    check = {"broken": lambda given: (given.rewards + (given.engine == "torch"),)}
    monkeypatch.setattr(device, "CHECKS", check)
    assert device.main(["--cpu"]) == 1
    assert "Wrong: broken" in capsys.readouterr().out


def test_a_short_form_runs_on_a_cpu(capsys):
    assert device.main(["--cpu"]) == 0
    told = capsys.readouterr().out
    assert "All kernels agree." in told
    assert '"gae, engine torch"' in told and '"whiten"' in told
    assert '"name": "RLHF on the toy", "shape": [16, 8]' in told


def test_a_nan_is_wrong_even_where_float64_has_it_too():
    def reads_what_is_masked(given):
        return (given.hidden(given.rewards).sum(),)

    assert largest_difference(reads_what_is_masked, CPU, "torch") == math.inf


def test_every_kernel_has_its_line_in_the_checks():
    """Each of them is called at least once with float32 on the device."""
    called = set()

    def watch(name):
        kernel = getattr(kernels, name)

        def called_by_its_name(*arguments, **options):
            called.add(name)
            return kernel(*arguments, **options)

        return called_by_its_name

    names = {n for n in kernels.__all__ if inspect.isfunction(getattr(kernels, n))}
    names -= {"scan_engine"}  # it says which engine would run, and computes nothing
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            for module in (device_checks, device_checks_losses):
                if hasattr(module, name):
                    patch.setattr(module, name, watch(name))
        # What a table of functions within a check holds is looked up when it runs.
        for run in CHECKS.values():
            run(Inputs((3, 7), CPU, torch.float32))
    assert called == names


def test_the_device_times_run_small_and_without_a_device(monkeypatch):
    monkeypatch.setattr(device_times, "ROUNDS", 1)
    (row,) = time_gae(CPU, ((2, 8),), lambda function: function)
    copy, plain = "copy of as many bytes", "log_softmax and gather"
    assert row["microseconds"].keys() == {
        "ours, engine numba", "ours, engine torch", copy, "plain loop",
        "plain loop, compiled",
    }  # fmt: skip
    (row,) = time_log_probs(CPU, ((2, 3, 20),), lambda function: function)
    names = ("ours", copy, plain, "the same, compiled")
    assert row["microseconds"].keys() == {
        name + way for name in names for way in ("", device_times.BACKWARD)
    }
    (row,) = time_cartpole(CPU, ((8, 4),))
    assert row["steps_per_second"] > 0 and math.isfinite(row["steps_per_second"])
    (row,) = time_rlhf(CPU, ((4, 3),), num_updates=1)
    assert row["shape"] == [4, 3] and row["microseconds"]["an update"] > 0


def test_where_nothing_can_be_compiled_the_times_do_without(monkeypatch, capsys):
    def refuse(function):
        raise RuntimeError("no compiler here\nand many lines more")

    monkeypatch.setattr(device_times, "ROUNDS", 1)
    (row,) = time_log_probs(CPU, ((2, 3, 20),), refuse)
    assert not any("compiled" in name for name in row["microseconds"])
    assert capsys.readouterr().out == "torch.compile left out: no compiler here\n"


def test_the_rollout_goes_on_where_it_stopped():
    rollout = cartpole_rollout(16, 30, CPU)
    (first, _), (second, _) = rollout(), rollout()
    for advantages in (first, second):
        assert advantages.shape == (16, 30)
        assert advantages.isfinite().all() and advantages.std() > 0
    assert not torch.equal(first, second)


def test_beyond_its_budget_it_begins_no_other_time(capsys):
    def three(_):
        yield from ({"row": number} for number in range(3))

    twice, long_ago = (three, three), time.monotonic() - device.BUDGET - 1
    assert len(device.measure(time.monotonic(), CPU, twice)) == 6
    assert device.measure(long_ago, CPU, twice) == [{"row": 0}]
    assert "nothing more was timed" in capsys.readouterr().out


def test_a_run_on_a_device_is_kept_and_becomes_a_part_of_the_page(
    monkeypatch, tmp_path
):
    """The whole program with a CPU in the device's place and short times."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a device")
    monkeypatch.setattr(device, "DEVICE", CPU)
    monkeypatch.setattr(device, "RESULTS", tmp_path / "device.json")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "PAGE", tmp_path / "BENCHMARKS.md")
    (tmp_path / "kernels.json").write_bytes(kernels_bench.RESULTS.read_bytes())
    monkeypatch.setattr(device_times, "ROUNDS", 1)
    short = functools.partial(
        time_log_probs, shapes=((2, 3, 20),), compiler=lambda f: f
    )
    monkeypatch.setattr(device, "TIMINGS", (short,))
    assert device.main([]) == 0
    kept = json.loads(device.RESULTS.read_text(encoding="utf-8"))
    assert kept["command"] == device.COMMAND and kept["seconds"] < 240
    page = report.PAGE.read_text(encoding="utf-8")
    assert "## On a GPU" in page and "token_log_probs" in page and "a device" in page
