"""Plots: colours that everyone tells apart, text that can be read, words for each."""

import ast
import functools
import inspect
import io
import itertools
import math
import re
import time
from pathlib import Path

import matplotlib
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.text import Text
from PIL import Image, ImageColor

from course_lib import data
from course_lib.algorithms.history import Episode, History
from course_lib.notebook import picture, plots, scrub
from course_lib.notebook.picture import Canvas
from course_lib.notebook.plots import lines, style
from tools.execute import MAX_PICTURE_BYTES

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def as_a_notebook_starts(monkeypatch):
    monkeypatch.delenv("COURSE_STATIC", raising=False)
    plots.use(theme="light", medium="notebook")
    yield
    plots.use(theme="light", medium="notebook")


def run_of(seed, count=40):
    """A made-up training run: it rises, falls, stays, and jitters."""
    steps = range(count)
    return {
        "update": list(steps),
        "episode_return": [200 * (1 - math.exp(-i / 9)) + 4 * seed for i in steps],
        "approx_kl": [0.01 + 0.004 * math.sin(3 * i + seed) for i in steps],
        "explained_variance": [1 - math.exp(-i / 10) for i in steps],
        "entropy": [0.69 - 0.01 * i for i in steps],
        "policy_loss": [-0.0125 + 0.001 * math.cos(2 * i + seed) for i in steps],
        "value_loss": [12_000 / (i + 1) for i in steps],
    }


def finished_run(episode_return):
    """A run of 300 episodes that are all alike."""
    history = History((0,), env_steps=[98_304])
    for number in range(300):
        steps = 300 * (number + 1)
        history.episodes.append(Episode(0, steps, episode_return, int(episode_return)))
    return history


METRICS = [name for name in run_of(0) if name != "update"]
ONE_RUN = {"": run_of(0)}
SEEDS = {f"seed {seed}": run_of(seed) for seed in range(6)}

# Every draw function, with its size, two sets of values, and their name.
DRAWN = {
    "map": (plots.course_map, plots.WIDE, {}, None),
    "copying": (
        *(plots.copying_drift, plots.WIDE),
        {"path_length": 100, "error": 0.01, "recovery": 0.0},
        {"path_length": 400, "error": 0.1, "recovery": 0.1},
    ),
    "verdicts": (
        *(plots.verdict_credit, plots.WIDE),
        {"decisions": 10, "comparisons": 100, "wrong_verdicts": 0.0},
        {"decisions": 100, "comparisons": 10_000, "wrong_verdicts": 0.5},
    ),
    "chain": (plots.random_walk_chain, plots.STRIP, {}, None),
    "sweeps": (
        *(plots.value_sweeps, plots.WIDE),
        *({"sweeps": 3, "gamma": 1.0}, {"sweeps": 40, "gamma": 0.9}),
    ),
    "interval": (
        *(plots.monte_carlo_interval, plots.WIDE),
        *({"episodes": 100, "seed": 0}, {"episodes": 10_000, "seed": 1}),
    ),
    "loop": (plots.agent_environment_loop, plots.STRIP, {}, None),
    "cartpole": (plots.cartpole, plots.STRIP, {}, None),
    "discount": (
        *(plots.discount_weights, plots.WIDE),
        *({"gamma": 0.95}, {"gamma": 1.0}),
    ),
    "episode": (
        *(plots.cartpole_episode, plots.WIDE),
        *({"step": 0}, {"step": 38}),
    ),
    "td": (
        *(plots.td_learning, plots.WIDE),
        *({"step_size": 0.05, "runs": 10}, {"step_size": 0.2, "runs": 1}),
    ),
    "clip": (*(plots.clip_curves, plots.WIDE), *({"eps": 0.2}, {"eps": 0.4})),
    "surface": (
        *(plots.clip_surface, plots.PANELS),
        {"eps": 0.2, "advantage": 1.0, "turn": 0},
        {"eps": 0.0, "advantage": -2.0, "turn": 45},
    ),
    "journey": (
        *(plots.ratio_journey, plots.WIDE),
        {"eps": 0.2, "learning_rate": 1e-2},
        {"eps": 0.5, "learning_rate": 3e-4},
    ),
    "ppo loop": (plots.ppo_loop, plots.WIDE, {}, None),
    "bands": (
        *(plots.learning_bands, plots.PANELS),
        {"names": ["reinforce-baseline", "actor-critic", "trpo", "ppo"]},
        {"names": ["ppo"]},
    ),
    "bands and KL": (
        *(plots.bands_and_record, plots.PANELS),
        {"names": ["ppo", "ppo-rate-times-ten"]},
        {"names": ["ppo"], "metric": "ratio_max"},
    ),
    "details": (
        *(plots.detail_effects, plots.PANELS),
        {"names": [name for name in data.names() if name.startswith("ppo-")]},
        {"names": ["trpo"]},
    ),
    "diagnostics": (
        *(plots.run_diagnostics, plots.PANELS),
        {"run": "fault-step-too-large", "update": 20},
        {"run": "ppo", "update": 47},
    ),
    "curves": (
        *(plots.training_curves, plots.WIDE),
        {"histories": ONE_RUN, "metrics": METRICS[:2]},
        {"histories": {"": run_of(3)}, "metrics": METRICS[:2]},
    ),
    "seeds": (
        *(plots.training_curves, plots.PANELS),
        {"histories": SEEDS, "metrics": METRICS},
        {"histories": {"a": run_of(0), "b": run_of(9)}, "metrics": METRICS},
    ),
    "own run": (
        *(plots.run_over_band, plots.WIDE),
        {"history": finished_run(20.0)},
        {"history": finished_run(500.0)},
    ),
    "sick run": (
        *(plots.sick_run, plots.PANELS),
        *({"case": "A"}, {"case": "D"}),
    ),
    "square": (
        *(plots.training_curves, plots.SQUARE),
        {"histories": SEEDS, "metrics": METRICS[:1]},
        {"histories": {"a": run_of(0), "b": run_of(9)}, "metrics": METRICS[:1]},
    ),
}
every_drawing = pytest.mark.parametrize("name", DRAWN)
every_theme = pytest.mark.parametrize("theme", style.THEMES)
every_medium = pytest.mark.parametrize("medium", style.MEDIA)


