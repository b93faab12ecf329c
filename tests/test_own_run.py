"""A reader's run over the stored band, and the runs of "Find the bug"."""

import inspect
import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from course_lib import data
from course_lib.algorithms import History, PPOConfig, ppo
from course_lib.algorithms.faults import FAULTS
from course_lib.algorithms.history import Episode
from course_lib.envs import CartPole
from course_lib.notebook import mended, picture, plots
from course_lib.notebook.bank import read_bank

PPO = data.load("ppo")
STEPS = PPO["env_steps"]


def run_along(curve):
    """A history whose mean return of ten episodes follows a curve at STEPS."""
    history = History((0,))
    for step, mean in zip(STEPS, curve, strict=False):
        for _ in range(10):
            history.episodes.append(Episode(0, step, mean, int(mean)))
    history.env_steps = [STEPS[len(curve) - 1]]
    return history


def test_a_stored_seed_lies_within_the_band_that_it_is_part_of():
    for row, solved in zip(PPO["returns"], PPO["solved_at"], strict=True):
        verdict = plots.band_verdict(run_along(row))
        assert (verdict.inside, verdict.points) == (48, 48)
        assert verdict.within and verdict.reached
        # The episodes of the test end at the points of the grid.
        there = [at for at, mean in zip(STEPS, row, strict=True) if mean >= 475]
        assert verdict.solved_at == there[0] >= solved


def test_how_often_a_right_run_leaves_the_band_is_told_by_the_stored_seeds():
    rows = np.array(PPO["returns"])
    counts = []
    for one in range(10):
        others = [row for other, row in enumerate(rows) if other != one]
        counts.append(
            sum(
                min(row[t] for row in others)
                <= rows[one][t]
                <= max(row[t] for row in others)
                for t in range(48)
            )
        )
    verdict = plots.band_verdict(run_along(PPO["returns"][0]))
    assert (verdict.fewest, verdict.most) == (min(counts), max(counts))
    assert 0.6 * 48 < min(counts) < max(counts) <= 48


def test_a_run_that_learns_late_is_said_to_lie_below():
    late = [21.0] * 20 + PPO["returns"][0][:28]
    verdict = plots.band_verdict(run_along(late))
    assert verdict.reached and not verdict.within
    assert verdict.below == verdict.points - verdict.inside >= 20
    assert "Reached 475: yes, after" in verdict.text
    assert "Within the band: no." in verdict.text


def with_points_outside(count):
    """The middle of the ten, which is inside everywhere, moved down at some points."""
    curve = np.median(np.array(PPO["returns"]), 0)
    curve[10 : 10 + count] = 15.0
    return plots.band_verdict(run_along(curve.tolist()))


def test_chance_is_named_only_for_a_run_that_is_nearly_as_often_inside_as_the_worst():
    fewest = with_points_outside(0).fewest
    just = with_points_outside(48 - fewest + 6)
    assert just.inside == just.fewest - 6
    assert just.plausible and not just.within
    assert "One right run in eleven" in just.text
    assert "Chance does not do that" not in just.text
    further = with_points_outside(48 - fewest + 7)
    assert not further.plausible
    assert "One right run in eleven" not in further.text
    assert "Chance does not do that" in further.text
    assert "shapes in the critic's loss first" in further.text


def test_a_run_within_the_band_is_plausible_and_no_cause_is_looked_for():
    verdict = with_points_outside(0)
    assert verdict.within and verdict.plausible
    assert "chance" not in verdict.text.lower()


def test_a_run_above_all_ten_is_not_sent_to_the_critics_shapes():
    verdict = plots.band_verdict(run_along([500.0] * 12))
    assert not verdict.plausible and verdict.above >= 10
    assert "better than all ten" in verdict.text
    assert "critic" not in verdict.text


def test_the_quiz_before_the_run_gives_bounds_that_hold_for_the_stored_seeds():
    question = read_bank()["predict-own-ppo"]
    assert "48 points" in " ".join(question.prompt.split())
    assert len(STEPS) == 48
    assert "20,000 and 35,000 steps" in question.explain
    assert all(20_000 < at < 35_000 for at in PPO["solved_at"])
    assert np.array(PPO["returns"])[:, -1].tolist() == [500.0] * 10


def test_a_run_that_never_gets_there_is_told_so():
    verdict = plots.band_verdict(run_along([22.0] * 48))
    assert not verdict.reached and not verdict.within
    assert "Reached 475: no." in verdict.text


def test_the_beginning_of_a_run_is_compared_with_the_beginning_of_the_band():
    verdict = plots.band_verdict(run_along(PPO["returns"][3][:20]))
    assert verdict.points == 20 and verdict.within


