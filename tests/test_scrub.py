"""`scrub` without a browser: what its controls mean, what it answers, what it keeps."""

import io
import json
import re

import pytest
from PIL import Image

from course_lib.notebook import plots, scrub
from course_lib.notebook.controls import control
from course_lib.notebook.scrub import MAX_FRAMES, MAX_PAGE_BYTES


def bar(figure, height=1.0, word="left", shown=True):
    """A draw function that costs next to nothing."""
    axes = figure.subplots()
    axes.bar([word], [height], visible=shown)
    axes.set_ylim(0, 10)
    return f"A bar of height {height:g} at {word}, {'shown' if shown else 'hidden'}."


@pytest.fixture
def small():
    return scrub(bar, height=(0.0, 1.0, 0.1, 0.3), word=["left", "right"], shown=True)


class Front:
    """Stands in for the browser: hears what the kernel sends."""

    def __init__(self, shown):
        self.heard = []
        self.view = shown._live()
        self.view.send = lambda message, buffers: self.heard.append((message, buffers))

    def ask(self, *indices):
        self.view._handle_custom_msg({"indices": list(indices)}, [])
        return self.heard[-1]


def test_a_range_has_every_step_and_no_rounding_in_its_labels():
    gamma = control("gamma", (0.0, 1.0, 0.1, 0.3))
    assert gamma.values[3] == 0.3
    assert gamma.state()["texts"] == [
        *("0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1")
    ]
    assert gamma.state()["label"] == "discount γ"


def test_whole_numbers_stay_integers():
    sweeps = control("sweeps", (0, 60, 1, 3))
    assert sweeps.values == tuple(range(61))
    assert all(isinstance(value, int) for value in sweeps.values)


def test_a_list_may_name_the_value_it_starts_at():
    episodes = control("episodes", ([10, 100, 1000], 100))
    assert (episodes.kind, episodes.start) == ("slider", 1)
    assert episodes.state()["texts"][2] == "1,000"


def test_a_number_field_takes_any_number_and_keeps_its_type():
    share = control("share", 0.25)
    assert share.value(0.7) == 0.7
    assert isinstance(control("count", 3).value(7), int)
    front = Front(scrub(bar, height=2.5))
    assert front.ask(7.25)[0]["alt"] == "A bar of height 7.25 at left, shown."
    assert len(frames_of(scrub(bar, height=2.5).page_html())["frames"]) == 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ((1.0, 0.0, 0.1, 1.0), "expected low < high"),
        ((0.0, 1.0, 0.0, 0.0), "step > 0"),
        ((0.0, 1.0, 0.1, 0.35), "start 0.35 is none of"),
        ((1.0, 1.0, 0.1, 1.0), "expected low < high"),
        ([1, True], "all numbers or all words"),
        ([1], "two or more different values"),
        ([1, "a"], "all numbers or all words"),
        ([1, 1], "different"),
        (([1, 2], 3), "start 3 is none of"),
        (float("nan"), "is no number to start at"),
        (None, "is no control"),
        ("left", "is no control"),
    ],
)
def test_a_wrong_specification_names_its_control(spec, words):
    with pytest.raises((TypeError, ValueError), match=f"^height: .*{re.escape(words)}"):
        control("height", spec)


def test_no_control_at_all_is_refused():
    with pytest.raises(ValueError, match="no control given"):
        scrub(bar)


def test_the_start_is_drawn_and_its_values_can_be_read(small):
    assert small.values == {"height": 0.3, "word": "left", "shown": True}
    assert small.alt == "A bar of height 0.3 at left, shown."


def test_an_answer_carries_the_picture_and_its_words(small):
    message, (png,) = Front(small).ask(7, 1, 1)
    assert message["alt"] == "A bar of height 0.7 at right, shown."
    assert message["indices"] == [7, 1, 1]
    assert Image.open(io.BytesIO(png)).format == "PNG"


def test_every_answer_has_the_size_of_the_first_picture(small):
    front = Front(small)
    sizes = {
        Image.open(io.BytesIO(front.ask(height, 0, 1)[1][0])).size
        for height in (0, 5, 10)
    }
    assert sizes == {Image.open(io.BytesIO(small._png)).size}


def test_axes_do_not_move_when_a_label_grows():
    def growing(figure, power=0):
        axes = figure.subplots()
        axes.plot([0, 10**power])
        boxes.append(axes)
        return "A line."

    boxes = []
    shown = scrub(growing, power=(0, 6, 1, 0))
    front = Front(shown)
    front.ask(6)
    first, last = boxes[0].get_position(), boxes[-1].get_position()
    assert first.bounds == last.bounds


