"""The RLHF runs that chapters show: what is kept holds, and a rerun begins alike."""

import math
import statistics
from collections import defaultdict

import pytest
import torch

from benchmarks import rlhf_runs
from benchmarks.kept_runs import FOLDER
from course_lib.algorithms import METHODS, rlhf_ppo
from course_lib.data import load
from course_lib.envs import TokenCount
from course_lib.exact import (
    TokenTree,
    preference_ceiling,
    uniform_optimum,
    uniform_table,
)
from course_lib.models import GRULanguageModel

BEST = uniform_optimum(8, 8, 0.1)


def grouped(name, *keys):
    groups = defaultdict(list)
    for row in load(name)["runs"]:
        found = tuple(row[key] for key in keys)
        groups[found if len(keys) > 1 else found[0]].append(row)
    return groups


def mean(rows, name):
    return statistics.mean(row[name] for row in rows)


@pytest.mark.parametrize("name", rlhf_runs.FAMILIES)
def test_a_file_says_how_it_was_made(name):
    record = load(name)
    assert record["command"] == f"{rlhf_runs.COMMAND} {name}"
    assert record["seeds"] == [0, 1, 2, 3, 4] and record["num_updates"] == 150
    assert {"python", "torch"} <= record["versions"].keys()
    assert record["date"].startswith("20") and record["machine"]["threads"] == 1
    assert record["configs"].keys() == rlhf_runs.FAMILIES[name].configs.keys()
    assert (FOLDER / f"{name}.json").stat().st_size < 60_000


def test_each_file_of_rlhf_has_its_family_and_each_family_its_file():
    assert {path.stem for path in FOLDER.glob("rlhf-*.json")} == {*rlhf_runs.FAMILIES}


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("rlhf-beta", ["beta"]),
        ("rlhf-random-reference", ["beta"]),
        ("rlhf-learned-reward", ["beta"]),
        ("rlhf-methods", ["method"]),
        ("rlhf-staleness", ["method", "staleness"]),
    ],
)
def test_everything_was_run_with_five_seeds(name, keys):
    for rows in grouped(name, *keys).values():
        assert [row["seed"] for row in rows] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["rlhf-beta", "rlhf-random-reference"])
def test_every_run_is_within_004_of_the_best_there_is(name):
    """CLAIMS rows 21 and 21c."""
    groups = grouped(name, "beta")
    assert groups.keys() == {0.0, 0.05, 0.1, 0.2}
    for beta in (0.05, 0.1, 0.2):
        for row in groups[beta]:
            assert -1e-6 <= row["gap"] < 0.004


@pytest.mark.parametrize("name", ["rlhf-beta", "rlhf-random-reference"])
def test_without_a_price_the_score_is_all_and_kl_that_of_the_best_response(name):
    """CLAIMS row 19."""
    for row in grouped(name, "beta")[0.0]:
        assert row["score"] >= 0.99
        limit = row.get("kl_of_the_best_response", 8 * math.log(8))
        assert row["kl"] == pytest.approx(limit, abs=0.05)


def test_from_the_uniform_reference_score_and_kl_are_those_of_the_closed_form():
    groups = grouped("rlhf-beta", "beta")
    for beta in (0.05, 0.1, 0.2):
        best = uniform_optimum(8, 8, beta)
        for row in groups[beta]:
            assert row["best_score"] == pytest.approx(best.score, abs=2e-5)
            assert row["best_kl"] == pytest.approx(best.kl, abs=2e-5)
    for row in groups[0.1]:
        assert row["score"] == pytest.approx(0.333, abs=0.03)
        assert row["kl"] == pytest.approx(1.16, abs=0.15)


def test_the_reward_model_judges_new_pairs_nearly_as_well_as_anyone_could():
    """CLAIMS row 25: within .03 of the Bayes ceiling, under the score that turns."""
    count = torch.arange(9.0)
    chance = torch.tensor([math.comb(8, n) * 7 ** (8 - n) / 8**8 for n in range(9)])
    score = torch.where(count <= 4, count, 8 - count) / 8
    ceiling = preference_ceiling(score, chance, rlhf_runs.SCALE)
    assert ceiling == pytest.approx(0.7283, abs=5e-4)  # hardly anyone sees the turn
    for row in load("rlhf-learned-reward")["runs"]:
        assert row["held_out_accuracy"] == pytest.approx(0.7283, abs=0.03)


