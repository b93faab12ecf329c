"""The one recurrence under returns, GAE, lambda-returns and V-trace.

    y_t = x_t + decay_t * y_{t+1},    y_T = init or 0

It runs from the end of time to its start. On a CPU the textbook loop, compiled, is
the fastest form; elsewhere a doubling scan needs about log2(T) passes, because two
neighbouring segments y = b + a*y_next and y_next = b' + a'*y_after join into one,
(a, b) o (a', b') = (a*a', b + a*b'), and that joining is associative (Blelloch 1990,
"Prefix sums and their applications", section 1.4).
"""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from course_lib.kernels.arguments import require_like, require_tensor

Engine = Literal["auto", "numba", "torch"]
Array = NDArray[Any]
Loop = Callable[[Array, Array, float, bool, Array, Array], bool]

# From here on, on a CPU, one pass over all rows per step is cheaper than log2(T)
# passes over everything.
_MANY_ROWS = 256
_FEW_STEPS = 32


class NaNInputError(ValueError):
    """A NaN came in where a number was needed; the message names where."""


def reverse_scan(
    x: Tensor,
    decay: float | Tensor,
    *,
    init: Tensor | None = None,
    engine: Engine = "auto",
    validate: bool = False,
) -> Tensor:
    """Sum backwards in time: y_t = x_t + decay_t * y_{t+1}, y_T = init or 0.

    A decay of exactly 0 cuts by selection: nothing from later steps crosses it, not
    even inf or NaN. T may be 0. No argument is changed; strides may be any. The
    result carries no gradient. bf16 and fp16 are summed in float32.

    An inf in x reaches the earlier steps of its segment; the torch engine stops it
    where the product of the decays underflows.

    Args:
        x: [..., T], what each step adds. Integers are promoted to the default float.
        decay: one finite number, or a tensor of exactly x's shape.
        init: x.shape[:-1], the y after the last step. None means 0.
        engine: "auto", "numba" (CPU) or "torch"; see `scan_engine`.
        validate: look for NaN on the torch engine too (on CUDA this waits for the
            device). The numba engine always looks, within its loop.

    Returns:
        y: [..., T], contiguous, x's dtype and device.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: a shape, device, decay or engine that does not fit.
        NaNInputError: a NaN in x, decay or init was found (a ValueError).
        RuntimeError: engine="numba" where numba cannot be loaded or compiled.
    """
    require_tensor("x", x, min_dims=1)
    if init is not None:
        require_like("init", init, x.shape[:-1], x)
    decay = _checked_decay(decay, x)
    chosen = scan_engine(x, engine)
    result_dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=result_dtype, device=x.device)
    if validate and chosen != "numba":
        refuse_nan(x=x, decay=decay, init=init)

    dtype = accumulation_dtype(x)
    steps = x.shape[-1]
    rows = x.detach().reshape(-1, steps).to(dtype)  # [B, T]
    if isinstance(decay, Tensor):
        decay = decay.detach().reshape(-1, steps).to(dtype)  # [B, T]
    start = None if init is None else init.detach().reshape(-1).to(dtype)  # [B]
    if chosen == "torch":
        y = _scan_with_torch(rows, decay, start)
    else:
        y, saw_nan = _scan_with_numba(rows, decay, start)
        if saw_nan:  # it may also be inf - inf, which is the caller's own
            refuse_nan(x=x, decay=decay, init=init)
    return y.reshape(x.shape).to(result_dtype)


def scan_engine(x: Tensor, engine: Engine = "auto") -> Literal["numba", "torch"]:
    """Say which engine `reverse_scan(x, ..., engine=engine)` runs on.

    "auto" is numba for a CPU tensor wherever numba loads and compiles (tried once
    for each dtype), and torch otherwise.

    Raises:
        ValueError: an unknown engine, or "numba" for a tensor that is not on the CPU.
        RuntimeError: "numba" where numba cannot be loaded or compiled.
    """
    if engine not in ("auto", "numba", "torch"):
        raise ValueError(f"engine must be 'auto', 'numba' or 'torch', got {engine!r}")
    on_cpu = x.device.type == "cpu"
    if engine == "torch" or (engine == "auto" and not on_cpu):
        return "torch"
    if not on_cpu:
        raise ValueError(f"engine='numba' needs x on the CPU, got {x.device}")
    loop, problem = _compiled_loop(accumulation_dtype(x))
    if loop is None and engine == "numba":
        raise RuntimeError(f"engine='numba' cannot run here ({problem})")
    return "torch" if loop is None else "numba"