def drawn(name):
    draw, size, values, _ = DRAWN[name]
    canvas = Canvas(draw, size)
    alt = canvas.draw(values)
    return canvas, alt


def test_every_draw_function_is_tried_here():
    public = {name: getattr(plots, name) for name in plots.__all__}
    draws = {
        one
        for one in public.values()
        if inspect.isfunction(one) and "figure" in inspect.signature(one).parameters
    }
    assert draws == {draw for draw, *_ in DRAWN.values()}


# Colours. Linear RGB as people see it who lack a kind of cone: Machado, Oliveira and
# Fernandes 2009 (severity 1) and, as a second opinion, Viénot, Brettel and Mollon 1999.

VISION = {
    "three cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan, Machado": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan, Machado": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protan, Viénot": (
        (0.11238, 0.88762, 0),
        (0.11238, 0.88762, 0),
        (0.00401, -0.00401, 1),
    ),
    "deutan, Viénot": (
        (0.29275, 0.70725, 0),
        (0.29275, 0.70725, 0),
        (-0.02234, 0.02234, 1),
    ),
}
# A difference of 1 is just seen side by side; lines apart from each other need more.
LEAST_DIFFERENCE = 13.0
LEAST_CONTRAST = 3.0  # WCAG 1.4.11, graphics
LEAST_TEXT_CONTRAST = 4.5  # WCAG 1.4.3


def linear(color):
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    ]


def times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


TO_XYZ = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)


