"""`setup_check`: is everything here that the course needs, and what to do if not.

This module needs nothing but Python, and reports whatever else is missing, too old or
broken: it is what speaks when the rest of the notebook layer cannot be loaded.
"""

import contextlib
import importlib
import os
import platform
import re
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

COURSE = "ppo-course"
OLDEST_PYTHON = (3, 11)
MODULES = {
    "torch": "torch",
    "numpy": "numpy",
    "gymnasium": "gymnasium",
    "numba": "numba",
    "matplotlib": "matplotlib",
    "ipywidgets": "ipywidgets",
    "anywidget": "anywidget",
    "tqdm": "tqdm",
    "PyYAML": "yaml",
}
"""Every package that the course needs, and the name that it is imported by."""
_WIDGETS = {"ipywidgets", "anywidget"}
_SPARED = {"numba"}  # where it is missing, torch does the same work more slowly
_EXTENSIONS = ("anywidget", "@jupyter-widgets/jupyterlab-manager")
_LINE = 76
_T = TypeVar("_T")


@dataclass(frozen=True, repr=False)
class Setup:
    """What was found; it shows itself in words."""

    course: str
    """Version of the course, or "" where it is not installed."""
    python: str
    versions: dict[str, str]
    """Package to version, "" for one that cannot be imported."""
    device: str
    """Where tensors can be computed with: "cuda", "mps" or "cpu"."""
    compiles: bool
    """Whether numba compiles the course's loops."""
    widgets: bool
    """Whether this Python can make sliders; the page that shows them is another matter.
    """
    front_end: str
    """"Colab", "VS Code", "Jupyter", or "" outside a notebook."""
    problems: tuple[str, ...] = ()
    """What keeps some of the course from working, each with what to do."""
    notes: tuple[str, ...] = ()
    """What works in another way than usual, and is no problem."""

    @property
    def ok(self) -> bool:
        """Whether everything that the course needs is here."""
        return not self.problems

    def __repr__(self) -> str:
        short = ".".join(self.python.split(".")[:2])
        lines = [_say("setup.head", course=self.course or "?", python=short)]
        # A hard space keeps a version on the line of its name.
        names = [f"{name}\u00a0{there or '–'}" for name, there in self.versions.items()]
        lines += [
            line.replace("\u00a0", " ") for line in _wrapped(", ".join(names), "  ")
        ]
        kind = "cpu" if self.device == "cpu" else "other"
        lines.append(_say(f"setup.device_{kind}", device=self.device))
        lines.append(_say(f"setup.compiles_{'yes' if self.compiles else 'no'}"))
        lines.append(_say(f"setup.widgets_{'yes' if self.widgets else 'no'}"))
        for text in (*self.problems, *self.notes):
            lines += _wrapped(text, "- ")
        lines.append(_say("setup.ok" if self.ok else "setup.not_ok"))
        return "\n".join(lines)


def setup_check() -> Setup:
    """Look at Python, packages, device, compiler and widgets, and say what is missing.

    Returns:
        A `Setup`; as the last line of a cell it shows itself. Nothing is raised, be it
        missing, too old or broken: it is told in `problems`, with what to do.
    """
    problems: dict[str, str] = {}
    notes: list[str] = []
    needed = _lower_bounds()
    versions = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is found out here anyway
        for name, module in MODULES.items():
            versions[name], problem = _package(name, module, needed.get(name, ""))
            if problem and name in _SPARED:
                notes.append(problem)
            elif problem:
                problems[name] = problem
        device = _guarded(_device, notes, "cpu") if versions["torch"] else "cpu"
        compiles = _guarded(_compiles, notes, False) if versions["torch"] else False
        front_end = _guarded(_front_end, notes, "")
        if front_end == "Jupyter" and not _guarded(_has_extensions, notes, True):
            notes.append(_say("setup.no_extension"))
    if not front_end:
        notes.append(_say("setup.no_notebook"))
    if sys.version_info < OLDEST_PYTHON:
        problems["Python"] = _say("setup.python", python=platform.python_version())
    return Setup(
        course=_installed(COURSE),
        python=platform.python_version(),
        versions=versions,
        device=device,
        compiles=compiles,
        widgets=not _WIDGETS & problems.keys(),
        front_end=front_end,
        problems=tuple(problems.values()),
        notes=tuple(notes),
    )


