"""Slides: one file, complete, that works from disk without a network."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe

from tools.build import ROOT, build
from tools.files import BuildError
from tools.notebooks import plan
from tools.slides import VENDOR, arrange, main, write_decks
from tools.vendor_update import PACKAGES

# A library with the same shape as the course's, small enough to start at once.
LIBRARY = """
import os
from IPython.display import publish_display_data

DOT = ("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgAB"
       "SK+kcQAAAABJRU5ErkJggg==")

def picture():
    publish_display_data({"image/png": DOT, "text/plain": "words"},
                         {"image/png": {"alt": 'One "black" dot'}})

def bare():
    publish_display_data({"image/png": DOT, "text/plain": "<Figure size 1x1>"})

def scrub():
    if os.environ.get("COURSE_STATIC"):
        lever = '<input type="range" id="lever" value="3">'
        html = f'<figure class="course-scrub">{lever}</figure>'
        publish_display_data({"text/html": html})
    else:
        picture()
"""
SCRIPT = """export function mountPage(root) {
  const close = "</script>";
  for (const place of root.querySelectorAll(".course-scrub")) place.title = close;
}
export default {};
"""
CHAPTER = r"""---
title: A walk & more
---

# A walk

Say hello first.

```python name="first"
from course_lib import *
```

<!-- #region name="aim" slideshow={"slide_type": "slide"} tags=["slides-only"] -->
## The aim

$$V(s) = \sum_a \pi(a \mid s)\, Q(s, a) \tag{eq-v}$$

$\boldsymbol{x}$, and `code`
<!-- #endregion -->

Tell them why, as in $\gamma$.

```python name="compute" slideshow={"slide_type": "subslide"}
print("forty", 2)
```

```python name="unseen"
print("not on any slide")
```

```python name="show" slideshow={"slide_type": "fragment"}
picture()
```

```python name="move" slideshow={"slide_type": "slide"}
scrub()
```

<!-- #region name="skipped" slideshow={"slide_type": "skip"} -->
Neither slide nor note.
<!-- #endregion -->

Close with a question.
"""


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8", newline="\n")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("course")
    put(root, "pyproject.toml", '[project]\nversion = "0.3.0"\n')
    put(root, "course_lib/__init__.py", LIBRARY)
    put(root, "course_lib/notebook/scrub.js", SCRIPT)
    put(root, "course_lib/notebook/scrub.css", ".course-scrub { margin: 7px; }\n")
    put(root, "chapters/01_walk.md", CHAPTER)
    build(root)
    return root


@pytest.fixture(scope="module")
def deck(tree):
    (written,) = write_decks(tree)
    return written


@pytest.fixture(scope="module")
def page_text(tree, deck):
    return (tree / deck.path).read_text(encoding="utf-8")


def test_a_deck_says_where_it_is_how_long_it_takes_and_how_large_it_is(deck):
    assert re.fullmatch(
        r"dist/slides/01_walk\.html: 3 slides, about 6 minutes, \d\.\d MB", str(deck)
    )
    assert deck.megabytes < 5


def test_marked_cells_are_on_slides_and_other_prose_is_in_the_notes(tree):
    page = plan(tree)[0]
    columns = arrange(page.compose(slides_only=True), "here")
    assert [[slide.id for slide in column] for column in columns] == [
        ["aim", "compute"],
        ["move"],
    ]
    aim, compute, move = (slide for column in columns for slide in column)
    assert aim.notes == [
        "# A walk\n\nSay hello first.",
        "Tell them why, as in $\\gamma$.",
    ]
    assert [part["fragment"] for part in compute.parts] == [False, True]
    assert move.notes == ["Close with a question."]


def test_a_slide_shows_stored_outputs_and_hides_the_call_that_draws(page_text):
    body = page_text[page_text.index("<body") :]
    assert "forty 2" in body
    assert "not on any slide" not in body
    assert "Neither slide nor note" not in body
    assert re.search(r"print</span>.*forty", body)
    assert "picture" not in re.sub(r'class="[^"]*"', "", body[: body.index("<script")])
    assert 'alt="One &#34;black&#34; dot"' in body


def test_a_scrub_is_run_again_in_its_form_for_pages(page_text):
    assert '<figure class="course-scrub"><input type="range"' in page_text
    assert page_text.count("export function mountPage") == 1
    assert 'const close = "<\\/script>"' in page_text
    assert ".course-scrub { margin: 7px; }" in page_text


def test_a_deck_names_its_language_and_title_and_loads_nothing(page_text):
    assert '<html lang="en">' in page_text
    assert "<title>A walk &amp; more</title>" in page_text
    loaded = re.findall(
        r"""<(?:script|img|link|iframe)[^>]*\b(?:src|href)=["']?(?!data:)([^"'\s>]+)"""
        r"""|@import\s+([^;]+)|url\(["']?(?!data:|#)([^)"']+)""",
        re.sub(r"<script.*?</script>", "", page_text, flags=re.S),
    )
    assert loaded == []


