"""Every control of `scrub` and kind of `quiz`, by mouse and by keyboard, in Lab."""

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe

from tools.browser import Opened, run_all

pytestmark = pytest.mark.slow

DRAW = """
import time
from course_lib.notebook import quiz, scrub

calls = []

def bar(fig, height=1.0, side="left", shown=True, share=0.5):
    calls.append(height)
    axes = fig.subplots()
    axes.bar([side], [height * share], visible=shown)
    axes.set_ylim(0, 10)
    return f"height {height:g}, side {side}, shown {shown}, share {share:g}"

def slow(fig, height=0):
    time.sleep(0.3)
    return bar(fig, float(height))

def fragile(fig, height=0):
    if height == 2:
        raise ValueError("two is not drawn")
    return bar(fig, float(height))
"""
CELLS = {
    "setup": DRAW,
    "every": "every = scrub(bar, height=(0.0, 10.0, 0.5, 1.0), "
    'side=["left", "right"], shown=True, share=0.5)\nevery',
    "slow": "scrub(slow, height=(0, 40, 1, 0))",
    "fragile": "scrub(fragile, height=(0, 5, 1, 0))",
    "ordering": 'quiz("lines-of-evaluation")',
    "predict": 'quiz("predict-three-ways")',
    "multiple": 'quiz("needs-the-model")',
    "read": "print(every.values)",
}
RUN_LAST = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  panel.content.activeCellIndex = panel.content.widgets.length - 1;
  await window.jupyterapp.commands.execute("notebook:run-cell");
}"""
WAIT_ALT = """([place, words]) => {
  const image = document.querySelectorAll(".course-scrub-frame img")[place];
  return image && image.alt.includes(words);
}"""


@pytest.fixture(scope="module")
def opened(browser, lab):
    cells = [nbformat.v4.new_code_cell(s, id=name) for name, s in CELLS.items()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, lab.folder / "widgets.ipynb")
    opened = Opened(browser, lab.address, "widgets.ipynb")
    run_all(opened.page)
    opened.page.locator(".course-scrub-frame img").nth(2).wait_for()
    opened.page.locator(".course-quiz form").nth(2).wait_for()
    yield opened
    opened.page.close()


def scrub_at(opened, place):
    return opened.page.locator(".course-scrub").nth(place)


def field(scrub, name):
    """The control whose label reads `name`, the only one of that name."""
    return scrub.locator("label", has_text=name).locator("input, select")


def until_alt(opened, place, words):
    opened.page.wait_for_function(WAIT_ALT, arg=[place, words], timeout=15_000)


def test_slider_choice_switch_and_number_each_move_the_picture(opened):
    page, every = opened.page, scrub_at(opened, 0)
    field(every, "height").focus()
    page.keyboard.press("End")
    until_alt(opened, 0, "height 10, side left")
    page.keyboard.press("Home")
    until_alt(opened, 0, "height 0, side left")
    field(every, "side").select_option(label="right")
    until_alt(opened, 0, "side right, shown True")
    field(every, "shown").uncheck()
    until_alt(opened, 0, "shown False")
    field(every, "share").fill("0.125")
    page.keyboard.press("Enter")
    until_alt(opened, 0, "share 0.125")
    assert opened.complaints == []


CELL_AT = """() => {
  const { content } = window.jupyterapp.shell.currentWidget;
  const at = content.widgets.findIndex((cell) => cell.node === document.activeElement);
  return at < 0 ? null : content.widgets[at].model.id;
}"""
COUNT_OF = """(id) => window.jupyterapp.shell.currentWidget.content.widgets
  .find((cell) => cell.model.id === id).model.executionCount"""


@pytest.mark.parametrize(
    ("cell", "where"),
    [
        ("fragile", ".course-scrub input"),
        ("predict", ".course-quiz input"),
        ("multiple", ".course-quiz button"),
    ],
)
def test_escape_and_shift_enter_stay_with_the_notebook(opened, cell, where):
    page, places = opened.page, list(CELLS)
    control = page.locator(".jp-Cell").nth(places.index(cell)).locator(where).first
    control.click()
    page.keyboard.press("Escape")
    assert page.evaluate(CELL_AT) == cell
    before = page.evaluate(COUNT_OF, cell)
    control.click()
    page.keyboard.press("Shift+Enter")
    assert page.evaluate(CELL_AT) == places[places.index(cell) + 1]
    page.wait_for_function(
        f"before => ({COUNT_OF})({cell!r}) > before", arg=before, timeout=15_000
    )


def test_a_mouse_drags_a_slider_from_end_to_end(opened):
    page, slider = opened.page, field(scrub_at(opened, 0), "height")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 2, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, middle, steps=25)
    page.mouse.up()
    until_alt(opened, 0, "height 10")


def test_another_cell_reads_the_values(opened):
    page = opened.page
    field(scrub_at(opened, 0), "height").focus()
    page.keyboard.press("Home")
    until_alt(opened, 0, "height 0")
    for _ in range(5):  # the value may still be on its way to the kernel
        page.evaluate(RUN_LAST)
        page.wait_for_timeout(500)
        if page.get_by_text("{'height': 0.0, 'side': 'right'").count():
            return
    pytest.fail("the last cell does not print what the controls show")


def test_the_still_picture_goes_once_the_controls_stand(opened):
    stills = opened.page.locator("[data-course-still]")
    assert stills.count() == 3
    assert not any(one.is_visible() for one in stills.all())


def test_a_screen_reader_hears_what_the_new_picture_shows(opened):
    every = scrub_at(opened, 0)
    field(every, "height").focus()
    opened.page.keyboard.press("ArrowRight")
    until_alt(opened, 0, "height 0.5")
    spoken = every.locator(".course-scrub-spoken[aria-live=polite]")
    assert "height 0.5" in spoken.inner_text()


def test_a_slow_picture_never_piles_up(opened):
    page, slow = opened.page, scrub_at(opened, 1)
    slider = field(slow, "height")
    slider.focus()
    for _ in range(30):  # within about a second; each would take 0.3 s to draw
        page.keyboard.press("ArrowRight")
    assert slow.locator("output").inner_text() == "30"
    start = page.evaluate("performance.now()")
    until_alt(opened, 1, "height 30,")
    waited = page.evaluate("performance.now()") - start
    assert waited < 3000  # thirty pictures would take nine seconds


def test_a_failing_picture_says_so_once_and_keeps_the_last(opened):
    page, fragile = opened.page, scrub_at(opened, 2)
    slider = field(fragile, "height")
    slider.focus()
    page.keyboard.press("ArrowRight")
    until_alt(opened, 2, "height 1,")
    page.keyboard.press("ArrowRight")
    alert = fragile.get_by_role("alert")
    alert.wait_for()
    assert "cannot be drawn at height = 2. ValueError: two is not drawn" in (
        alert.inner_text()
    )
    assert "height 1," in fragile.locator("img").get_attribute("alt")
    page.keyboard.press("ArrowRight")
    until_alt(opened, 2, "height 3,")
    assert alert.is_hidden()
    assert opened.complaints == []


def test_the_height_of_the_page_does_not_jump_while_scrubbing(opened):
    page, every = opened.page, scrub_at(opened, 0)
    field(every, "height").focus()
    heights = set()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
        heights.add(every.bounding_box()["height"])
    assert len(heights) == 1


def quiz_with(opened, words):
    return opened.page.locator(".course-quiz", has_text=words)


def test_lines_are_put_in_order_with_the_keyboard(opened):
    page, quiz = opened.page, quiz_with(opened, "its lines shuffled")
    verdict = quiz.locator("[role=status]")
    quiz.get_by_role("button", name="Check").click()
    assert verdict.inner_text().startswith("Not yet.")
    right = [
        "Start with a value",
        "For each state",
        "Note the largest",
        "Let the new",
        "If the largest",
    ]
    for place, words in enumerate(right):
        up = quiz.get_by_role("button", name=f"Move up: {words}")
        up.focus()
        for _ in range(len(right)):
            rows = quiz.locator("li").all_inner_texts()
            at = next(i for i, row in enumerate(rows) if words in row)
            if at == place:
                break
            page.keyboard.press("Space")
            assert up.evaluate("node => node === document.activeElement")
    assert " of 5: " in quiz.locator(".course-quiz-spoken").inner_text()
    quiz.get_by_role("button", name="Check").press("Enter")
    assert verdict.inner_text().startswith("Right.")


def test_a_wrong_order_is_told_which_two_lines(opened):
    quiz = quiz_with(opened, "its lines shuffled")
    quiz.get_by_role("button", name="Move down: Note the largest").click()
    quiz.get_by_role("button", name="Check").click()
    assert "nothing left to compare" in quiz.locator("[role=status]").inner_text()


def test_a_guess_is_written_down_before_the_comparison_opens(opened):
    quiz = quiz_with(opened, "Sweeps until nothing changes")
    button = quiz.get_by_role("button", name="Write it down")
    button.click()
    verdict = quiz.locator("[role=status]")
    assert "Write down a guess first" in verdict.inner_text()
    quiz.get_by_label("your answer").fill("0, 0.02, <b>0.05</b>")
    quiz.get_by_label("your answer").press("Enter")
    assert "You wrote: 0, 0.02, <b>0.05</b>." in verdict.inner_text()
    verdict.locator("summary").click()
    assert verdict.get_by_text("far below anything").is_visible()


def test_of_several_right_answers_all_are_wanted(opened):
    quiz = quiz_with(opened, "transition probabilities?")
    verdict = quiz.locator("[role=status]")
    quiz.get_by_label("Sweeps of the Bellman equation").check()
    quiz.get_by_role("button", name="Check").click()
    assert verdict.inner_text().startswith("Not yet.")
    assert "What you chose is right, and something is missing." in verdict.inner_text()
    quiz.get_by_label("TD(0)").check()
    quiz.get_by_role("button", name="Check").click()
    assert "one next state that really came" in verdict.inner_text()
    quiz.get_by_label("TD(0)").uncheck()
    quiz.get_by_label("The linear solve").check()
    quiz.get_by_role("button", name="Check").click()
    assert verdict.inner_text().startswith("Right.")


def test_focus_is_visible_and_leaves_a_quiz_again(opened):
    page, quiz = opened.page, quiz_with(opened, "transition probabilities?")
    quiz.get_by_label("Sweeps of the Bellman equation").focus()
    page.keyboard.press("Tab")
    outline = "node => getComputedStyle(document.activeElement).outlineStyle"
    assert quiz.evaluate(outline) == "solid"
    for _ in range(8):
        page.keyboard.press("Tab")
    assert not quiz.evaluate("node => node.contains(document.activeElement)")


def test_axe_finds_nothing_serious_in_our_parts(opened):
    for ours in (".course-scrub", ".course-quiz"):
        found = Axe().run(opened.page, context=ours).response["violations"]
        serious = [f for f in found if f["impact"] in ("serious", "critical")]
        assert serious == [], [(f["id"], f["nodes"][0]["html"]) for f in serious]


def test_without_a_kernel_the_saved_notebook_shows_pictures_and_asks(browser, lab):
    """Saved with its widgets, opened again with no kernel: the state is gone."""
    first = Opened(browser, lab.address, "widgets.ipynb")
    run_all(first.page)
    first.page.locator(".course-scrub-frame img").nth(2).wait_for()
    first.page.evaluate(
        """async () => {
          await window.jupyterapp.commands.execute("docmanager:save");
          const { sessionContext } = window.jupyterapp.shell.currentWidget;
          await sessionContext.shutdown();
        }"""
    )
    first.page.close()
    again = Opened(browser, lab.address, "widgets.ipynb")
    stills = again.page.locator("[data-course-still] img")
    stills.nth(2).wait_for()
    assert "height 1, side left" in stills.first.get_attribute("alt")
    asks = "To move the controls, run the notebook's first cell, then this one."
    assert again.page.get_by_text(asks).count() == 3
    failures = again.page.get_by_text("Error displaying widget")
    failures.nth(2).wait_for(state="attached")  # JupyterLab's own, which helps nobody
    assert not any(one.is_visible() for one in failures.all())
    quiz = again.page.locator(".course-quiz", has_text="transition probabilities?")
    quiz.get_by_label("Monte Carlo").check()
    quiz.get_by_role("button", name="Check").click()
    assert "Not yet." in quiz.locator("[role=status]").inner_text()
    again.page.close()
