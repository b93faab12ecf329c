"""Refusals that every room shares: they name the argument, what came, what fits.

A kernel that broadcasts a [B] against a [B, 1] returns a plausible wrong answer, so
shapes are compared exactly, and a flag that is not boolean is refused rather than
guessed at (`~mask` of an integer 1 is -2).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def require_tensor(name: str, value: object, *, min_dims: int = 0) -> Tensor:
    """Return `value` if it is a real tensor with at least `min_dims` axes.

    Raises:
        TypeError: `value` is no tensor, is sparse, or holds complex numbers.
        ValueError: it has fewer than `min_dims` axes.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.is_complex():
        raise TypeError(f"{name} must be real, got dtype {value.dtype}")
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be dense, got layout {value.layout}")
    if value.dim() < min_dims:
        raise ValueError(
            f"{name} must have at least {min_dims} axis, got shape {[*value.shape]}"
        )
    return value


def require_like(name: str, value: object, shape: Sequence[int], model: Tensor) -> None:
    """Refuse a `value` that is not a tensor of `shape` on `model`'s device.

    Raises:
        TypeError: `value` is no tensor.
        ValueError: another shape (nothing broadcasts) or another device.
    """
    tensor = require_tensor(name, value)
    if tensor.shape == shape and tensor.device == model.device:
        return  # quickly: kernels ask this several times in each call
    if tensor.shape != torch.Size(shape):
        raise ValueError(
            f"{name} must have shape {[*shape]}, got {[*tensor.shape]}; "
            "nothing is broadcast"
        )
    if tensor.device != model.device:
        raise ValueError(f"{name} must be on {model.device}, got {tensor.device}")


def require_flags(name: str, value: object, model: Tensor) -> None:
    """Refuse flags that are not boolean or not of `model`'s shape and device.

    Raises:
        TypeError: no tensor, or a dtype other than torch.bool.
        ValueError: another shape or device than `model`.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.dtype != torch.bool:
        raise TypeError(f"{name} must have dtype torch.bool, got {value.dtype}")
    require_like(name, value, model.shape, model)


def require_number(name: str, value: object) -> float:
    """Return `value` as a float, which may be NaN or infinite.

    Raises:
        TypeError: not a real number (a tensor or a bool is none).
        ValueError: an integer beyond the range of floats.
    """
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is an integer too large for a float") from None


def require_fraction(name: str, value: object) -> float:
    """Return `value` as a float if it is a number in [0, 1].

    Raises:
        TypeError: not a real number (a tensor or a bool is none).
        ValueError: NaN, or outside [0, 1].
    """
    number = require_number(name, value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")
    return number


def require_not_negative(name: str, value: object) -> float:
    """Return `value` as a float if it is a number of at least 0, perhaps infinite.

    Raises:
        TypeError: not a real number (a tensor or a bool is none).
        ValueError: NaN, or below 0.
    """
    number = require_number(name, value)
    if not number >= 0.0:
        raise ValueError(f"{name} must be at least 0, got {value}")
    return number


def require_positive(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number above 0.

    Raises:
        TypeError: not a real number (a tensor or a bool is none).
        ValueError: NaN, infinite, 0 or below.
    """
    number = require_number(name, value)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be above 0 and finite, got {value}")
    return number


def require_price(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number of at least 0.

    An infinite price of nothing would be NaN.

    Raises:
        TypeError: not a real number (a tensor or a bool is none).
        ValueError: NaN, infinite or below 0.
    """
    number = require_not_negative(name, value)
    if math.isinf(number):
        raise ValueError(f"{name} must be finite, got {value}")
    return number


def require_axis(name: str, value: object, x: Tensor) -> None:
    """Refuse a `value` that is no axis of x, counted from either end.

    Raises:
        TypeError: not an integer.
        ValueError: x has no such axis.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if not -x.dim() <= int(value) < x.dim():
        raise ValueError(f"{name} must be an axis of shape {[*x.shape]}, got {value}")


def require_positive_int(name: str, value: object) -> int:
    """Return `value` if it is an integer of at least 1.

    Raises:
        TypeError: not an integer.
        ValueError: below 1.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return int(value)


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a `value` that is none of `choices`: a slip of the pen must not pick one.

    Raises:
        ValueError: another value.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {tuple(choices)}, got {value!r}")


def require_fields(
    config: object, require: Callable[[str, object], object], *names: str
) -> None:
    """Ask one thing of several fields of a config: `require(name, value)` of each."""
    for name in names:
        require(name, getattr(config, name))


def require_text(name: str, value: object) -> None:
    """Refuse a `value` that is no text, or an empty one: a folder has a name.

    Raises:
        TypeError: no text.
        ValueError: an empty one.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name} must not be empty, got {value!r}")


def require_floating(name: str, value: object, *, min_dims: int = 0) -> Tensor:
    """Return `value` if it is a tensor of floats with at least `min_dims` axes.

    Raises:
        TypeError: `value` is no tensor, or its dtype is not a floating one.
        ValueError: it has fewer than `min_dims` axes.
    """
    tensor = require_tensor(name, value, min_dims=min_dims)
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must have a floating dtype, got {tensor.dtype}")
    return tensor


def require_twin(name: str, value: object, model: Tensor) -> None:
    """Refuse a `value` unlike `model` in shape, device or dtype.

    For two log-probabilities of one action: rounded to bf16, one of them is off by
    up to 6 % as a ratio before anything has been learnt.

    Raises:
        TypeError: no tensor, or another dtype.
        ValueError: another shape or device.
    """
    tensor = require_tensor(name, value)
    if tensor.dtype != model.dtype:
        raise TypeError(f"{name} must have dtype {model.dtype}, got {tensor.dtype}")
    require_like(name, tensor, model.shape, model)
