"""The one recurrence under returns, GAE, lambda-returns and V-trace.

    y_t = x_t + decay_t * y_{t+1},    y_T = init or 0

It runs from the end of time to its start. On a CPU the textbook loop, compiled, is
the fastest form; elsewhere a doubling scan needs about log2(T) passes, because two
neighbouring segments y = b + a*y_next and y_next = b' + a'*y_after join into one,
(a, b) o (a', b') = (a*a', b + a*b'), and that joining is associative (Blelloch 1990,
"Prefix sums and their applications", section 1.4).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_like,
    require_number,
    require_tensor,
)
from course_lib.kernels.engines import (
    ChosenEngine,
    Engine,
    NaNInputError,
    accumulation_dtype,
    load_loop,
    plain_rows,
    refuse_nan,
    result_dtype,
    scan_engine,
    triton_module,
)

# From here on, on a CPU, one pass over all rows per step is cheaper than log2(T)
# passes over everything.
_MANY_ROWS = 512
_FEW_STEPS = 32


def reverse_scan(
    x: Tensor,
    decay: float | Tensor,
    *,
    init: Tensor | None = None,
    engine: Engine = "auto",
    validate: bool = False,
) -> Tensor:
    """Sum backwards in time (eq-scan): y_t = x_t + decay_t * y_{t+1}, y_T = init or 0.

    A decay of exactly 0 cuts by selection: nothing from later steps crosses it, not
    even inf or NaN. T may be 0. No argument is changed; strides may be any. The
    result carries no gradient. bf16 and fp16 are summed in float32.

    An inf in x reaches the earlier steps of its segment; the torch and triton engines
    stop it where the product of the decays underflows. Where such a product overflows
    (decays beyond 1 in size), triton, and torch off the CPU, overflow with it.

    Args:
        x: [..., T], what each step adds. Integers are promoted to the default float.
        decay: one finite number, or a tensor of them of exactly x's shape.
        init: x.shape[:-1], the y after the last step. None means 0.
        engine: "auto", "numba" (CPU), "triton" (CUDA) or "torch"; see `scan_engine`.
        validate: look for NaN on the other engines too (on CUDA this waits for the
            device). The numba engine always looks, within its loop.

    Returns:
        y: [..., T], contiguous, x's dtype and device.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: a shape, device, decay or engine that does not fit.
        NaNInputError: a NaN in x, decay or init was found (a ValueError).
        RuntimeError: engine="numba" or "triton" where that cannot run.

    Source: Sutton and Barto (2018), equation 3.9, is it with decay = gamma; Blelloch
    (1990), section 1.4, has it as a scan.

    >>> reverse_scan(torch.tensor([1.0, 0.0, 2.0]), 0.5)
    tensor([1.5000, 1.0000, 2.0000])
    """
    require_tensor("x", x, min_dims=1)
    if init is not None:
        require_like("init", init, x.shape[:-1], x)
    decay = _checked_decay(decay, x)
    chosen = scan_engine(x, engine)
    if validate and chosen != "numba":
        refuse_nan(x=x, decay=decay, init=init)
    y, saw_nan = scan_steps(x, decay, init, chosen)
    if saw_nan:  # it may also be inf - inf, which is the caller's own
        refuse_nan(x=x, decay=decay, init=init)
    return y.to(result_dtype(x.dtype))


def scan_steps(
    x: Tensor, decay: float | Tensor, init: Tensor | None, engine: ChosenEngine
) -> tuple[Tensor, bool]:
    """`reverse_scan` of what is checked, in float32 or float64; refuses nothing.

    Says too whether the numba loop met a NaN; the other engines do not look.
    """
    dtype = accumulation_dtype(x)
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=dtype, device=x.device), False
    rows = plain_rows(x, dtype)  # [B, T]
    if isinstance(decay, Tensor):
        decay = plain_rows(decay, dtype)  # [B, T]
    start = None if init is None else init.detach().reshape(-1).to(dtype)  # [B]
    saw_nan = False
    if engine == "numba":
        y, saw_nan = _scan_with_numba(rows, decay, start)
    elif engine == "triton":
        module, _ = triton_module()
        y = module.scan(rows, decay, start)
    else:
        y = _scan_with_torch(rows, decay, start)
    return y if x.dim() == 2 else y.reshape(x.shape), saw_nan


def _checked_decay(decay: float | Tensor, x: Tensor) -> float | Tensor:
    if isinstance(decay, Tensor):
        require_like("decay", decay, x.shape, x)
        return require_tensor("decay", decay)
    number = require_number("decay", decay)
    if math.isnan(number):
        raise NaNInputError("decay must not be NaN")
    if math.isinf(number):
        raise ValueError(f"decay must be finite, got {decay}")
    return number


def _scan_with_numba(
    x: Tensor, decay: float | Tensor, init: Tensor | None
) -> tuple[Tensor, bool]:
    loop = load_loop("scan_loop", x.dtype)
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
    # On an accelerator each step would be a launch, so there the passes win.
    few_passes = len(x) < _MANY_ROWS and x.shape[1] > _FEW_STEPS
    if x.is_cpu and few_passes:
        few_passes = not _grows(decay)
    scan = _doubling if few_passes or not x.is_cpu else _step_by_step
    if x.is_cpu:
        # Cutting by multiplying with 0 is the fastest. What is not finite spreads to
        # the start of its row that way, through every cut, and there it is seen.
        y = scan(_begun(x, decay, init), decay, False)
        if math.isfinite(y[:, 0].sum().item()):
            return y
    return scan(_begun(x, decay, init), decay, True)


def _grows(decay: float | Tensor) -> bool:
    """Whether products of decays, which only the passes take, may overflow."""
    low, high = decay.aminmax() if isinstance(decay, Tensor) else (decay, decay)
    return bool(low < -1) or bool(high > 1)


def _begun(x: Tensor, decay: float | Tensor, init: Tensor | None) -> Tensor:
    """A copy of x with what follows the last step in it."""
    y = x.clone(memory_format=torch.contiguous_format)  # [B, T]
    if init is not None:
        last = decay[:, -1] if isinstance(decay, Tensor) else decay
        y[:, -1] += _carried(last, init, True)
    return y


def _carried(decay: float | Tensor, later: Tensor, select: bool) -> Tensor:
    """decay * later; with `select` 0 where one of them is, whatever the other is."""
    if isinstance(decay, Tensor):
        carried = decay * later
        nothing = (decay == 0) | (later == 0) if select else None
        return carried if nothing is None else carried.masked_fill_(nothing, 0.0)
    return decay * later if decay != 0 else torch.zeros_like(later)


def _step_by_step(y: Tensor, decay: float | Tensor, select: bool) -> Tensor:
    by_time = y.t().contiguous()  # [T, B]: one step of all rows lies together
    steps = by_time.unbind()  # views, made once
    if isinstance(decay, Tensor):
        decays = decay.t().contiguous().unbind()
        for t in range(len(steps) - 2, -1, -1):
            if select:
                steps[t].add_(_carried(decays[t], steps[t + 1], True))
            else:
                steps[t].addcmul_(decays[t], steps[t + 1])
    elif decay != 0:
        for t in range(len(steps) - 2, -1, -1):
            steps[t].add_(steps[t + 1], alpha=decay)
    return by_time.t().contiguous()  # [B, T]


def _doubling(y: Tensor, decay: float | Tensor, select: bool) -> Tensor:
    steps = y.shape[1]
    smallest = torch.finfo(y.dtype).tiny
    # `a` joins the segment that starts at t with the one that starts at t + span;
    # with one decay for all it is a power, taken in the precision of a Python float.
    a = decay[:, : steps - 1] if isinstance(decay, Tensor) else decay
    span = 1
    while span < steps:
        if not isinstance(a, Tensor) and abs(a) < smallest:
            break  # what lies further on is below the precision of y
        y[:, : steps - span] += _carried(a, y[:, span:], select)
        if isinstance(a, Tensor):
            reach = max(steps - 2 * span, 0)
            a = _carried(a[:, :reach], a[:, span : span + reach], select)  # [B, reach]
        else:
            a = a * a
        span *= 2
    return y
