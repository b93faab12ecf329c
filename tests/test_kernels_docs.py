"""What every kernel promises to its reader: an equation, an example, a short body."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

from course_lib import kernels

ROOM = Path(kernels.__file__).parent
MODULES = sorted(path.stem for path in ROOM.glob("*.py") if path.stem != "__init__")
KERNELS = [n for n in kernels.__all__ if inspect.isfunction(getattr(kernels, n))]
# Sums and counts that no paper had to invent, and the choice of an engine.
NO_PAPER = {"masked_mean", "masked_sum", "masked_var", "scan_engine"}


def words_of(name):
    """The docstring, and the one that it hands its arguments over to."""
    words = inspect.getdoc(getattr(kernels, name)) or ""
    others = re.findall(r"\bthose of\s+`(\w+)`|\bas\s+for\s+`(\w+)`", words)
    names = {one or other for one, other in others}
    return words + "".join(inspect.getdoc(getattr(kernels, n)) or "" for n in names)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_its_docstrings_are_true(name):
    if name == "scan_triton":  # the only one that needs a package the core lacks
        pytest.importorskip("triton", reason="triton is not installed here")
    module = importlib.import_module(f"course_lib.kernels.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_shows_its_equation_an_example_and_its_source(name):
    words = inspect.getdoc(getattr(kernels, name))
    assert re.search(r"\beq-[a-z0-9-]+", words) and ">>>" in words
    assert ("Source:" in words) == (name not in NO_PAPER)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_speaks_of_every_argument_its_result_and_its_refusals(name):
    words = words_of(name)
    for argument in inspect.signature(getattr(kernels, name)).parameters:
        assert re.search(rf"(?m)^ +([\w, ]+, )?{argument}(, [\w, ]+)?:", words), (
            argument
        )
    assert "Returns:" in words and "Raises:" in words


@pytest.mark.parametrize("name", MODULES)
def test_no_function_is_longer_than_thirty_lines(name):
    tree = ast.parse((ROOM / f"{name}.py").read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            body = function.body[1:] if ast.get_docstring(function) else function.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert lines <= 30, f"{function.name} has {lines} lines"
