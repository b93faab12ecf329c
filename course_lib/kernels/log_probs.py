"""Log-probabilities of tokens, entropies and divergences, from logits.

All three work in float32 (float64 for float64) and return it: log-probabilities in
bf16 are .016 apart at -2, so that a ratio of two of them is off by more than most
updates move it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from course_lib.kernels.arguments import (
    require_floating,
    require_like,
    require_positive,
    require_tensor,
    require_twin,
)
from course_lib.kernels.chunked_softmax import (
    has_distribution,
    keep_rows,
    log_softmax,
    scaled,
    token_log_softmax,
)
from course_lib.kernels.engines import accumulation_dtype
from course_lib.kernels.selection import select


def token_log_probs(
    logits: Tensor, tokens: Tensor, *, temperature: float = 1.0
) -> Tensor:
    """Log-probability of each chosen token (eq-log-prob):

        log pi(a_t | s_t) = z_t[a_t] - log sum_v exp z_t[v],    z = logits / temperature

    logits[..., t, :] score tokens[..., t]: a language model's logits at position t
    score the token at t + 1, and shifting them is the caller's part.

    Beside the logits it needs little memory, and their gradient once more for
    backward. A logit of -inf is a forbidden token. A row without a distribution (a
    NaN in it, or nothing allowed) gives NaN in its own slot and the gradient 0.

        >>> logits = torch.tensor([[0.25, 0.5, 0.25], [0.125, 0.125, 0.75]]).log()
        >>> token_log_probs(logits, torch.tensor([1, 2]))
        tensor([-0.6931, -0.2877])

    Args:
        logits: [..., V] float.
        tokens: [...] int64, in [0, V).
        temperature: what sampling divided the logits by, above 0.

    Returns:
        [...], float32, or float64 for float64 logits; with gradient to the logits.

    Raises:
        TypeError: wrong types.
        ValueError: a shape or device that does not fit, a temperature that is not
            positive, a token outside the vocabulary (looked for on the CPU).

    Source: Williams (1992), section 4, for the quantity; the chunked form is our own.
    """
    _check_logits("logits", logits)
    _check_tokens(tokens, logits)
    temperature = require_positive("temperature", temperature)
    return token_log_softmax(logits, tokens, temperature)


def entropy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """Entropy of each distribution in nats (eq-entropy): H = -sum_v p_v log p_v.

    A forbidden token (logit -inf) adds 0. A row without a distribution gives NaN in
    its own slot and the gradient 0.

        >>> entropy(torch.tensor([0.5, 0.5]).log())
        tensor(0.6931)

    Args:
        logits: [..., V] float.
        temperature: divides the logits, above 0.

    Returns:
        [...], float32, or float64 for float64 logits; with gradient.

    Raises:
        TypeError: wrong types.
        ValueError: no vocabulary axis, or a temperature that is not positive.

    Source: Shannon (1948), section 6.
    """
    _check_logits("logits", logits)
    temperature = require_positive("temperature", temperature)
    z = scaled(logits, temperature)
    entropies = _plain_entropy(z)
    if z.device.type == "cpu" and not entropies.isnan().any():
        return entropies
    usable = has_distribution(z)
    entropies = _plain_entropy(keep_rows(z, usable))
    return torch.where(usable, entropies, torch.nan)


def categorical_kl(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """KL divergence of q from p in nats (eq-kl): sum_v p_v (log p_v - log q_v).

    A token that p forbids adds 0; one that q forbids and p allows makes it inf. A row
    without a distribution gives NaN in its own slot. The gradient of either is 0.
    Twice differentiable, for Fisher-vector products.

        >>> p, q = torch.tensor([0.6, 0.4]).log(), torch.tensor([0.75, 0.25]).log()
        >>> categorical_kl(p, q)
        tensor(0.0541)

    Args:
        p_logits: [..., V] float, of the policy that samples.
        q_logits: [..., V], the same dtype.

    Returns:
        [...], float32, or float64 for float64 logits; with gradient to both.

    Raises:
        TypeError: wrong types, or two dtypes.
        ValueError: shapes or devices that differ.

    Source: Kullback and Leibler (1951), equation 2.4.
    """
    _check_logits("p_logits", p_logits)
    require_twin("q_logits", q_logits, p_logits)
    dtype = accumulation_dtype(p_logits)
    p_logits, q_logits = p_logits.to(dtype), q_logits.to(dtype)
    usable = has_distribution(p_logits) & has_distribution(q_logits)
    log_p = log_softmax(keep_rows(p_logits, usable))
    log_q = log_softmax(keep_rows(q_logits, usable))
    allowed, reached = log_p > -math.inf, log_q > -math.inf
    gap = select(log_p - log_q, allowed & reached)
    kl = (log_p.exp() * gap).sum(-1)
    # Set, not summed: p may underflow there, and inf would come back as 0 * inf.
    kl = kl.masked_fill((allowed & ~reached).any(-1), math.inf)
    return torch.where(usable, kl, torch.nan)


def _plain_entropy(z: Tensor) -> Tensor:
    log_p = log_softmax(z)
    finite = log_p.clamp(min=torch.finfo(z.dtype).min)  # 0 * -inf would be NaN
    return -(log_p.exp() * finite).sum(-1)


def _check_logits(name: str, logits: object) -> None:
    tensor = require_floating(name, logits, min_dims=1)
    if tensor.shape[-1] == 0:
        raise ValueError(f"{name} must have a vocabulary, got shape {[*tensor.shape]}")


def _check_tokens(tokens: object, logits: Tensor) -> None:
    tensor = require_tensor("tokens", tokens)
    if tensor.dtype != torch.int64:
        raise TypeError(f"tokens must have dtype torch.int64, got {tensor.dtype}")
    require_like("tokens", tensor, logits.shape[:-1], logits)
    if tensor.device.type == "cpu" and tensor.numel():
        low, high = (int(end) for end in tensor.aminmax())
        if low < 0 or high >= logits.shape[-1]:
            raise ValueError(
                f"tokens must lie in [0, {logits.shape[-1]}), got {low} to {high}"
            )
