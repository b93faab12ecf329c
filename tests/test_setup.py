"""`setup_check`: it finds what is missing, says what to do, and never fails itself."""

import importlib
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import IPython
import pytest
import torch
from packaging.requirements import Requirement

import course_lib
from course_lib import kernels
from course_lib.kernels import engines
from course_lib.notebook import setup, setup_check
from course_lib.notebook.setup import MODULES

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def block(monkeypatch):
    """Make modules look as if they were not installed."""

    def blocked(*modules):
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)

    return blocked


@pytest.fixture
def in_jupyter(monkeypatch):
    """A kernel stands behind this Python."""
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    monkeypatch.delenv("VSCODE_PID", raising=False)


def test_where_everything_is_here_it_says_so_with_versions():
    found = setup_check()
    assert found.ok and found.problems == ()
    assert found.widgets
    assert found.course == course_lib.__version__
    for name, version in found.versions.items():
        assert version == metadata.version(name).partition("+")[0]
        assert f"{name} {version}" in repr(found)
    assert repr(found).endswith("Everything that the course needs is here.")


def test_it_looks_at_every_package_that_the_course_asks_for_and_at_python():
    asked = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
    assert {one.name for one in asked} == MODULES.keys()
    oldest = ".".join(map(str, setup.OLDEST_PYTHON))
    assert PROJECT["project"]["requires-python"] == f">={oldest}"


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {"numba"}))
def test_a_missing_package_is_named_with_the_command_that_brings_it(name, block):
    block(MODULES[name])
    found = setup_check()
    (problem,) = found.problems
    bound = next(r for r in metadata.requires("ppo-course") if r.startswith(name))
    assert problem.startswith(f"{name} is missing.")
    assert f'%pip install "{bound}"' in problem
    assert found.versions[name] == "" and not found.ok
    assert "restart the kernel" in repr(found)
    assert max(map(len, repr(found).splitlines())) <= 76


def test_without_numba_the_course_works_and_only_a_note_says_so(block, monkeypatch):
    block("numba")
    # Another test may have compiled the loops already.
    monkeypatch.delitem(sys.modules, "course_lib.kernels.numba_loops", raising=False)
    monkeypatch.delattr(kernels, "numba_loops", raising=False)
    engines.compiled_loop.cache_clear()
    found = setup_check()
    engines.compiled_loop.cache_clear()
    assert found.ok and not found.compiles
    assert any(note.startswith("numba is missing") for note in found.notes)
    assert any("numba cannot compile here" in note for note in found.notes)
    assert "torch does the same work" in repr(found)


def test_everything_missing_at_once_is_still_a_report(block):
    block(*MODULES.values(), "IPython", "course_lib.notebook.words")
    found = setup_check()
    assert not found.ok and not found.widgets
    assert set(found.versions.values()) == {""}
    assert "missing torch torch>=" in repr(found)  # no YAML, so no sentences


@pytest.mark.parametrize("name", ["ipywidgets", "anywidget"])
def test_without_either_half_of_the_widgets_there_are_none(name, block):
    block(name)
    assert not setup_check().widgets


def test_a_package_that_does_not_load_is_told_apart_from_a_missing_one(monkeypatch):
    whole = importlib.import_module

    def broken(name, *more):
        if name == "torch":
            raise OSError("c10.dll: error 126")
        return whole(name, *more)

    monkeypatch.setattr(importlib, "import_module", broken)
    (problem,) = setup_check().problems
    assert "cannot be loaded (OSError: c10.dll: error 126)" in problem
    assert "Visual C++" in problem


def test_a_package_whose_own_parts_are_missing_counts_as_broken(monkeypatch):
    whole = importlib.import_module

    def broken(name, *more):
        if name == "gymnasium":
            raise ModuleNotFoundError("No module named 'farama'", name="farama")
        return whole(name, *more)

    monkeypatch.setattr(importlib, "import_module", broken)
    (problem,) = setup_check().problems
    assert problem.startswith("gymnasium is installed and cannot be loaded")


def test_a_package_that_is_too_old_is_named_with_both_versions(monkeypatch):
    asked = ["torch>=99.1", "numpy>=2.0", 'ruff>=0.6; extra == "dev"']
    monkeypatch.setattr(metadata, "requires", lambda _: asked)
    found = setup_check()
    (problem,) = found.problems
    assert problem.startswith(f"torch {found.versions['torch']} is older")
    assert '%pip install -U "torch>=99.1"' in problem


@pytest.mark.parametrize(
    ("here", "needed", "old"),
    [("2.10.0", "2.9", False), ("2.9.1", "2.10", True), ("3.0rc1", "3.0", False)],
)
def test_versions_are_compared_as_numbers(here, needed, old, monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda _: [f"tqdm>={needed}"])
    monkeypatch.setattr(setup, "_installed", lambda name: here)
    assert setup_check().ok is not old


def test_a_course_that_is_not_installed_is_checked_all_the_same(monkeypatch):
    def nowhere(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", nowhere)
    monkeypatch.setattr(metadata, "version", nowhere)
    found = setup_check()
    assert found.ok and found.course == ""
    assert found.versions["torch"] == torch.__version__


def test_an_old_python_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 0))
    (problem,) = setup_check().problems
    assert "the course needs 3.11 or newer" in problem


def test_a_device_that_cannot_compute_is_left_for_the_cpu(monkeypatch):
    def no_kernel(*_, device="cpu", **__):
        if device == "cuda":
            raise RuntimeError("no kernel image is available\nand more")
        return torch.zeros(2) + 1

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", no_kernel)
    found = setup_check()
    assert found.device == "cpu" and found.ok
    (note,) = (note for note in found.notes if "cuda" in note)
    assert "(no kernel image is available)" in note


def test_a_device_that_computes_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", lambda *_, **__: torch.zeros(2) + 1)
    assert setup_check().device == "cuda"
    assert "Device: cuda" in repr(setup_check())


def test_whatever_goes_wrong_while_looking_is_a_note(monkeypatch):
    def odd():
        raise AttributeError("a torch from another planet")

    monkeypatch.setattr(torch.cuda, "is_available", odd)
    found = setup_check()
    assert found.device == "cpu"
    assert any("Could not look at device" in note for note in found.notes)


def test_outside_a_notebook_it_says_that_nothing_shows_sliders():
    found = setup_check()
    assert found.front_end == ""
    assert any("no notebook" in note for note in found.notes)


def test_it_knows_colab_and_vs_code_and_jupyter(in_jupyter, monkeypatch):
    assert setup_check().front_end == "Jupyter"
    monkeypatch.setenv("VSCODE_PID", "1")
    assert setup_check().front_end == "VS Code"
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    assert setup_check().front_end == "Colab"


def test_jupyterlab_without_its_part_of_the_widgets_is_told(
    in_jupyter, tmp_path, monkeypatch
):
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda _: [str(tmp_path)])
    assert any("JupyterLab's part" in note for note in setup_check().notes)
    for name in ("anywidget", "@jupyter-widgets/jupyterlab-manager"):
        (tmp_path / name).mkdir(parents=True)
    assert not any("JupyterLab's part" in note for note in setup_check().notes)


def test_a_notebook_layer_that_cannot_be_loaded_fails_in_the_words_of_the_check():
    """In a process of its own, as a reader's first cell would."""
    program = (
        "import sys; sys.modules['anywidget'] = None\n"
        "try:\n    from course_lib.notebook import begin\n"
        "except ImportError as error:\n    print(error)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
    )
    assert '%pip install "anywidget>=' in done.stdout, done.stderr
    assert "restart the kernel" in done.stdout