def test_the_same_chapter_gives_the_same_bytes(tree, page_text):
    (again,) = write_decks(tree)
    assert (tree / again.path).read_text(encoding="utf-8") == page_text


def test_a_stale_or_missing_notebook_asks_for_a_build(tree, tmp_path, capsys):
    root = Path(shutil.copytree(tree, tmp_path / "tree"))
    put(root, "chapters/01_walk.md", CHAPTER.replace("Tell them", "Do not tell"))
    assert main(["01"], root) == 1
    assert capsys.readouterr().err == (
        "chapters/01_walk.ipynb: cell first-text-2: chapters/01_walk.md has changed "
        "since the last build; build first\n"
    )
    (root / "chapters/01_walk.ipynb").unlink()
    assert main(["01"], root) == 1
    assert capsys.readouterr().err == (
        "chapters/01_walk.ipynb: is missing; build first\n"
    )


def test_a_picture_without_words_is_refused_by_cell():
    output = nbformat.v4.new_output(
        "display_data", data={"image/png": "", "text/plain": "<Figure size 1x1>"}
    )
    cell = nbformat.v4.new_code_cell("bare()", id="bare", outputs=[output])
    cell.metadata["slideshow"] = {"slide_type": "slide"}
    with pytest.raises(BuildError, match="here: cell bare: the picture has no words"):
        arrange(nbformat.v4.new_notebook(cells=[cell]), "here")


def test_a_chapter_without_slides_is_refused():
    page = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("A.")])
    with pytest.raises(BuildError, match="here: no cell has slideshow"):
        arrange(page, "here")


# What the decks carry inside


def test_vendored_files_are_those_that_were_fetched():
    entries = json.loads((VENDOR / "vendor.json").read_text(encoding="utf-8"))
    assert [(e["npm"], e["version"], e["licence"]) for e in entries] == [
        (p.name, p.version, p.licence) for p in PACKAGES
    ]
    listed = {file["file"]: file["sha256"] for e in entries for file in e["files"]}
    found = {
        path.relative_to(VENDOR).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in VENDOR.glob("*/*")
    }
    assert found == listed
    for entry in entries:
        assert any("LICENSE" in file["file"] for file in entry["files"])


def test_third_party_names_every_vendored_package():
    text = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| \[?([\w.@/-]+)\]?(?:\(\S+\))? \| (\S+) \| (.+?) \|", text, re.M
    )
    entries = json.loads((VENDOR / "vendor.json").read_text(encoding="utf-8"))
    assert rows[1:] == [(e["npm"], e["version"], e["licence"]) for e in entries]


# In a browser


