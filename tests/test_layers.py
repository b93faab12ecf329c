"""Arrows run down only: what a room of course_lib may import, read from its source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "course_lib"
FLOORS = {
    "kernels": 0,
    "envs": 1,
    "models": 1,
    "exact": 2,
    "algorithms": 3,
    "notebook": 4,
    "train": 4,
}
# Loaded at first use, or by the notebook layer alone.
ONLY_NOTEBOOK = {"matplotlib", "ipywidgets", "anywidget", "IPython"}
LATE = {"numba", "triton", "gymnasium"}
# Files made of what one such package compiles: it stands at their top, and they are
# themselves loaded at first use.
COMPILED = {
    "course_lib.kernels.loss_loops": "numba",
    "course_lib.kernels.numba_loops": "numba",
    "course_lib.kernels.scan_triton": "triton",
}
FILES = sorted(LIBRARY.rglob("*.py"))


def imported_modules(source: str, package: str) -> Iterator[tuple[str, bool]]:
    """Each (absolute module, whether at import time) that the source imports.

    `package` is the dotted package the file lies in, for relative imports. From
    `from a import b` come both a and a.b, since b may be a module.
    """
    tree = ast.parse(source)
    late = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node not in late
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, *([base] if base else [])])
            yield base, node not in late
            for alias in node.names:
                yield f"{base}.{alias.name}", node not in late


def faults(source: str, place: Path) -> list[str]:
    """What the file at `place` (relative to course_lib) imports against the rules."""
    package = ".".join(["course_lib", *place.parts[:-1]])
    room = place.parts[0] if len(place.parts) > 1 else ""
    found = set()
    for module, at_import in imported_modules(source, package):
        top, *rest = module.split(".")
        if top in ("tools", "tests", "course"):
            found.add(f"{place}: imports {top}, which nothing may look at")
        if top in ONLY_NOTEBOOK and room != "notebook":
            found.add(f"{place}: {top} belongs to the notebook room")
        own = COMPILED.get(".".join([package, place.stem]))
        late = top in LATE and top != own
        if at_import and (late or COMPILED.get(module, own) != own):
            found.add(f"{place}: {module} must be imported at first use")
        if top != "course_lib" or not rest or rest[0] not in FLOORS:
            continue
        target = rest[0]
        if target != room and FLOORS[target] >= FLOORS.get(room, -1):
            found.add(f"{place}: {room or 'course_lib'} must not import {target}")
    return sorted(found)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(LIBRARY).as_posix())
def test_a_room_imports_from_lower_floors_only(path):
    source = path.read_text(encoding="utf-8")
    assert faults(source, path.relative_to(LIBRARY)) == []


def test_every_room_has_its_floor():
    rooms = {path.relative_to(LIBRARY).parts[0] for path in FILES}
    packages = {name for name in rooms if (LIBRARY / name).is_dir()}
    assert packages - {"data", "quizzes"} <= FLOORS.keys()
    assert {"kernels", "envs", "exact", "algorithms"} <= packages


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("kernels/a.py", "from course_lib.envs import finite"),
        ("kernels/a.py", "def f():\n    import course_lib.exact.mdp"),
        ("envs/a.py", "from ..models import mlp"),
        ("envs/a.py", "from .. import algorithms"),
        ("exact/a.py", "from course_lib import algorithms"),
        ("algorithms/a.py", "import course_lib.notebook as nb"),
        ("notebook/checks/a.py", "from ...train import program"),
        ("train/a.py", "from course_lib.notebook import plots"),
        ("__init__.py", "from course_lib import kernels"),
        ("exact/a.py", "import tests.test_layers"),
        ("notebook/a.py", "from tools import build"),
        ("algorithms/a.py", "def f():\n    import matplotlib.pyplot as plt"),
        ("kernels/a.py", "import numba"),
        ("kernels/numba_loops.py", "import triton"),
        ("kernels/a.py", "from course_lib.kernels import numba_loops"),
        ("kernels/a.py", "from course_lib.kernels.scan_triton import scan"),
        ("envs/a.py", "from gymnasium.vector import SyncVectorEnv"),
    ],
)
def test_a_planted_fault_is_found(place, source):
    assert faults(source, Path(place))


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("notebook/checks/a.py", "from course_lib.kernels import reverse_scan"),
        ("notebook/checks/a.py", "from ..plots import value_sweeps"),
        ("algorithms/a.py", "from course_lib import envs, kernels"),
        ("exact/a.py", "from .mdp import state_values"),
        ("kernels/a.py", "def f():\n    import numba"),
        ("kernels/numba_loops.py", "import numba"),
        ("kernels/a.py", "def f():\n    from course_lib.kernels import numba_loops"),
        ("notebook/a.py", "import course_lib\nimport matplotlib"),
    ],
)
def test_a_right_import_is_let_through(place, source):
    assert faults(source, Path(place)) == []
