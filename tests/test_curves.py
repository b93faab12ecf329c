"""Training curves: what they say of a run, and how they follow one that goes on."""

import base64
import io
import math
from pathlib import Path

import pytest
from IPython.core.events import EventManager
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

from course_lib.notebook import picture, plots
from tools.execute import run

ROOT = Path(__file__).resolve().parents[1]


def alt_of(histories, *metrics, **options):
    shown = picture(
        plots.training_curves, histories=histories, metrics=metrics, **options
    )
    return shown.alt


def history(*values, name="reward"):
    return {"update": list(range(len(values))), name: list(values)}


# What a finished run's picture says.


def test_one_run_is_told_by_its_end_its_extremes_and_its_trend():
    alt = alt_of({"": history(1.0, 7.5, 3.0, -2.0, 5.25)}, "reward")
    assert alt == (
        "Training curves against update. reward: 5.25 at the end, lowest −2 at 3, "
        "highest 7.5 at 1, rising."
    )


@pytest.mark.parametrize(
    ("values", "trend"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8], "rising"),
        ([8, 7, 6, 5, 4, 3, 2, 1], "falling"),
        ([0, 9, 0, 9, 0, 9, 0, 9], "level"),
        ([5, 9, 1, 6, 2, 7, 9, 5], "level"),
        ([3, 3, 3, 3], "level"),
        ([3], "level"),
    ],
)
def test_a_trend_is_the_last_quarter_against_the_first(values, trend):
    assert alt_of({"": history(*values)}, "reward").endswith(f", {trend}.")


def test_two_runs_are_told_one_by_one_and_more_as_a_range():
    runs = {f"seed {seed}": history(0.0, 1.0, seed) for seed in (2, 3, 0)}
    two = {name: runs[name] for name in ("seed 2", "seed 3")}
    alt = alt_of(two, "reward")
    assert "seed 2: 2 at the end" in alt and "seed 3: 3 at the end" in alt
    assert alt_of(runs, "reward").endswith(
        "reward: 3 runs end between 0 (seed 0) and 3 (seed 3); 2 rising, 1 level."
    )


def test_values_that_are_not_finite_leave_gaps_and_are_counted():
    values = [math.nan, 1.0, math.inf, 3.0]
    alt = alt_of({"": history(*values)}, "reward")
    assert "3 at the end, lowest 1 at 1" in alt
    assert "no finite value at 2 of 4 points" in alt
    none = alt_of({"": history(math.nan, math.nan)}, "reward")
    assert none.endswith("reward: no value yet.")


def test_a_run_can_be_drawn_against_another_axis():
    data = {"env_steps": [2048, 4096], "reward": [1.0, 2.0]}
    alt = alt_of({"": data}, "reward", x="env_steps")
    assert alt.startswith("Training curves against environment steps.")
    assert "highest 2 at 4,096" in alt