def accumulation_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype to sum x in: float32 for anything narrower, else its own."""
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    return torch.float64 if dtype == torch.float64 else torch.float32


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


def _checked_decay(decay: float | Tensor, x: Tensor) -> float | Tensor:
    if isinstance(decay, Tensor):
        require_like("decay", decay, x.shape, x)
        return require_tensor("decay", decay)
    if not isinstance(decay, numbers.Real) or isinstance(decay, bool):
        raise TypeError(
            f"decay must be a number or a tensor, got {type(decay).__name__}"
        )
    if math.isnan(decay):
        raise NaNInputError("decay must not be NaN")
    if math.isinf(decay):
        raise ValueError(f"decay must be finite, got {decay}")
    return float(decay)


def _serial_loop(
    x: Array, decay: Array, one_decay: float, use_one: bool, init: Array, y: Array
) -> bool:
    """Walk every row from its end to its start; say whether a NaN was met.

    `init` is float64, so that the running sum is too: it costs nothing in a loop
    that waits for its own last result, and rounds only once, when y is written.
    """
    saw_nan = False
    for row in range(x.shape[0]):
        total = init[row]
        if total != total:
            saw_nan = True
        for t in range(x.shape[1] - 1, -1, -1):
            d = one_decay if use_one else decay[row, t]
            total = x[row, t] + d * total if d != 0.0 else x[row, t]
            if total != total:
                saw_nan = True
            y[row, t] = total
    return saw_nan


@functools.cache
def _compiled_loop(dtype: torch.dtype) -> tuple[Loop | None, str]:
    """Compile the loop for one dtype; return it, or None and the reason."""
    try:
        import numba

        loop: Any
        try:
            loop = numba.njit(cache=True)(_serial_loop)
        except RuntimeError:  # no folder that the compiled code may be kept in
            loop = numba.njit(_serial_loop)
        one = np.ones((1, 1), dtype=np.float64 if dtype == torch.float64 else "f4")
        loop(one, one, 1.0, False, np.ones(1), one.copy())
    except Exception as problem:  # whatever breaks numba here, torch still serves
        return None, f"{type(problem).__name__}: {problem}"
    return loop, ""


def _scan_with_numba(
    x: Tensor, decay: float | Tensor, init: Tensor | None
) -> tuple[Tensor, bool]:
    loop, problem = _compiled_loop(x.dtype)
    if loop is None:
        raise RuntimeError(problem)
    x = x.contiguous()
    y = torch.empty_like(x)
    start = x.new_zeros(len(x)) if init is None else init
    use_one = not isinstance(decay, Tensor)
    per_step = decay.contiguous() if isinstance(decay, Tensor) else x
    one_decay = 0.0 if isinstance(decay, Tensor) else decay
    saw_nan = loop(
        x.numpy(),
        per_step.numpy(),
        one_decay,
        use_one,
        start.double().numpy(),
        y.numpy(),
    )
    return y, saw_nan


def _scan_with_torch(x: Tensor, decay: float | Tensor, init: Tensor | None) -> Tensor:
    y = x.clone(memory_format=torch.contiguous_format)  # [B, T]
    if init is not None:
        last = decay[:, -1] if isinstance(decay, Tensor) else decay
        y[:, -1] += _carried(last, init)
    rows, steps = x.shape
    # On an accelerator each step would be a launch, so there the passes win.
    if x.device.type == "cpu" and (rows >= _MANY_ROWS or steps <= _FEW_STEPS):
        return _step_by_step(y, decay)
    return _doubling(y, decay)


def _carried(decay: float | Tensor, later: Tensor) -> Tensor:
    """decay * later, and exactly 0 where decay is 0, whatever `later` holds."""
    if isinstance(decay, Tensor):
        return torch.where(decay == 0, 0.0, decay * later)
    return decay * later if decay != 0 else torch.zeros_like(later)


def _step_by_step(y: Tensor, decay: float | Tensor) -> Tensor:
    by_time = y.t().contiguous()  # [T, B]: one step of all rows lies together
    steps = by_time.unbind()  # views, made once
    if not isinstance(decay, Tensor):
        for t in range(len(steps) - 2, -1, -1) if decay != 0 else ():
            steps[t].add_(steps[t + 1], alpha=decay)
        return by_time.t().contiguous()  # [B, T]
    decays = decay.t().contiguous()  # [T, B]
    cuts = (decays == 0).unbind()
    for t in range(len(steps) - 2, -1, -1):
        steps[t].add_((decays[t] * steps[t + 1]).masked_fill_(cuts[t], 0.0))
    return by_time.t().contiguous()  # [B, T]


def _doubling(y: Tensor, decay: float | Tensor) -> Tensor:
    steps = y.shape[1]
    smallest = torch.finfo(y.dtype).tiny
    # `a` joins the segment that starts at t with the one that starts at t + span;
    # with one decay for all it is a power, taken in the precision of a Python float.
    a = decay[:, : steps - 1] if isinstance(decay, Tensor) else decay
    span = 1
    while span < steps:
        if not isinstance(a, Tensor) and abs(a) < smallest:
            break  # what lies further on is below the precision of y
        y[:, : steps - span] += _carried(a, y[:, span:])
        if isinstance(a, Tensor):
            reach = max(steps - 2 * span, 0)
            a = _carried(a[:, :reach], a[:, span : span + reach])  # [B, reach]
        else:
            a = a * a
        span *= 2
    return y
