"""Execution: outputs that are the same at every run, and what is not stored."""

import base64
import io
from pathlib import Path

import nbformat
import pytest

from tools import execute
from tools.execute import clean, run
from tools.files import BuildError


def executed(tmp_path: Path, source: str, tags: tuple[str, ...] = ()):
    page = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source, id="cell-one")]
    )
    page.cells[0].metadata["tags"] = list(tags)
    seconds = run(page, tmp_path, "chapters/01_walk.ipynb")
    return page.cells[0].outputs, seconds


def test_an_error_stops_the_build_with_file_and_cell(tmp_path):
    with pytest.raises(BuildError) as caught:
        executed(tmp_path, "1 / 0")
    assert str(caught.value) == (
        "chapters/01_walk.ipynb: cell cell-one: ZeroDivisionError: division by zero"
    )


def test_a_cell_that_takes_too_long_stops_the_build(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "TIMEOUT_S", 1)
    with pytest.raises(BuildError, match=r"cell cell-one: .*time"):
        executed(tmp_path, "import time; time.sleep(30)")


def test_the_kernel_is_told_how_to_be_deterministic_and_works_elsewhere(tmp_path):
    names = ("COURSE_BUILD", "OMP_NUM_THREADS", "PYTHONHASHSEED")
    source = f"import os\nprint([os.environ[n] for n in {names}], os.listdir())"
    outputs, seconds = executed(tmp_path, source)
    assert outputs[0].text == "['1', '1', '0'] []\n"
    assert 0 < seconds < 60


def display(**data: object):
    cell = nbformat.v4.new_code_cell("x", id="show")
    mimes = {key.replace("__", "/"): value for key, value in data.items()}
    cell.outputs = [nbformat.v4.new_output("display_data", data=mimes)]
    return cell


WIDGET = {"application/vnd.jupyter.widget-view+json": {"model_id": "abc"}}


def test_a_widget_leaves_its_picture_and_its_words(tmp_path):
    cell = display(image__png=png(), text__plain="A walk.")
    cell.outputs[0].data.update(WIDGET)
    (output,) = clean(cell, "here")
    assert sorted(output.data) == ["image/png", "text/plain"]


def test_a_picture_is_stored_once_although_it_shows_itself_in_two_forms(tmp_path):
    cell = display(image__png=png(), text__html="<img>", text__plain="A walk.")
    (output,) = clean(cell, "here")
    assert sorted(output.data) == ["image/png", "text/plain"]


def test_a_widget_without_a_picture_leaves_nothing(tmp_path):
    cell = display(text__plain=" 10%|#   | 1/10")
    cell.outputs[0].data.update(WIDGET)
    assert clean(cell, "here") == []


def png(noise: bool = False, **options: object) -> str:
    from PIL import Image

    picture = Image.effect_noise((400, 400), 90) if noise else Image.new("L", (4, 4))
    buffer = io.BytesIO()
    picture.save(buffer, "png", **options)
    return base64.b64encode(buffer.getvalue()).decode()


def test_a_pictures_date_and_software_are_not_stored():
    from PIL import Image, PngImagePlugin

    notes = PngImagePlugin.PngInfo()
    notes.add_text("Software", "Matplotlib version 9")
    notes.add_itxt("Creation Time", "today")
    (output,) = clean(display(image__png=png(pnginfo=notes)), "here")
    stored = base64.b64decode(output.data["image/png"])
    assert b"Matplotlib" not in stored
    assert b"today" not in stored
    Image.open(io.BytesIO(stored)).verify()


def test_a_large_picture_is_refused():
    with pytest.raises(BuildError, match=r"here: a picture of \d+ KB; at most 60 KB"):
        clean(display(image__png=png(noise=True)), "here")


def test_a_memory_address_is_refused():
    text = "<function f at 0x7f3a5c0d9e40>"
    with pytest.raises(BuildError, match="here: shows a memory address"):
        clean(display(text__plain=text), "here")


def test_stderr_is_refused_and_a_progress_bar_dropped():
    cell = nbformat.v4.new_code_cell("x", id="show")
    stream = nbformat.v4.new_output
    cell.outputs = [stream("stream", name="stderr", text="\r 10%|#|\r 20%|##|\n")]
    assert clean(cell, "here") == []
    cell.outputs.append(stream("stream", name="stderr", text="Warning: old\n"))
    with pytest.raises(BuildError, match="here: wrote to stderr: Warning: old"):
        clean(cell, "here")
