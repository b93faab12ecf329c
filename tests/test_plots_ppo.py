"""Pictures of chapter 08: what they draw is what the kernel and the files say."""

import math
import statistics

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from course_lib import data
from course_lib.notebook import plots
from course_lib.notebook.picture import picture
from course_lib.notebook.plots import clip, diagnostics, runs
from course_lib.notebook.plots.style import current

CASES = [
    (ratio, advantage, eps)
    for ratio in (0.4, 0.8, 1.0, 1.3, 2.0)
    for advantage in (-2.0, -0.5, 0.0, 1.0, 2.0)
    for eps in (0.0, 0.2, 0.5)
]


def by_hand(ratio, advantage, eps):
    return min(ratio * advantage, min(max(ratio, 1 - eps), 1 + eps) * advantage)


def shown(draw, size=plots.PANELS, **values):
    figure = Figure(figsize=size)
    with current().applied():
        alt = draw(figure, **values)
    return figure, alt


@pytest.mark.parametrize(("ratio", "advantage", "eps"), CASES)
def test_the_height_of_the_surface_is_the_formulas(ratio, advantage, eps):
    expected = by_hand(ratio, advantage, eps)
    assert clip.objective(ratio, advantage, eps) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("advantage", [-1.5, 0.0, 1.0])
def test_the_gradient_is_the_slope_of_the_height(advantage):
    ratios = torch.tensor([0.45, 0.7, 1.0, 1.25, 1.9], dtype=torch.float64)
    h = 1e-6
    slopes = [
        (by_hand(r * math.exp(h), advantage, 0.2) - by_hand(r, advantage, 0.2)) / h
        for r in ratios.tolist()
    ]
    found = clip.gradients(ratios, advantage, 0.2)
    assert found.tolist() == pytest.approx(slopes, abs=1e-5)


@pytest.mark.parametrize("eps", [0.0, 0.2, 0.5])
def test_a_square_is_called_flat_where_its_height_does_not_change_with_rho(eps):
    corners, flat = clip.surface_squares(eps)
    assert 0 < flat.sum() < len(flat)
    for square, called_flat in zip(corners, flat, strict=True):
        heights = {}  # by advantage: L at both ratios
        for _, advantage, height in square:
            heights.setdefault(advantage, []).append(height)
        moved = [abs(a - b) for adv, (a, b) in heights.items() if adv != 0]
        assert (max(moved) < 1e-9) == called_flat
        if called_flat:
            continue
        # Where it slopes it is the plain surrogate at every corner.
        for ratio, advantage, height in square:
            assert height == pytest.approx(ratio * advantage, abs=1e-9)


def test_the_journey_of_a_sample_is_a_loop_of_adam_by_hand():
    rate, eps, steps = 0.01, 0.2, clip.STEPS
    logits, first, second = np.zeros(4), np.zeros(4), np.zeros(4)
    moved, ends = 0, []
    for _ in range(clip.UPDATES):
        old = np.exp(logits[0]) / np.exp(logits).sum()
        for _ in range(steps):
            p = np.exp(logits) / np.exp(logits).sum()
            ratio = p[0] / old
            slope = ratio * (np.eye(4)[0] - p) if ratio <= 1 + eps else np.zeros(4)
            moved += 1
            first = 0.9 * first - 0.1 * slope
            second = 0.999 * second + 0.001 * slope**2
            size = np.sqrt(second / (1 - 0.999**moved)) + 1e-8
            logits = logits - rate * first / (1 - 0.9**moved) / size
        ends.append(np.exp(logits[0]) / np.exp(logits).sum() / old)
    alt = picture(plots.ratio_journey, eps=eps, learning_rate=rate).alt
    assert "ends them at " + ", ".join(f"{end:.2f}" for end in ends) in alt
    ratios, probabilities, dead = clip._journey(eps, rate)
    assert 0 < dead.sum() < dead.numel()
    assert torch.equal(dead, ratios > 1 + eps)  # a good action: silent above
    assert ratios[:, -1].tolist() == pytest.approx(ends, rel=1e-6)
    final = np.exp(logits[0]) / np.exp(logits).sum()
    assert float(probabilities[-1, -1]) == pytest.approx(final, rel=1e-6)


def test_a_tiny_step_never_leaves_the_band_and_the_words_say_so():
    alt = picture(plots.ratio_journey, eps=0.2, learning_rate=3e-4).alt
    assert "never leaves the band" in alt