def test_against_a_learned_reward_the_true_score_turns():
    groups = grouped("rlhf-learned-reward", "beta")
    betas = sorted(groups, reverse=True)
    assert betas == [0.1, 0.05, 0.02, 0.01, 0.005, 0.0]
    learned = [mean(groups[beta], "score") for beta in betas]
    true = [mean(groups[beta], "true_score") for beta in betas]
    assert learned == sorted(learned)  # the cheaper KL, the more of it
    assert true.index(max(true)) == betas.index(0.02)
    assert max(true) > 0.38 and true[-1] < 0.01
    for beta in betas[:-1]:  # no fault of PPO's: the best policy there is turns as well
        for row in groups[beta]:
            assert -1e-6 <= row["gap"] < 0.004
            assert row["true_score"] == pytest.approx(row["best_true_score"], abs=0.02)


def test_at_equal_samples_what_is_unbiased_comes_close_and_what_is_not_does_not():
    groups = grouped("rlhf-methods", "method")
    assert groups.keys() == {"ppo", "dpo", *METHODS}
    worst = {name: max(row["gap"] for row in rows) for name, rows in groups.items()}
    for name in ("ppo", "rloo", "clip-rloo", "sequence-ratio", "gspo", "reinforce"):
        assert worst[name] < 0.004
    assert worst["dr-grpo"] < 0.01 and worst["dpo"] < 0.01
    # Advantages of size 1 make KL too cheap.
    assert min(row["gap"] for row in groups["grpo"]) > 0.1
    assert min(row["kl"] for row in groups["grpo"]) > 5 * BEST.kl
    assert all(row["gap"] >= -1e-6 for rows in groups.values() for row in rows)


def test_stale_samples_are_worth_fewer():
    groups = grouped("rlhf-staleness", "method", "staleness")
    sizes = [
        min(min(row["ess"]) for row in groups["uncorrected", staleness])
        for staleness in rlhf_runs.STALENESS
    ]
    assert sizes[0] == pytest.approx(1.0, abs=1e-3)
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < 0.5


def test_stale_samples_cost_the_objective_and_a_correction_wins_some_of_it_back():
    groups = grouped("rlhf-staleness", "method", "staleness")
    for name in rlhf_runs.STALE:
        gaps = [mean(groups[name, k], "gap") for k in rlhf_runs.STALENESS]
        assert gaps == sorted(gaps) and gaps[0] < 2e-4
    worst = {
        name: max(row["gap"] for row in groups[name, 8]) for name in rlhf_runs.STALE
    }
    best = {
        name: min(row["gap"] for row in groups[name, 8]) for name in rlhf_runs.STALE
    }
    assert worst["clip"] < 0.004 < best["truncated-weights"]
    assert worst["truncated-weights"] < best["uncorrected"]


def test_a_rerun_begins_as_the_kept_run_did():
    """Later updates differ between processors, the first ones by rounding only."""
    (row,) = (row for row in grouped("rlhf-beta", "beta")[0.0] if row["seed"] == 0)
    config = rlhf_runs.ppo_config(0.0, 0, 11)  # its step size does not fall
    history = rlhf_ppo(GRULanguageModel(), rlhf_runs.TASK.score, config)
    found = rlhf_runs.curves(history)
    assert found["scores"] == pytest.approx(row["scores"][:3], abs=0.01)
    assert found["kls"] == pytest.approx(row["kls"][:3], abs=0.02)


@pytest.mark.parametrize("name", rlhf_runs.FAMILIES)
def test_a_family_can_be_made_anew_in_small(name, monkeypatch):
    """All that is kept is made, here after one update and judged on two tokens."""
    tree = TokenTree(8, 2)
    monkeypatch.setattr(rlhf_runs, "TREE", tree)
    monkeypatch.setattr(rlhf_runs, "UNIFORM", uniform_table(tree))
    monkeypatch.setattr(rlhf_runs, "TASK", TokenCount(length=2))
    monkeypatch.setattr(rlhf_runs, "TURNING", TokenCount(length=2, peak=1))
    made, record = rlhf_runs.make(name, (3,), 1), load(name)
    assert made.keys() == record.keys() and made["seeds"] == [3]
    for method, config in record["configs"].items():
        assert config.items() <= made["configs"][method].items()
    same_seed = [row for row in record["runs"] if row["seed"] == 0]
    assert [row.keys() for row in made["runs"]] == [row.keys() for row in same_seed]
