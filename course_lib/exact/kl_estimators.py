"""k1, k2 and k3 as values and as losses: their expectations without sampling."""

from __future__ import annotations

import torch
from torch import Tensor

from course_lib.kernels import kl_estimates
from course_lib.kernels.arguments import require_floating, require_like
from course_lib.kernels.kl import KLKind


def estimator_moments(
    logits: Tensor, ref_logits: Tensor, kind: KLKind
) -> tuple[float, float]:
    """Mean and variance of an estimate of KL(pi, ref) over samples of pi.

    The mean less `categorical_kl` is the bias: 0 for k1 and k3.

    Args:
        logits, ref_logits: [A] float, of pi and of the reference.
        kind: "k1", "k2" or "k3".

    Returns:
        The mean in nats and the variance in nats squared.

    Raises:
        TypeError, ValueError: shapes or dtypes that differ, an unknown kind.
    """
    log_pi, log_ref = _both(logits, ref_logits)
    each = kl_estimates(log_pi, log_ref, kind)  # [A], a sample's number for each action
    pi = log_pi.exp()
    mean = (pi * each).sum()
    return float(mean), float((pi * (each - mean).square()).sum())


def estimator_gradient(
    logits: Tensor, ref_logits: Tensor, kind: KLKind, *, ratio: bool = False
) -> Tensor:
    """The mean gradient of an estimate that stands in a loss, w.r.t. pi's logits.

        E_a[ grad k(a) ],   or with a ratio   E_a[ grad (pi(a) / pi_old(a) * k(a)) ]

    at pi_old = pi: automatic differentiation sees the samples as constants. Without a
    ratio that leaves out that pi also decides what is sampled: k1 gives 0, k2 the
    gradient of KL(pi, ref), k3 that of KL(ref, pi). With a ratio, and the gradient
    through both factors, k1 and k3 give that of KL(pi, ref).

    Args:
        logits, ref_logits: [A] float.
        kind: "k1", "k2" or "k3".
        ratio: multiply the estimate by pi / pi_old.

    Returns:
        [A] float64.

    Raises:
        TypeError, ValueError: shapes or dtypes that differ, an unknown kind.

    Source: Schulman (2020), "Approximating KL divergence", for the values.
    """
    _both(logits, ref_logits)
    z = logits.detach().double().requires_grad_(True)
    log_pi = z.log_softmax(-1)
    each = kl_estimates(log_pi, ref_logits.detach().double().log_softmax(-1), kind)
    if ratio:
        each = each * (log_pi - log_pi.detach()).exp()
    (gradient,) = torch.autograd.grad((log_pi.detach().exp() * each).sum(), z)
    return gradient


def _both(logits: Tensor, ref_logits: Tensor) -> tuple[Tensor, Tensor]:
    require_floating("logits", logits, min_dims=1)
    require_like("ref_logits", ref_logits, logits.shape, logits)
    return (
        logits.detach().double().log_softmax(-1),
        ref_logits.detach().double().log_softmax(-1),
    )