@pytest.mark.parametrize(
    ("histories", "metrics", "words"),
    [
        ({"": history(1)}, [], "metrics: 0 of them; expected 1 to 6"),
        ({"": history(1)}, ["reward"] * 7, "metrics: 7 of them"),
        ({str(i): history(1) for i in range(7)}, ["reward"], "histories: 7 of them"),
        ({"a": history(1)}, ["loss"], r"histories\['a'\]: no 'loss'; it has reward"),
        (
            {"a": {"update": [0, 1], "reward": [1.0]}},
            ["reward"],
            r"histories\['a'\]: 1 values of 'reward' and 2 of 'update'",
        ),
        (
            {"a": {"update": [0, 2, 2], "reward": [1.0, 2.0, 3.0]}},
            ["reward"],
            r"histories\['a'\]: 'update' goes from 2 to 2; expected growing",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(histories, metrics, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        alt_of(histories, *metrics)


# A run that goes on.


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Notebook:
    """Stands in for the front end and IPython's shell: keeps what is shown."""

    def __init__(self, clock):
        self.clock, self.kernel, self.drawing_takes = clock, object(), 0.0
        self.events = EventManager(self, {"post_run_cell": lambda result: None})
        self.outputs = []  # each output's pictures, from the first to the last

    def display(self, shown, display_id):
        assert display_id
        self.outputs.append([])
        self.update(shown)
        return self

    def update(self, shown):
        self.clock.now += self.drawing_takes
        self.outputs[-1].append(shown)

    def end_cell(self):
        self.events.trigger("post_run_cell", None)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def notebook(monkeypatch, clock):
    shown = Notebook(clock)
    monkeypatch.setattr("IPython.get_ipython", lambda: shown)
    monkeypatch.setattr("IPython.display.display", shown.display)
    return shown


def train(callback, clock, updates=40, seconds=0.1):
    """A training loop that reports its metrics."""
    for update in range(updates):
        clock.now += seconds
        callback(update, {"reward": float(update), "loss": 1 / (update + 1)})


def test_the_picture_is_drawn_at_once_and_then_twice_a_second(notebook, clock):
    curves = plots.live_curves("reward", clock=clock)
    train(curves, clock, updates=41, seconds=0.125)
    (pictures,) = notebook.outputs
    assert len(pictures) == 11  # at once, and after every half of five seconds
    assert "0 at the end" in pictures[0].alt
    assert "40 at the end" in pictures[-1].alt


def test_a_slow_picture_is_drawn_less_often(notebook, clock):
    notebook.drawing_takes = 0.3
    train(plots.live_curves("reward", clock=clock), clock, updates=200)
    seconds = 200 * 0.1
    drawing = len(notebook.outputs[0]) * notebook.drawing_takes
    assert drawing <= 0.1 * (seconds + drawing) + notebook.drawing_takes


def test_the_end_of_the_cell_shows_everything(notebook, clock):
    train(plots.live_curves("reward", clock=clock), clock, updates=42, seconds=0.01)
    assert "41 at the end" not in notebook.outputs[0][-1].alt
    notebook.end_cell()
    assert "41 at the end" in notebook.outputs[0][-1].alt
    assert notebook.events.callbacks["post_run_cell"] == []  # nothing is left behind


def test_a_with_block_shows_everything_even_when_the_loop_fails(notebook, clock):
    with (
        pytest.raises(ZeroDivisionError),
        plots.live_curves("reward", clock=clock) as curves,
    ):
        train(curves, clock, updates=3, seconds=0.01)
        raise ZeroDivisionError
    assert "2 at the end" in notebook.outputs[0][-1].alt


def test_what_is_left_does_not_depend_on_the_speed_of_the_machine(notebook, clock):
    for seconds in (0.001, 0.7):
        curves = plots.live_curves("reward", "loss", clock=clock)
        train(curves, clock, seconds=seconds)
        notebook.end_cell()
    quick, slow = notebook.outputs
    assert len(quick) == 2 and len(slow) == 41
    assert quick[-1].png == slow[-1].png
    assert quick[-1].alt == slow[-1].alt
    data = {
        "update": list(range(40)),
        "reward": [float(i) for i in range(40)],
        "loss": [1 / (i + 1) for i in range(40)],
    }
    alone = picture(
        plots.training_curves, histories={"": data}, metrics=["reward", "loss"]
    )
    assert alone.png == quick[-1].png


def test_axes_do_not_move_while_the_numbers_grow(notebook, clock):
    curves = plots.live_curves("reward", clock=clock)
    boxes = set()
    for update, reward in enumerate([0.5, -0.00125, 1234.5, 98_000.0]):
        clock.now += 1
        curves(update, {"reward": reward})
        boxes.add(curves._canvas.figure.axes[0].get_position().bounds)
    assert len(boxes) == 1


def test_seeds_share_one_picture(notebook, clock):
    curves = plots.live_curves("reward", clock=clock)
    for seed in range(3):
        train(curves.series(f"seed {seed}"), clock, updates=5 + seed)
    notebook.end_cell()
    assert len(notebook.outputs) == 1
    assert "3 runs end between 4 (seed 0) and 6 (seed 2)" in notebook.outputs[0][-1].alt


def test_a_later_cell_gets_an_output_of_its_own(notebook, clock):
    curves = plots.live_curves("reward", clock=clock)
    train(curves.series("first"), clock)
    notebook.end_cell()
    train(curves.series("second"), clock)
    notebook.end_cell()
    first, second = notebook.outputs
    assert "first" in second[-1].alt and "second" not in first[-1].alt


def test_without_a_notebook_nothing_is_drawn_until_it_is_asked_for(monkeypatch, clock):
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    monkeypatch.setattr("IPython.display.display", None)
    curves = plots.live_curves("reward", clock=clock)
    with monkeypatch.context() as patch:
        patch.setattr(curves, "_draw", None)
        train(curves, clock)
        curves.close()
    assert "39 at the end" in curves.picture.alt
    assert Image.open(io.BytesIO(curves.picture.png)).format == "PNG"


def test_a_metric_that_the_loop_does_not_report_is_named(clock):
    curves = plots.live_curves("rewrad", clock=clock)
    words = "^metrics: no 'rewrad'; this loop reports update, reward"
    with pytest.raises(ValueError, match=words):
        curves(0, {"reward": 1.0})
    assert curves.histories == {}


def test_a_second_run_is_not_appended_to_the_first(clock):
    curves = plots.live_curves("reward", clock=clock)
    train(curves, clock, updates=3)
    with pytest.raises(ValueError, match=r"^update: 0 after 2.*curves\.series"):
        train(curves, clock, updates=3)
    assert curves.histories[""]["update"] == [0, 1, 2]


@pytest.mark.parametrize("metrics", [(), tuple("abcdefg")])
def test_no_metric_or_too_many_are_refused(metrics):
    with pytest.raises(ValueError, match=r"^metrics: .* expected 1 to 6 names"):
        plots.live_curves(*metrics)


def test_a_seventh_series_is_refused(clock):
    curves = plots.live_curves("reward", clock=clock)
    for seed in range(6):
        train(curves.series(f"seed {seed}"), clock, updates=1)
    with pytest.raises(ValueError, match="'seed 6' is one too many"):
        curves.series("seed 6")


CELL = """
import time
from course_lib.notebook import plots
curves = plots.live_curves("reward")
for update in range(4):
    time.sleep({pause})
    curves(update, {{"reward": float(update)}})
"""


@pytest.mark.slow
def test_a_built_notebook_keeps_the_last_picture_alone():
    stored = []
    for pause in (0.0, 0.3):
        cells = [new_code_cell(CELL.format(pause=pause), id="train")]
        cells.append(new_code_cell("print('next')", id="next"))
        notebook = new_notebook(cells=cells)
        run(notebook, ROOT, "here")
        stored.append(notebook.cells[0].outputs)
        assert notebook.cells[1].outputs[0].text == "next\n"
    quick, slow = stored
    assert quick == slow
    (output,) = quick
    assert "3 at the end" in output.data["text/plain"]
    assert output.metadata["image/png"]["alt"] == output.data["text/plain"]
    png = base64.b64decode(output.data["image/png"])
    assert Image.open(io.BytesIO(png)).size == (864, 360)