class Opened:
    """A deck opened from disk, and all that it asked for and complained about."""

    def __init__(self, browser, path: Path) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = browser.new_page(viewport={"width": 1280, "height": 720})
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._heard)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", timeout=60_000)

    def _heard(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def at(self) -> str:
        return self.page.evaluate("Reveal.getCurrentSlide().id")

    def go_to(self, selector: str) -> None:
        self.page.evaluate(
            """(selector) => {
                const slide = document.querySelector(selector).closest("section");
                const { h, v } = Reveal.getIndices(slide);
                Reveal.slide(h, v);
            }""",
            selector,
        )


TALLEST = """() => {
  const slides = document.querySelector(".slides");
  slides.classList.add("measuring");
  const boxes = [...slides.querySelectorAll(".fit")];
  const heights = boxes.map((box) => box.getBoundingClientRect().height);
  slides.classList.remove("measuring");
  return Math.max(...heights) / Reveal.getScale();
}"""


def assert_sound(opened: Opened) -> None:
    local = [url for url in opened.requests if not url.startswith(("data:", "blob:"))]
    assert len(local) == 1
    assert local[0].startswith("file:")
    assert opened.complaints == []
    assert opened.page.evaluate(TALLEST) <= 720
    assert opened.page.locator("mjx-container svg").count() > 0
    assert opened.page.locator('[data-mml-node="merror"]').count() == 0
    assert opened.page.locator(".notes mjx-assistive-mml").count() == 0
    assert opened.page.locator("img:not([alt])").count() == 0


@pytest.mark.slow
def test_a_deck_opens_from_disk_and_draws_its_maths(browser, tree, deck):
    opened = Opened(browser, tree / deck.path)
    assert_sound(opened)
    assert opened.page.evaluate(
        "document.querySelector('#aim mjx-container').innerText"
    )
    assert opened.page.locator(".slide-number").inner_text().replace(" ", "") == "1/3"


@pytest.mark.slow
def test_keys_turn_slides_but_not_while_a_slider_has_them(browser, tree, deck):
    opened = Opened(browser, tree / deck.path)
    assert opened.at() == "aim"
    opened.page.keyboard.press("ArrowRight")
    assert opened.at() == "move"
    lever = opened.page.locator("#lever")
    lever.focus()
    opened.page.keyboard.press("ArrowLeft")
    assert lever.input_value() == "2"
    assert opened.at() == "move"
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press("ArrowLeft")
    assert opened.at() == "aim"


@pytest.mark.slow
def test_a_slide_that_is_too_full_shrinks_or_says_so(
    browser, tree, page_text, tmp_path
):
    long = "<p>one more line of many</p>" * 14
    for lines, says in ((long, False), (long * 4, True)):
        full = page_text.replace("<h2>The aim</h2>", "<h2>The aim</h2>" + lines)
        assert full != page_text
        path = tmp_path / "full.html"
        path.write_text(full, encoding="utf-8")
        opened = Opened(browser, path)
        assert any("slide aim: too full" in text for text in opened.complaints) is says


def course_decks() -> list[str]:
    return [path.stem for path in sorted((ROOT / "chapters").glob("[0-9][0-9]_*.md"))]


@pytest.fixture(scope="module", params=course_decks())
def course_deck(request, browser, tmp_path_factory):
    """A deck of the course itself, opened."""
    root = tmp_path_factory.mktemp("decks") / "course"
    for part in ("chapters", "solutions", "course_lib"):
        shutil.copytree(ROOT / part, root / part)
    shutil.copy(ROOT / "pyproject.toml", root)
    only = (request.param.split(".")[0],)
    build(root, only, force=True)  # runs nothing where the tree is up to date
    decks = {Path(deck.path).stem: deck for deck in write_decks(root, only)}
    written = decks[request.param]
    return Opened(browser, root / written.path)


@pytest.mark.slow
def test_a_deck_of_the_course_is_sound(course_deck):
    assert_sound(course_deck)


@pytest.mark.slow
def test_a_slider_on_a_slide_changes_its_picture(course_deck):
    page = course_deck.page
    slider = page.locator(".course-scrub input[type=range]").first
    course_deck.go_to(".course-scrub")
    here = course_deck.at()
    picture = page.locator(f"#{here} .course-scrub img").first
    before = picture.get_attribute("src"), picture.get_attribute("alt")
    slider.focus()
    page.keyboard.press("ArrowRight")
    after = picture.get_attribute("src"), picture.get_attribute("alt")
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert course_deck.at() == here


@pytest.mark.slow
def test_on_a_slide_one_control_moves_and_the_others_go_home(course_deck):
    page = course_deck.page
    scrubs = page.locator(".course-scrub:has(.course-scrub-line:nth-child(2))")
    if scrubs.count() == 0:
        pytest.skip("no scrub of this deck has two controls")
    course_deck.go_to(".course-scrub:has(.course-scrub-line:nth-child(2))")
    first, second = scrubs.first.locator("input").all()[:2]
    second.focus()
    page.keyboard.press("ArrowLeft")
    home = first.input_value()  # another test may have moved it before
    first.focus()
    page.keyboard.press("ArrowRight")
    assert first.input_value() != home
    second.focus()
    page.keyboard.press("ArrowLeft")
    assert first.input_value() == home
    assert scrubs.first.get_by_text("Here one control moves at a time").count() == 1


@pytest.mark.slow
def test_page_keys_turn_the_slide_even_from_inside_a_control(course_deck):
    page = course_deck.page
    course_deck.go_to(".course-scrub")
    here, slider = course_deck.at(), page.locator(".course-scrub input").first
    before = slider.input_value()
    slider.focus()
    page.keyboard.press("PageDown")
    there = course_deck.at()
    assert there != here
    page.keyboard.press("PageUp")
    assert course_deck.at() == here
    assert slider.input_value() == before


@pytest.mark.slow
def test_axe_finds_nothing_serious_in_a_deck(course_deck):
    page = course_deck.page
    for ours in (".course-scrub", ".course-quiz"):
        course_deck.go_to(ours)
        at = f"#{course_deck.at()} {ours}"
        found = Axe().run(page, context=at).response["violations"]
        serious = [f for f in found if f["impact"] in ("serious", "critical")]
        assert serious == [], [(f["id"], f["nodes"][0]["html"]) for f in serious]


@pytest.mark.slow
def test_a_quiz_on_a_slide_answers(course_deck):
    page = course_deck.page
    course_deck.go_to(".course-quiz")
    quiz = page.locator(f"#{course_deck.at()} .course-quiz").first
    before = quiz.inner_text()
    entry = quiz.locator("input").first
    if entry.get_attribute("type") in ("radio", "checkbox"):
        entry.check()
    else:
        entry.fill("0.5")
    here = course_deck.at()
    quiz.locator("button").first.focus()
    page.keyboard.press("Space")
    assert quiz.inner_text() != before
    assert course_deck.at() == here  # the space did not turn the slide too
    page.keyboard.press("PageDown")  # a button takes no other key from the deck
    assert course_deck.at() != here
