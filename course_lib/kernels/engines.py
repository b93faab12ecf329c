"""Which engine runs a loop over time, and what all of them refuse.

    numba   the textbook loop, compiled; for tensors on a CPU
    triton  a blocked scan in one launch; for tensors on CUDA
    torch   tensor operations only; anywhere

"auto" takes the first that fits the device and can be loaded. numba and triton are
imported at their first use, and where one of them does not work, torch serves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from course_lib.kernels.arguments import require_tensor

Engine = Literal["auto", "numba", "triton", "torch"]
ChosenEngine = Literal["numba", "triton", "torch"]


class NaNInputError(ValueError):
    """A NaN came in where a number was needed; the message names where."""


def scan_engine(x: Tensor, engine: Engine = "auto") -> ChosenEngine:
    """Say which engine `reverse_scan(x, ..., engine=engine)` runs on (for eq-scan).

    Args:
        x: [..., T], what would be summed; only its device and dtype are looked at.
        engine: what is asked for. "auto" is numba for a CPU tensor, triton for a CUDA
            tensor, and torch for any other device and wherever the first choice
            cannot be loaded or compiled (tried once; numba once for each dtype).

    Returns:
        "numba", "triton" or "torch".

    Raises:
        TypeError: x is no tensor.
        ValueError: an unknown engine, or one that does not run on x's device.
        RuntimeError: "numba" or "triton" where it cannot be loaded or compiled.

    >>> scan_engine(torch.ones(2), "torch")
    'torch'
    """
    require_tensor("x", x)
    return choose_engine("x", x, accumulation_dtype(x), engine, "scan_loop")


def choose_engine(
    name: str, x: Tensor, dtype: torch.dtype, engine: Engine, loop: str
) -> ChosenEngine:
    """Choose for the argument `name`; `loop` is the numba loop that would serve it."""
    if engine not in ("auto", "numba", "triton", "torch"):
        raise ValueError(
            f"engine must be 'auto', 'numba', 'triton' or 'torch', got {engine!r}"
        )
    if engine == "numba" or (engine == "auto" and x.is_cpu):
        if not x.is_cpu:
            raise ValueError(f"engine='numba' needs {name} on the CPU, got {x.device}")
        compiled, problem = compiled_loop(loop, dtype)
        if compiled is not None:
            return "numba"
    elif engine == "triton" or (engine == "auto" and x.is_cuda):
        module, problem = triton_module()
        if module is not None and (x.is_cuda or module.INTERPRETED):
            return "triton"
        if module is not None:
            raise ValueError(f"engine='triton' needs {name} on CUDA, got {x.device}")
    else:
        return "torch"
    if engine != "auto":
        raise RuntimeError(f"engine={engine!r} cannot run here ({problem})")
    return "torch"


@functools.cache
def compiled_loop(
    name: str, dtype: torch.dtype
) -> tuple[Callable[..., Any] | None, str]:
    """Compile a loop of `numba_loops`, or a pass of `loss_loops`, for one dtype.

    Returns:
        The loop, or None and the reason.
    """
    try:
        from course_lib.kernels import loss_loops, numba_loops

        home = loss_loops if name.endswith("_pass") else numba_loops
        return home.compile_loop(name, dtype), ""
    except Exception as problem:  # whatever breaks numba here, torch still serves
        return None, f"{type(problem).__name__}: {problem}"


def load_loop(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    """Return one of `numba_loops`, compiled for one dtype.

    Raises:
        RuntimeError: numba cannot be loaded or does not compile it.
    """
    loop, problem = compiled_loop(name, dtype)
    if loop is None:
        raise RuntimeError(problem)
    return loop


@functools.cache
def triton_module() -> tuple[Any, str]:
    """Load the triton kernels; return their module, or None and the reason."""
    try:
        from course_lib.kernels import scan_triton

        return scan_triton, ""
    except Exception as problem:  # whatever breaks triton here, torch still serves
        return None, f"{type(problem).__name__}: {problem}"


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype to sum x in: float32 for anything narrower, else its own."""
    return wide_dtype(x.dtype)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to sum numbers of `dtype` in."""
    if dtype == torch.float64 or result_dtype(dtype) == torch.float64:
        return torch.float64
    return torch.float32


def result_dtype(first: torch.dtype, *others: torch.dtype) -> torch.dtype:
    """Return what torch promotes the dtypes to; integers give the default float."""
    for other in others:
        if other != first:
            first = torch.promote_types(first, other)
    return first if first.is_floating_point else torch.get_default_dtype()


def plain(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x in `dtype` and without a gradient: x itself where that holds already."""
    if x.requires_grad:
        x = x.detach()
    return x if x.dtype == dtype else x.to(dtype)


def plain_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `plain(x, dtype)` with all batch axes as one, [B, T]."""
    x = plain(x, dtype)
    return x if x.dim() == 2 else x.reshape(-1, x.shape[-1])


def refuse_nan(**arguments: Tensor | float | None) -> None:
    """Raise for the first NaN among the named arguments.

    Raises:
        NaNInputError: names the argument and the index of its first NaN.
    """
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            continue
        where = value.isnan().nonzero()
        if len(where):
            raise NaNInputError(
                f"{name} must not hold NaN, got one at index {where[0].tolist()} "
                f"of shape {[*value.shape]}"
            )