def test_a_band_is_the_mean_over_the_seeds_with_students_interval():
    run = data.load("ppo")
    place = 10
    column = [row[place] for row in run["returns"]]
    figure, alt = shown(plots.learning_bands, names=["ppo"])
    line = figure.axes[0].lines[0]
    at = line.get_xdata().tolist().index(run["env_steps"][place])
    assert line.get_ydata()[at] == pytest.approx(statistics.mean(column))
    half = 2.262 * statistics.stdev(column) / 10**0.5
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    here = band[band[:, 0] == run["env_steps"][place], 1]
    assert max(here) - min(here) == pytest.approx(2 * half)
    assert "PPO ends at" in alt


def test_a_band_ends_where_the_first_seed_does():
    run = data.load("reinforce-baseline")
    whole = [all(row[i] is not None for row in run["returns"]) for i in range(195)]
    last = max(s for s, there in zip(run["env_steps"], whole, strict=True) if there)
    figure, _ = shown(
        plots.learning_bands, names=["reinforce-baseline"], most_steps=500_000
    )
    assert max(figure.axes[0].lines[0].get_xdata()) == last


def test_the_second_panel_is_the_first_one_by_the_clock():
    figure, _ = shown(plots.learning_bands, names=["ppo"], most_seconds=1000)
    by_steps, by_clock = (axes.lines[0].get_xdata() for axes in figure.axes)
    run = data.load("ppo")
    assert by_clock[-1] == pytest.approx(run["cpu_seconds_of_one_seed_alone"])
    assert by_clock == pytest.approx(by_steps * plots.seconds_a_step("ppo"))


def test_a_readers_own_run_lies_over_the_bands():
    own = ([1000, 2000, 3000], [20.0, 30.0, 40.0])
    figure, _ = shown(plots.learning_bands, names=["ppo"], own=own)
    assert any(
        line.get_ydata() is not None and list(line.get_ydata()) == own[1]
        for line in figure.axes[0].lines
    )
    assert "your run" in [t.get_text() for t in figure.legends[0].get_texts()]


def test_a_difference_is_taken_seed_by_seed():
    means = [
        [statistics.mean(v for v in row if v is not None) for row in run["returns"]]
        for run in (data.load("trpo"), data.load("ppo"))
    ]
    apart = [one - other for one, other in zip(*means, strict=True)]
    mean, half = plots.difference("trpo")
    assert mean == pytest.approx(statistics.mean(apart))
    assert half == pytest.approx(2.262 * statistics.stdev(apart) / 10**0.5)
    assert plots.difference("ppo") == (0.0, 0.0)


def test_who_did_not_reach_475_is_counted_beyond_the_end():
    solved = data.load("actor-critic")["solved_at"]
    missing = sum(step is None for step in solved)
    figure, alt = shown(plots.detail_effects, names=["actor-critic"])
    assert f"{missing} not" in [text.get_text() for text in figure.axes[1].texts]
    assert f"{10 - missing} of 10 reached 475" in alt


def test_the_diagnostics_tell_the_numbers_of_their_update():
    records = data.load("fault-step-too-large")["records"]
    figure, alt = shown(plots.run_diagnostics, run="fault-step-too-large", update=7)
    assert f"After {records['env_steps'][7]:,.0f} steps" in alt
    assert f"entropy {runs_number(records['entropy'][7])}" in alt
    dots = [axes.lines[-1].get_ydata()[0] for axes in figure.axes]
    assert dots[0] == records["episode_return"][7]
    assert dots[1] == records["approx_kl"][7]


def runs_number(value):
    return f"{value:.3g}".replace("-", "−")


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_every_line_of_the_diagnostics_is_explained_in_one_legend():
    figure, _ = shown(plots.run_diagnostics, run="fault-step-too-large", update=7)
    assert len(legend(figure)) == len(set(legend(figure))) == 4
    labels = {
        line.get_label()
        for axes in figure.axes
        for line in axes.lines
        if not line.get_label().startswith("_")
    }
    assert labels == set(legend(figure))


@pytest.mark.parametrize("run", [n for n in data.names() if n.startswith("fault-")])
def test_no_curve_or_dot_of_the_diagnostics_leaves_its_panel(run):
    for update in (0, 3, 47):
        figure, _ = shown(plots.run_diagnostics, run=run, update=update)
        for axes in figure.axes:
            low, high = axes.get_ylim()
            for line in axes.lines:
                seen = np.array(line.get_ydata(), dtype=float)
                seen = seen[np.isfinite(seen)]
                assert ((seen >= low) & (seen <= high)).all()


