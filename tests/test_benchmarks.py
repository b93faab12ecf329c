"""The benchmarks run, their page is made from results, and these keep the promises."""

import json
import time

import pytest
import torch

from benchmarks import kernel_cases_gae, kernels, report
from benchmarks import kernel_cases_log_probs as log_probs
from benchmarks import kernel_cases_losses as losses
from benchmarks.timing import OURS, Case, circumstances, measure

LARGE = [shape for shape in log_probs.SHAPES if shape[-1] > 1000]
(SMALL,) = set(log_probs.SHAPES) - set(LARGE)


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
    assert "extra_memory" not in row


def test_extra_memory_is_told_in_the_unit_of_the_case():
    def hold(megabytes):
        return lambda: torch.zeros(megabytes * 2**20, dtype=torch.uint8)

    runs = {OURS: hold(1), "x": lambda: (hold(2)(), hold(1)())}
    row = measure(Case("hold", (1,), lambda: runs, memory_unit=2**21), rounds=1)
    assert row["extra_memory"] == {OURS: 0.5, "x": 1.5}


def test_what_was_kept_says_how_it_was_made():
    told = circumstances("a command", ("torch", "no-such-package"))
    assert told["command"] == "a command" and told["versions"]["torch"]
    assert "no-such-package" not in told["versions"]
    kept = json.loads(kernels.RESULTS.read_text(encoding="utf-8"))
    assert kept["command"] == kernels.COMMAND and kept["rounds"] >= 15
    assert kept["machine"]["threads"] == 1
    assert set(kernel_cases_gae.PACKAGES) <= kept["versions"].keys()
    assert kept["seconds"] <= 400
    cases = [(case.name, case.shape) for part in kernels.CASES for case in part.cases()]
    assert [(row["kernel"], tuple(row["shape"])) for row in kept["rows"]] == cases


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
    def kept(self):
        """What was kept, by kernel and shape."""
        kept = json.loads(kernels.RESULTS.read_text(encoding="utf-8"))
        return {(row["kernel"], tuple(row["shape"])): row for row in kept["rows"]}

    @pytest.fixture
    def rows(self, kept):
        return {shape: row for (name, shape), row in kept.items() if name == "gae"}

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

    @pytest.mark.parametrize("shape", LARGE)
    def test_log_probs_of_a_vocabulary_are_quick_and_small(self, kept, shape):
        forward, both = kept[log_probs.FORWARD, shape], kept[log_probs.BOTH, shape]
        assert forward["over_ours"][log_probs.GATHER] >= 1.5
        assert forward["extra_memory"][OURS] <= 0.02
        assert both["over_ours"][log_probs.GATHER] >= 1.3
        assert both["extra_memory"][OURS] <= 1.05

    def test_log_probs_of_a_few_actions_are_quick(self, kept):
        row = kept[log_probs.FORWARD, SMALL]
        assert row["over_ours"][log_probs.GATHER] >= 3

    def test_whitening_and_group_advantages_are_as_fast_as_promised(self, kept):
        row = kept[losses.WHITEN, (256, 1024)]
        assert row["over_ours"][losses.BOOLEAN] >= 2.2
        for name in (losses.RLOO, losses.GRPO):
            row = kept[name, losses.GROUPS]
            assert row["over_ours"][losses.LOOP] >= 20

    def test_losses_that_check_and_report_stay_near_the_plain_form(self, kept):
        """No promise of the course's; held so that a slip would be seen."""
        for name in (losses.POLICY, losses.VALUE):
            for shape in ((256,), (64, 512)):
                assert kept[name, shape]["over_ours"][losses.PLAIN] >= 1 / 2.5


def test_a_small_rerun_still_holds():
    """Loops over steps and groups against ours, a hundred times apart."""
    row = measure(
        Case("gae", (8, 512), lambda: kernel_cases_gae.competitors((8, 512))), rounds=3
    )
    assert row["over_ours"]["plain torch loop"] > 20
    assert row["over_ours"]["ours, engine torch"] > 1
    for case in losses.cases()[1:3]:
        assert measure(case, rounds=3)["over_ours"][losses.LOOP] > 10