def lab(rgb):
    white = [sum(row) for row in TO_XYZ]
    ratios = [v / w for v, w in zip(times(TO_XYZ, rgb), white, strict=True)]
    x, y, z = (
        t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in ratios
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def ciede2000(one, other):
    """CIE 142-2001, as written out by Sharma, Wu and Dalal 2005."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * math.sqrt(mean**7 / (mean**7 + 25**7))
    c1, c2 = math.hypot(stretch * a1, b1), math.hypot(stretch * a2, b2)
    h1 = math.degrees(math.atan2(b1, stretch * a1)) % 360
    h2 = math.degrees(math.atan2(b2, stretch * a2)) % 360
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    t = 1 - 0.17 * math.cos(math.radians(hue - 30))
    t += 0.24 * math.cos(math.radians(2 * hue))
    t += 0.32 * math.cos(math.radians(3 * hue + 6))
    t -= 0.20 * math.cos(math.radians(4 * hue - 63))
    s_l = 1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2)
    d_l = (l2 - l1) / s_l
    d_c = (c2 - c1) / (1 + 0.045 * chroma)
    d_h = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2))
    d_h /= 1 + 0.015 * chroma * t
    blue = 60 * math.exp(-(((hue - 275) / 25) ** 2))
    r_t = -2 * math.sqrt(chroma**7 / (chroma**7 + 25**7))
    r_t *= math.sin(math.radians(blue))
    return math.sqrt(d_l**2 + d_c**2 + d_h**2 + r_t * d_c * d_h)


def difference(one, other, vision):
    seen = [
        lab([min(max(c, 0), 1) for c in times(VISION[vision], linear(color))])
        for color in (one, other)
    ]
    return ciede2000(*seen)


def contrast(one, other):
    low, high = sorted(times(TO_XYZ, linear(color))[1] for color in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("one", "other", "published"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1.3802, -84.2814), (50, 0, -82.7485), 1.0000),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((50, 2.5, 0), (50, 3.2592, 0.3350), 1.0000),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_colour_difference_is_the_published_one(one, other, published):
    assert ciede2000(one, other) == pytest.approx(published, abs=5e-5)


def test_the_simulation_sees_red_and_green_fall_together():
    red, green = "#d62728", "#7a7a00"
    assert difference(red, green, "three cones") > 40
    for vision in ("deutan, Machado", "deutan, Viénot"):
        assert difference(red, green, vision) < LEAST_DIFFERENCE


@every_theme
@pytest.mark.parametrize("vision", VISION)
def test_any_two_colours_are_told_apart(theme, vision):
    chosen = style.THEMES[theme]
    colors = (*chosen.series, chosen.ink, chosen.muted)
    differences = {
        pair: difference(*pair, vision) for pair in itertools.combinations(colors, 2)
    }
    closest = min(differences, key=differences.get)
    print(f"{theme}, {vision}: {differences[closest]:.1f} between {closest}")
    assert differences[closest] >= LEAST_DIFFERENCE


@every_theme
def test_every_colour_stands_out_against_its_ground(theme):
    chosen = style.THEMES[theme]
    for color in chosen.series:
        assert contrast(color, chosen.ground) >= LEAST_CONTRAST, color
    for color in (chosen.ink, chosen.muted):  # these colour text
        assert contrast(color, chosen.ground) >= LEAST_TEXT_CONTRAST, color


def test_no_two_roles_or_series_share_line_and_marker():
    roles = [lines.exact(), lines.estimate(), lines.limit(), lines.baseline()]
    looks = [(one["linestyle"], one.get("marker")) for one in roles]
    assert len(set(looks)) == len(roles)
    series = [lines.series(index) for index in range(lines.MAX_SERIES)]
    assert len({str(one["linestyle"]) for one in series}) == lines.MAX_SERIES
    assert len({one["marker"] for one in series}) == lines.MAX_SERIES
    with pytest.raises(ValueError, match="index: 6; expected 0 to 5"):
        lines.series(6)


# The reader's choice.


@every_theme
@every_drawing
def test_a_picture_stands_on_the_ground_of_its_theme(theme, name):
    plots.use(theme=theme)
    image = Image.open(io.BytesIO(drawn(name)[0].image()))
    ground = style.THEMES[theme].ground
    assert image.getpixel((0, 0)) == ImageColor.getrgb(ground)
    assert max(image.getcolors(1 << 24))[1] == ImageColor.getrgb(ground)


def test_the_choice_reaches_later_pictures_and_leaves_earlier_ones_alone():
    earlier, _ = drawn("sweeps")
    before = earlier.image()
    plots.use(theme="dark")
    later, _ = drawn("sweeps")
    assert later.image() != before
    earlier.draw(DRAWN["sweeps"][2])
    assert earlier.image() == before


def test_one_choice_does_not_undo_the_other():
    plots.use(theme="dark")
    plots.use(medium="projector")
    chosen = style.current()
    expected = style.Style(style.THEMES["dark"], style.MEDIA["projector"])
    assert chosen == expected


@pytest.mark.parametrize("argument", ["theme", "medium"])
def test_an_unknown_name_is_refused_with_the_known_ones(argument):
    with pytest.raises(ValueError, match=f"^{argument}: 'sepia'; expected one of "):
        plots.use(**{argument: "sepia"})


def test_the_builder_of_pages_chooses_the_medium(monkeypatch):
    plots.use(theme="dark", medium="projector")
    monkeypatch.setenv("COURSE_STATIC", "1")
    assert style.current().medium == style.MEDIA["slide"]
    monkeypatch.setenv("COURSE_STATIC", "notebook")
    assert style.current().medium == style.MEDIA["notebook"]
    assert style.current().theme == style.THEMES["dark"]


@pytest.mark.parametrize("name", ["sweeps", "curves"])
def test_a_readers_matplotlibrc_changes_nothing(name):
    expected = drawn(name)[0].image()
    own = {"font.size": 30, "lines.linewidth": 9, "axes.facecolor": "red"}
    own |= {"axes.grid": False, "text.color": "blue", "axes.titlelocation": "right"}
    own |= {
        "axes.xmargin": 0.3,
        "ytick.direction": "in",
        "lines.dashed_pattern": [1, 9],
    }
    with matplotlib.rc_context(own):
        assert drawn(name)[0].image() == expected
        assert matplotlib.rcParams["font.size"] == 30


def test_a_draw_function_that_fails_leaves_the_settings_as_they_were():
    def failing(figure):
        raise ZeroDivisionError

    plots.use(theme="dark")
    before = dict(matplotlib.rcParams)
    with pytest.raises(ZeroDivisionError):
        Canvas(failing).draw({})
    assert dict(matplotlib.rcParams) == before
    plots.use(theme="light")
    assert style.current().theme == style.THEMES["light"]


# Sizes.

LEAST_TEXT = {"notebook": 12.0, "slide": 20.0, "projector": 20.0}  # CSS pixels
SLIDE = (1280, 720)
HEADING_AND_CONTROLS = 140


def enlargement(medium):
    """How much larger than its CSS size a picture is shown."""
    deck = ROOT / "tools" / "templates" / "slides" / "deck.css"
    zoom = re.search(r"course-scrub.*zoom: ([\d.]+)", deck.read_text(encoding="utf-8"))
    return float(zoom[1]) if medium == "slide" else 1.0


@functools.cache
def texts(medium, name):
    """Return what is really drawn: each text, its size in points and its box."""
    plots.use(medium=medium)
    canvas, _ = drawn(name)
    heard, draw = [], Text.draw

    def listening(text, renderer):
        heard.append(text)
        draw(text, renderer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", listening)
        canvas.image()
    seen = [one for one in heard if one.get_visible() and one.get_text().strip()]
    assert seen
    return canvas.figure.bbox, [
        (one.get_text(), one.get_fontsize(), one.get_window_extent()) for one in seen
    ]


@every_medium
@every_drawing
def test_the_smallest_text_can_be_read(medium, name):
    _, seen = texts(medium, name)
    text, points, _ = min(seen, key=lambda one: one[1])
    css = style.MEDIA[medium].css_pixels_per_inch / 72 * enlargement(medium)
    print(f"{medium}, {name}: {points * css:.1f} px, {text!r}")
    assert points * css >= LEAST_TEXT[medium]
    # Mathematics is set with exponents that are smaller than the text around them.
    assert not any("$" in text for text, *_ in seen)


@every_medium
@every_drawing
def test_no_text_is_cut_off(medium, name):
    edge, seen = texts(medium, name)
    for text, _, box in seen:
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= edge.x1 and box.y1 <= edge.y1
        assert inside, text


@every_medium
@every_drawing
def test_no_text_lies_on_another(medium, name):
    _, seen = texts(medium, name)
    for (one, _, here), (other, _, there) in itertools.combinations(seen, 2):
        assert not here.overlaps(there), (one, other)


@pytest.mark.parametrize("size", ["STRIP", "WIDE", "SQUARE", "PANELS"])
def test_every_size_fits_on_a_slide_and_in_a_notebook(size):
    width, height = getattr(plots, size)
    on_slide = style.MEDIA["slide"].css_pixels_per_inch * enlargement("slide")
    assert width * on_slide <= SLIDE[0]
    assert height * on_slide <= SLIDE[1] - HEADING_AND_CONTROLS
    assert width * style.MEDIA["notebook"].css_pixels_per_inch <= 760


def test_a_projectors_picture_is_as_large_as_a_slides():
    plots.use(medium="projector")
    large = drawn("sweeps")[0].css_size
    plots.use(medium="slide")
    zoom = enlargement("slide")
    assert large == tuple(round(side * zoom) for side in drawn("sweeps")[0].css_size)


@every_theme
@every_drawing
def test_a_stored_picture_is_small(theme, name):
    plots.use(theme=theme)
    assert len(drawn(name)[0].small_png()) <= MAX_PICTURE_BYTES


def test_forty_frames_for_a_slide_keep_within_their_limit(monkeypatch):
    monkeypatch.setenv("COURSE_STATIC", "1")
    shown = scrub(plots.value_sweeps, sweeps=(0, 60, 1, 3), gamma=(0.0, 1.0, 0.05, 1.0))
    page = shown.page_html()  # refuses a page that is too large
    print(f"forty frames take {len(page) / 1000:.0f} KB")
    assert page.count("data:image/webp") == 1 + 40


@pytest.mark.parametrize("name", ["sweeps", "interval", "curves"])
def test_two_panels_are_drawn_at_once(name):
    canvas, _ = drawn(name)
    taken = []
    for _ in range(5):
        start = time.process_time()
        canvas.draw(DRAWN[name][2])
        canvas.image(compress_level=1)
        taken.append(time.process_time() - start)
    print(f"{name}: {min(taken) * 1000:.0f} ms CPU a drawing")
    assert min(taken) < 0.25  # about 0.06 on a free processor


# pyplot keeps every figure alive and shows it once more.


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / "course_lib").rglob("*.py")),
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_pyplot_is_used_nowhere(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names]
            modules += [getattr(node, "module", None) or ""]
            named |= {part for module in modules for part in module.split(".")}
        elif isinstance(node, ast.Attribute):
            named.add(node.attr)
    assert not named & {"pyplot", "pylab"}


def test_no_figure_is_left_open():
    from matplotlib import pyplot

    for name in DRAWN:
        drawn(name)
    assert plots.live_curves("entropy").picture.png
    assert pyplot.get_fignums() == []


# Alt texts.


@pytest.mark.parametrize("name", [name for name in DRAWN if DRAWN[name][3]])
def test_other_values_have_other_words(name):
    draw, size, values, others = DRAWN[name]
    assert (
        picture(draw, size=size, **values).alt != picture(draw, size=size, **others).alt
    )


def test_a_drawing_of_sweeps_tells_what_one_sweep_does():
    # After one sweep from zero, only E has heard of the reward: half a chance of it.
    alt = picture(plots.value_sweeps, sweeps=1, gamma=1.0).alt
    assert "A 0.000, B 0.000, C 0.000, D 0.000, E 0.500" in alt
    for place, state in enumerate("ABCDE", start=1):
        assert f"{state} {place / 6:.3f}" in alt
    assert f"it is {4 / 6:.2g} at this one" in alt  # at D


def test_a_drawing_of_an_interval_tells_what_it_shows():
    canvas, alt = drawn("interval")
    left, right = canvas.figure.axes
    (bars,) = [one for one in left.containers if isinstance(one, ErrorbarContainer)]
    point, _, (stems,) = bars.lines
    inside = 0
    for place, (state, value, stem) in enumerate(
        zip("ABCDE", point.get_ydata(), stems.get_segments(), strict=True), start=1
    ):
        half = (stem[1][1] - stem[0][1]) / 2
        inside += abs(value - place / 6) <= half
        assert f"{state} {value:.3f}" in alt and f"{state} {half:.3f}" in alt
    assert f"{inside} of the 5 intervals" in alt
    (marked,) = [line for line in right.lines if line.get_marker() == "o"]
    assert f"it is {marked.get_ydata()[0]:.2g} here" in alt
    assert "from 100 episodes (seed 0)" in alt


def test_the_walk_is_told_in_words():
    assert "probability one half" in drawn("chain")[1]