def test_a_run_without_ten_episodes_has_no_point_and_is_not_within():
    history = History((0,))
    verdict = plots.band_verdict(history)
    assert verdict.points == 0 and not verdict.within and not verdict.plausible
    assert "Within the band: not known." in verdict.text
    shown = picture(plots.run_over_band, history=history)
    assert "did not reach 475" in shown.alt


def test_recent_returns_are_those_of_the_last_ten_episodes_of_one_agent():
    history = History((0, 1))
    for number in range(12):
        history.episodes.append(Episode(0, 100 * (number + 1), float(number), 1))
        history.episodes.append(Episode(1, 100 * (number + 1), 99.0, 1))
    means = history.recent_returns([900, 1000, 1150, 5000])
    assert math.isnan(means[0])
    assert means[1:] == [4.5, 5.5, 6.5]
    assert history.recent_returns([5000], window=2, seed=1) == [99.0]


def test_the_picture_says_what_the_verdict_says():
    history = run_along(PPO["returns"][4])
    shown = picture(plots.run_over_band, history=history)
    assert "It reached 475 after" in shown.alt
    assert "At 48 of 48 points it lies inside the band" in shown.alt
    assert len(shown.png) < 60_000


# Find the bug.

by_case = pytest.mark.parametrize("case", plots.CASES)


@by_case
def test_a_case_shows_a_fault_of_the_registry_without_its_name(case):
    name = plots.CASES[case]
    assert name in FAULTS
    alt = picture(plots.sick_run, size=plots.PANELS, case=case).alt
    assert name not in alt and name.replace("-", " ") not in alt
    assert "nan" not in alt


def test_a_letter_that_is_none_is_told_which_there_are():
    with pytest.raises(ValueError, match=r"case: 'H'; expected one of A, B, C"):
        picture(plots.sick_run, case="H")


def record(case, metric, healthy=False):
    name = "ppo" if healthy else f"fault-{plots.CASES[case]}"
    values = data.load(name)["records"][metric]
    return np.array([math.nan if v is None else v for v in values])


def healthy(metric):
    return record("", metric, healthy=True)


def test_each_case_has_the_signs_by_which_it_is_told():
    """What the explanations read from the curves, in numbers."""
    # A: nothing moves but the critic.
    assert record("A", "episode_return").max() < 25
    assert record("A", "approx_kl").max() < 0.001
    assert record("A", "entropy").min() > 0.67
    assert record("A", "explained_variance")[5:].min() > 0.4
    # B: the critic is a constant.
    assert np.abs(record("B", "explained_variance")[3:]).max() < 0.05
    assert record("B", "value_loss").min() > 20
    # C: the first update already goes a hundred times as far.
    assert record("C", "approx_kl")[0] > 50 * healthy("approx_kl")[0]
    assert record("C", "clip_frac")[0] > 0.6
    # D: nothing to explain, and learned at once.
    assert np.isnan(record("D", "explained_variance")).all()
    assert record("D", "value_loss")[1] < 0.001
    # E: certain, of what is worst.
    assert record("E", "episode_return")[-1] < 10
    assert record("E", "entropy")[-1] < 0.05
    assert record("E", "explained_variance")[-1] > 0.95
    assert record("E", "approx_kl").max() < 0.02
    # F: the scale is off from the first update on, and the return does not tell.
    assert healthy("value_loss")[0] > 40 * record("F", "value_loss")[0]
    assert (
        0.35 < record("F", "value_loss").min() < record("F", "value_loss").max() < 0.6
    )
    assert record("F", "episode_return")[-12:].min() > 450
    # G: sure of itself on paper, and paid like one that is not.
    assert record("G", "entropy")[-1] < 0.15
    assert record("G", "episode_return").max() < 200
    assert record("G", "clip_frac")[20:40].min() > 0.06


def test_pictures_of_all_cases_have_the_same_axes():
    """Else a scale would tell what a curve is to tell."""
    seen = set()
    for case in plots.CASES:
        figure = Figure(figsize=plots.PANELS)
        plots.sick_run(figure, case)
        seen.add(str([(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes]))
    assert len(seen) == 1


def test_mended_runs_the_algorithm_as_it_is_and_says_how_it_went():
    run = mended("A", seed=3, total_steps=4096)
    own = ppo(CartPole(8, seeds=3), PPOConfig(seeds=(3,), total_steps=4096))
    assert run.history.returns() == own.returns()
    assert repr(run).startswith("Not at 475 after 4,096 steps. With the bug, 0 of 10")
    with pytest.raises(ValueError, match="case: 'Z'"):
        mended("Z")


def test_mended_tells_nothing_of_the_name():
    assert not any(name in inspect.getsource(mended) for name in FAULTS)


def test_the_stored_runs_are_loaded_by_name_and_a_wrong_name_is_told_near_ones():
    assert {"ppo", "fault-advantage-sign"} <= set(data.names())
    with pytest.raises(ValueError, match="no stored run 'pppo'; near: ppo"):
        data.load("pppo")
