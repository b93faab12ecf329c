"""What is written about the kernels: examples that run, functions that stay short."""

import ast
import doctest
import importlib
import inspect
from pathlib import Path

import pytest

from course_lib import kernels

ROOM = Path(kernels.__file__).parent
MODULES = sorted(path.stem for path in ROOM.glob("*.py") if path.stem != "__init__")
FUNCTIONS = [
    name for name in kernels.__all__ if inspect.isfunction(getattr(kernels, name))
]


@pytest.mark.parametrize("name", MODULES)
def test_every_example_in_a_docstring_gives_what_it_shows(name):
    if name == "scan_triton":
        pytest.importorskip("triton", reason="triton is not installed here")
    module = importlib.import_module(f"course_lib.kernels.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_public_kernel_shows_an_example(name):
    if name != "scan_engine":  # its answer depends on the machine
        assert ">>>" in (inspect.getdoc(getattr(kernels, name)) or "")


@pytest.mark.parametrize("name", MODULES)
def test_no_kernel_is_longer_than_thirty_lines(name):
    tree = ast.parse((ROOM / f"{name}.py").read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            body = function.body[1:] if ast.get_docstring(function) else function.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert lines <= 30, f"{function.name} has {lines} lines"