def test_what_a_draw_function_raises_is_told_in_words_and_the_next_value_draws():
    def fragile(figure, height=1):
        if height == 2:
            raise ZeroDivisionError("no height two")
        return bar(figure, height)

    front = Front(scrub(fragile, height=(0, 3, 1, 1)))
    message, buffers = front.ask(2)
    assert message["failed"] == (
        "This picture cannot be drawn at height = 2. ZeroDivisionError: no height two"
    )
    assert buffers == []
    assert "failed" not in front.ask(3)[0]


def test_other_cells_read_what_the_reader_chose(small):
    small._live().indices = [10, 1, 0]
    assert small.values == {"height": 1.0, "word": "right", "shown": False}


def test_a_draw_function_without_alt_text_is_refused():
    def silent(figure, height=1):
        figure.subplots()

    with pytest.raises(TypeError, match="silent returned None; expected its alt text"):
        scrub(silent, height=(0, 3, 1, 1))


def test_no_figure_of_pyplot_is_opened():
    from matplotlib import pyplot

    scrub(bar, height=(0, 3, 1, 1)).draw(height=2)
    assert pyplot.get_fignums() == []


def test_the_notebook_gets_a_widget_and_the_picture_with_its_alt_text(small):
    (still, metadata), (widget, _) = small.bundles()
    assert set(still) == {"image/png", "text/html", "text/plain"}
    assert metadata["image/png"]["alt"] == small.alt
    assert set(widget) == {"application/vnd.jupyter.widget-view+json"}


def frames_of(page):
    payload = re.search(r'<script type="application/json">(.*?)</script>', page, re.S)
    return json.loads(payload[1].replace("<\\/", "</"))


def test_a_page_has_the_start_and_one_line_of_frames_for_each_control():
    shown = scrub(bar, height=(0.0, 1.0, 0.1, 0.3), word=["left", "right"])
    state = frames_of(shown.page_html())
    assert len(state["frames"]) == 11 + 1
    assert state["frames"]["3,1"]["alt"] == "A bar of height 0.3 at right, shown."
    # The other control never leaves its start: no frame has both moved.
    assert all(
        key.split(",")[0] == "3" or key.split(",")[1] == "0" for key in state["frames"]
    )


def test_only_a_page_with_several_controls_says_that_the_others_stay():
    one = scrub(bar, height=(0, 3, 1, 1))
    two = scrub(bar, height=(0, 3, 1, 1), shown=True)
    assert frames_of(one.page_html())["note"] == ""
    assert frames_of(two.page_html())["note"].startswith(
        "Here one control moves at a time"
    )


def test_a_helper_draws_any_position_without_a_browser(small):
    assert small.draw(height=0.7, shown=False) == "A bar of height 0.7 at left, hidden."
    assert len(small.positions()) == 1 + 10 + 1 + 1


def test_negative_numbers_have_a_minus_sign():
    assert control("x", (-1.0, 1.0, 0.5, 0.0)).state()["texts"][0] == "−1"


def test_a_page_thins_long_controls_and_keeps_start_and_ends():
    shown = scrub(bar, height=(0.0, 5.0, 0.01, 0.37), word=["left", "right"])
    state = frames_of(shown.page_html())
    texts = state["controls"][0]["texts"]
    assert len(state["frames"]) == MAX_FRAMES
    assert (texts[0], texts[-1]) == ("0", "5")
    assert texts[state["controls"][0]["start"]] == "0.37"


def test_a_page_over_the_limit_is_refused_with_its_size():
    import numpy as np

    def noise(figure, seed=0):
        axes = figure.add_axes((0, 0, 1, 1))
        axes.imshow(np.random.default_rng(seed).random((300, 720)))
        return "Noise."

    with pytest.raises(ValueError, match=f"at most {MAX_PAGE_BYTES:,}"):
        scrub(noise, seed=(0, 30, 1, 0)).page_html()


def test_static_output_holds_no_widget(small, monkeypatch):
    monkeypatch.setenv("COURSE_STATIC", "1")
    [(data, _)] = small.bundles()
    assert set(data) == {"text/html", "text/plain"}


def test_alt_text_cannot_break_out_of_its_attribute():
    def quoted(figure, height=1):
        bar(figure, height)
        return 'He said "</script>" & left.'

    page = scrub(quoted, height=(0, 3, 1, 1)).page_html()
    assert page.count("</script>") == 1
    assert frames_of(page)["alt"] == 'He said "</script>" & left.'


def test_the_chapters_pictures_draw_twice_alike():
    shown = scrub(plots.value_sweeps, sweeps=(0, 60, 1, 3), gamma=(0.0, 1.0, 0.05, 1.0))
    shown.draw(sweeps=3, gamma=1.0)
    once = shown._canvas.image()
    shown.draw(sweeps=40, gamma=0.5)
    shown.draw(sweeps=3, gamma=1.0)
    assert shown._canvas.image() == once