def _package(name: str, module: str, needed: str) -> tuple[str, str]:
    """Return a package's version, "" if it is no use, and what is wrong with it."""
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name in (module, None):
            return "", _say("setup.missing", name=name, needed=needed or name)
        return "", _say("setup.broken", name=name, error=error)
    except Exception as error:  # a library that does not load, or does not fit another
        told = _say("setup.broken", name=name, error=f"{type(error).__name__}: {error}")
        return "", told
    version = _installed(name) or str(getattr(loaded, "__version__", "?"))
    bound = needed.partition(">=")[2]
    if bound and version != "?" and _numbers(version) < _numbers(bound):
        return version, _say("setup.old", name=name, version=version, needed=needed)
    return version, ""


def _lower_bounds() -> dict[str, str]:
    """Return what the course asks for, as in {"torch": "torch>=2.8"}."""
    try:
        asked = metadata.requires(COURSE) or []
    except metadata.PackageNotFoundError:
        return {}
    pairs = (re.match(r"([\w.-]+)\s*>=\s*([\w.]+)\s*$", line) for line in asked)
    return {found[1]: f"{found[1]}>={found[2]}" for found in pairs if found}


def _installed(name: str) -> str:
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _guarded(look: Callable[[list[str]], _T], notes: list[str], otherwise: _T) -> _T:
    try:
        return look(notes)
    except Exception as error:  # whatever it is, a check must not end in a traceback
        told = f"{type(error).__name__}: {error}"
        notes.append(_say("setup.unknown", what=look.__name__.strip("_"), error=told))
        return otherwise


def _device(notes: list[str]) -> str:
    import torch

    for name, there in (
        ("cuda", torch.cuda.is_available),
        ("mps", torch.backends.mps.is_available),
    ):
        if not there():
            continue
        try:
            if torch.ones(2, device=name).sum().item() == 2.0:
                return name
        except RuntimeError as error:  # a driver or a chip that this torch cannot use
            first = str(error).partition("\n")[0]
            notes.append(_say("setup.device_fails", device=name, error=first))
    return "cpu"


def _compiles(notes: list[str]) -> bool:
    import torch

    from course_lib.kernels import scan_engine

    try:
        return scan_engine(torch.ones(1, 1), "numba") == "numba"
    except RuntimeError as error:
        notes.append(_say("setup.no_compiler", error=error))
        return False


def _front_end(notes: list[str]) -> str:
    if "google.colab" in sys.modules:
        return "Colab"
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell else None
    if getattr(running, "kernel", None) is None:
        return ""
    return "VS Code" if "VSCODE_PID" in os.environ else "Jupyter"


def _has_extensions(notes: list[str]) -> bool:
    """Whether JupyterLab, if it is installed beside this kernel, can draw widgets."""
    from jupyter_core.paths import jupyter_path

    folders = [Path(folder) for folder in jupyter_path("labextensions")]
    return all(
        any((folder / name).exists() for folder in folders) for name in _EXTENSIONS
    )


def _wrapped(text: str, mark: str) -> list[str]:
    blank = " " * len(mark)
    return textwrap.wrap(
        text,
        _LINE,
        initial_indent=mark,
        subsequent_indent=blank,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _say(path: str, **values: object) -> str:
    """Return the text at `path`, or its name and values where PyYAML is missing."""
    with contextlib.suppress(Exception):
        from course_lib.notebook.words import word

        return word(path, **values)
    return " ".join([path.partition(".")[2], *map(str, values.values())])
