"""What every kernel promises to its reader: an example that runs, and a short body."""

import ast
import doctest
import importlib
import inspect
import pkgutil

import pytest

from course_lib import kernels

MODULES = [module.name for module in pkgutil.iter_modules(kernels.__path__)]
# The recurrences have their examples in the tests of their values.
LOSSES = [
    "bradley_terry_loss",
    "categorical_kl",
    "clipped_policy_loss",
    "clipped_value_loss",
    "effective_sample_size",
    "entropy",
    "entropy_bonus",
    "group_relative_advantages",
    "importance_weights",
    "kl_estimates",
    "kl_penalty_policy_loss",
    "kl_shaped_rewards",
    "leave_one_out_advantages",
    "masked_mean",
    "masked_sum",
    "masked_var",
    "policy_gradient_loss",
    "pretraining_loss",
    "reduce_steps",
    "token_log_probs",
    "value_loss",
    "whiten",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_its_docstrings_are_true(name):
    if name == "scan_triton":  # the only one that needs a package the core lacks
        pytest.importorskip("triton", reason="triton is not installed here")
    module = importlib.import_module(f"course_lib.kernels.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", LOSSES)
def test_a_kernel_gives_its_equation_an_example_its_source_and_a_short_body(name):
    kernel = getattr(kernels, name)
    words = inspect.getdoc(kernel)
    assert "(eq-" in words and ">>>" in words
    if name not in ("masked_mean", "masked_sum", "masked_var"):
        assert "Source:" in words
    (function,) = ast.parse(inspect.getsource(kernel)).body
    first, *rest = function.body
    assert isinstance(first, ast.Expr)
    assert function.end_lineno - first.end_lineno <= 30 and rest
