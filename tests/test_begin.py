"""The first cell of a notebook, and the words and pictures of the notebook layer."""

import html
import re

import pytest
import torch

import course_lib
from course_lib.notebook import begin, picture
from course_lib.notebook.picture import Picture
from course_lib.notebook.words import label, maths, read_yaml, word, words_of


@pytest.fixture(autouse=True)
def _torch_as_it_was():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_printoptions(profile="default")


def test_a_notebook_of_this_version_begins_silently_on_one_thread(capsys):
    torch.set_num_threads(2)
    begin(course_lib.__version__)
    assert torch.get_num_threads() == 1
    assert capsys.readouterr() == ("", "")


def test_a_notebook_of_another_version_is_told_both_on_stderr(capsys):
    begin("9.9.9")
    said = capsys.readouterr()
    assert said.out == ""
    assert "version 9.9.9 of the course" in said.err
    assert f"version {course_lib.__version__} of its library" in said.err


def test_tensors_print_four_digits_and_no_powers_of_ten():
    begin(course_lib.__version__)
    assert str(torch.tensor([1 / 3, 20000.0])) == "tensor([    0.3333, 20000.0000])"


def test_a_control_without_a_label_reads_as_its_name():
    assert label("gamma") == "discount γ"
    assert label("learning_rate") == "learning rate"


def test_a_text_that_is_missing_is_named():
    with pytest.raises(KeyError, match=r"no text 'check\.nothing'"):
        word("check.nothing")


def test_words_for_a_page_keep_what_the_page_fills_in():
    assert "{guess}" in words_of("quiz")["written"]


def test_a_file_that_is_no_yaml_is_named(tmp_path, monkeypatch):
    (tmp_path / "broken_words").mkdir()
    (tmp_path / "broken_words" / "__init__.py").write_text("", encoding="utf-8")
    bad = tmp_path / "broken_words" / "bad.yaml"
    bad.write_text("a: [1", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^bad\.yaml: not valid YAML"):
        read_yaml("broken_words", "bad.yaml")


def test_what_stands_around_and_inside_code_is_escaped():
    assert maths("<b> & `<i>`") == "&lt;b&gt; &amp; <code>&lt;i&gt;</code>"


def test_a_picture_shows_its_alt_text_in_both_forms_at_its_size():
    shown = Picture(b"png", 'He said "a < b".', (720, 300))
    data, metadata = shown._repr_mimebundle_()
    alt = re.search(r'alt="([^"]*)"', data["text/html"])[1]
    assert html.unescape(alt) == 'He said "a < b".'
    assert 'width="720" height="300"' in data["text/html"]
    assert metadata["image/png"] == {
        "alt": 'He said "a < b".',
        "width": 720,
        "height": 300,
    }


def test_a_picture_passes_its_values_on():
    def tall(figure, height):
        figure.subplots().bar([0], [height])
        return f"A bar of {height}."

    assert picture(tall, size=(2.0, 1.0), height=3).alt == "A bar of 3."