def test_the_largest_kl_of_a_stored_fault_is_drawn_where_it_is():
    """3.94 lay on the panel's title once."""
    figure, _ = shown(plots.run_diagnostics, run="fault-step-too-large", update=3)
    records = data.load("fault-step-too-large")["records"]
    assert figure.axes[1].lines[-1].get_ydata()[0] == records["approx_kl"][3] > 3
    assert max(records["approx_kl"]) < figure.axes[1].get_ylim()[1]


def test_a_loss_of_zero_is_said_where_a_logarithm_cannot_draw_it():
    figure, alt = shown(plots.run_diagnostics, run="fault-stale-value-target", update=9)
    assert [text.get_text() for text in figure.axes[5].texts] == ["the run: 0"]
    assert "value loss 0." in alt
    assert not any(axes.texts for axes in figure.axes[:5])


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (2.77e-5, "0.00003"),
        (9.6e-4, "0.001"),
        (-4.2e-7, "−0.0000004"),
        (0.0123456, "0.0123"),
        (-31.01, "−31"),
        (1234.5, "1230"),
        (0.0, "0"),
        (math.nan, "no value yet"),
    ],
)
def test_a_number_is_told_without_an_exponent(value, told):
    assert diagnostics.plain_number(value) == told


def test_both_pictures_of_records_tell_a_number_in_one_form():
    kl = data.load("ppo")["records"]["approx_kl"][47]
    assert kl < 1e-4
    _, watched = shown(plots.run_diagnostics, run="ppo", update=47)
    _, judged = shown(plots.sick_run, case="A")
    told = f"{kl:.5f}"
    assert f"approximate KL {told}," in watched
    assert f"{told}. clipped share" in judged


def test_a_sick_run_shows_the_largest_ratio_and_explains_all_it_draws():
    figure, alt = shown(plots.sick_run, case="C")
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert len(titles) == 7 and "largest ratio" in titles
    drawn = figure.axes[titles.index("largest ratio")].lines[-1].get_ydata()
    stored = data.load("fault-maximum-for-minimum")["records"]["ratio_max"]
    assert drawn.tolist() == stored
    assert len(legend(figure)) == 3
    assert "Seven panels" in alt


def test_a_curve_that_does_not_exist_is_explained_off_the_healthy_one():
    figure, alt = shown(plots.sick_run, case="D")
    axes = next(one for one in figure.axes if one.texts)
    figure.draw_without_rendering()
    box = axes.texts[0].get_window_extent()
    curve = axes.transData.transform(axes.lines[0].get_xydata())
    assert not any(box.contains(x, y) for x, y in curve)
    assert "explained variance: not defined; healthy" in alt


def test_the_rows_of_the_details_are_sorted_by_their_difference():
    names = ["ppo-lambda-1", "ppo-rate-times-ten", "ppo-no-entropy", "ppo-one-epoch"]
    figure, alt = shown(plots.detail_effects, names=names)
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows == [runs.run_name(name) for name in sorted(names, key=plots.difference)]
    assert [alt.index(row) for row in rows] == sorted(alt.index(row) for row in rows)
    assert "−0 ±" not in alt


def test_without_a_readers_run_nothing_is_said_of_one():
    figure, alt = shown(plots.learning_bands, names=["ppo"])
    assert "your run" not in legend(figure) and "your run" not in alt
    own = ([1000, 2000], [20.0, 30.0])
    _, alt = shown(plots.learning_bands, names=["ppo"], own=own)
    assert "your run, a black line, ends at 30 after 2,000 steps" in alt


def test_the_words_of_the_surface_call_it_flat_along_the_ratio_only():
    _, alt = shown(plots.clip_surface, eps=0.2, advantage=1.0, turn=-45)
    assert "Along the ratio it is flat" in alt and "tilted along the advantage" in alt


def test_a_value_that_was_not_logged_is_said_to_be_none():
    _, alt = shown(plots.run_diagnostics, run="fault-rewards-for-returns", update=20)
    assert "explained variance no value yet" in alt


def test_every_stored_run_of_a_detail_has_a_name():
    for name in data.names():
        if not name.startswith(("fault-", "rlhf-", "stages-")):
            assert runs.run_name(name)
