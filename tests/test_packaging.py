"""What the front papers promise: versions, licences, and nothing that Colab lacks."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
# Colab's runtime of August 2026, from its published list of packages.
COLAB = {
    "torch": "2.11.0",
    "numpy": "2.1.3",
    "numba": "0.60.0",
    "gymnasium": "1.3.0",
    "matplotlib": "3.10.0",
    "ipywidgets": "7.7.1",
    "anywidget": "0.9.21",
    "tqdm": "4.67.3",
    "pyyaml": "6.0",
}
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = [
    Requirement(line)
    for lines in PROJECT["optional-dependencies"].values()
    for line in lines
]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("requirement", CORE + EXTRAS, ids=lambda one: one.name)
def test_requirements_are_lower_bounds_only(requirement):
    assert all(one.operator == ">=" for one in requirement.specifier)


@pytest.mark.parametrize("requirement", CORE, ids=lambda one: one.name)
def test_colab_has_every_core_package_in_a_version_that_is_accepted(requirement):
    assert requirement.specifier.contains(Version(COLAB[requirement.name.lower()]))


def test_the_citation_has_the_version_of_the_package():
    assert yaml.safe_load(read("CITATION.cff"))["version"] == PROJECT["version"]


def test_the_newest_entry_of_the_changelog_is_this_version():
    assert re.search(r"^## (\S+)", read("CHANGELOG.md"), re.M)[1] == PROJECT["version"]


def test_the_readme_begins_with_the_two_commands():
    start = read("README.md").split("## Start", 1)[1]
    assert start.index("python course.py lab") < start.index("python course.py test")
    assert start.index("python course.py test") < start.index("uv")


def test_the_readme_lists_every_chapter_and_only_these():
    linked = set(re.findall(r"\(chapters/(\d\d_\w+)\.ipynb\)", read("README.md")))
    assert linked == {path.stem for path in (ROOT / "chapters").glob("*.ipynb")}


@pytest.mark.parametrize("paper", ["README.md", "CONTRIBUTING.md", "THIRD_PARTY.md"])
def test_links_within_the_repository_lead_somewhere(paper):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", read(paper)):
        assert (ROOT / target).exists(), target


def test_every_picture_of_the_readme_has_words():
    for words in re.findall(r"!\[(.*?)\]\(", read("README.md")):
        assert len(words.split()) > 8
