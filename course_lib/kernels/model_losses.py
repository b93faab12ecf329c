"""Terms beside the surrogate: entropy, preferences and the text of pretraining."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

from course_lib.kernels.arguments import (
    require_flags,
    require_floating,
    require_like,
    require_tensor,
)
from course_lib.kernels.log_probs import token_log_probs
from course_lib.kernels.loss_terms import Diagnostics, trained
from course_lib.kernels.masked import mean_of_real
from course_lib.kernels.reduction import Reduction, reduced
from course_lib.kernels.selection import refuse_nan_behind


def entropy_bonus(
    entropies: Tensor,
    *,
    mask: Tensor | None = None,
    reduction: Reduction = "token_mean",
    constant_length: int | None = None,
) -> tuple[Tensor, Diagnostics]:
    """Mean entropy, to be subtracted from the loss (eq-bonus):

        S = mean of H(pi(. | s_t)),    loss = policy + vf_coef * value - ent_coef * S

    H is that of the whole distribution; -log pi of the chosen action is only a noisy
    estimate of it (DLR-RM/stable-baselines3 #127).

        >>> import torch
        >>> from course_lib.kernels import entropy
        >>> bonus, _ = entropy_bonus(entropy(torch.tensor([[0.5, 0.5]]).log()))
        >>> 0.0 - 0.01 * bonus
        tensor(-0.0069)

    Args:
        entropies: [..., T] float, nats, with gradient; see `entropy`.
        mask: [..., T] bool, True where real. None: every step is.
        reduction: see `reduce_steps`.
        constant_length: for reduction="constant".

    Returns:
        bonus: [], float32 or float64, at least 0 for a discrete policy.
        diagnostics: detached [], over real steps: "entropy" (the mean over them,
            whatever the reduction).

    Raises:
        TypeError: wrong types.
        ValueError: a shape or device that does not fit, a reduction that is none.
        NaNInputError: a NaN at a real step (on the CPU).

    Source: Schulman et al. (2017), equation 9 (S); Williams and Peng (1991).
    """
    terms = trained("entropies", entropies, mask)
    bonus = reduced(terms, mask, reduction, constant_length)
    refuse_nan_behind(bonus, mask, entropies=entropies)
    return bonus, {"entropy": mean_of_real(terms.detach(), mask)}


def bradley_terry_loss(chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Diagnostics]:
    """Negative log-likelihood of the comparisons (eq-bradley-terry):

        L = -mean of log sigma(r_chosen - r_rejected)

    Only differences matter: any constant may be added to all rewards. Each reward is
    read at its own answer's last real token; read at the longer one's, the shorter
    is judged by its padding.

        >>> import torch
        >>> bradley_terry_loss(torch.tensor([2.0]), torch.tensor([1.5]))[0]
        tensor(0.4741)

    Args:
        chosen: [..., N] float, the reward model's scores of the preferred answers.
        rejected: [..., N], of the others, in the same order.

    Returns:
        loss: [], nats, float32 or float64, with gradient to both.
        diagnostics: detached []: "accuracy" (share of chosen > rejected, a tie counts
            half), "margin" (mean of chosen - rejected).

    Raises:
        TypeError: no floats.
        ValueError: a shape or device that does not fit; nothing broadcasts.
        NaNInputError: a NaN among the scores (on the CPU).

    Source: Bradley and Terry (1952); Ouyang et al. (2022), equation 1.
    """
    good = trained("chosen", chosen, None)
    require_floating("rejected", rejected)
    require_like("rejected", rejected, chosen.shape, chosen)
    margin = good - rejected.to(good.dtype)  # [..., N]
    loss = softplus(-margin).mean()
    refuse_nan_behind(loss, None, chosen=chosen, rejected=rejected)
    far = margin.detach()
    return loss, {"accuracy": (far.sign() / 2 + 0.5).mean(), "margin": far.mean()}


def pretraining_loss(
    logits: Tensor, tokens: Tensor, mask: Tensor
) -> tuple[Tensor, Diagnostics]:
    """Next-token loss on text of the pretraining, for PPO-ptx (eq-ptx):

        L = -sum_t m_t log pi(x_t | x_<t) / sum_t m_t

    Added to PPO's loss with a coefficient, it keeps what the model knew.

        >>> import torch
        >>> logits = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]).log()
        >>> mask = torch.tensor([True, False])
        >>> pretraining_loss(logits, torch.tensor([0, 2]), mask)[0]
        tensor(0.6931)

    Args:
        logits: [..., T, V] float; logits[..., t, :] score tokens[..., t].
        tokens: [..., T] int64; anything, say -100, where masked.
        mask: [..., T] bool, True where real.

    Returns:
        loss: [], nats a token, float32 or float64, with gradient to the logits.
        diagnostics: detached []: "perplexity", exp of the loss.

    Raises:
        TypeError: wrong types.
        ValueError: a shape or device that does not fit, a real token outside the
            vocabulary (on the CPU).
        NaNInputError: a NaN in a real token's logits (on the CPU).

    Source: Ouyang et al. (2022), equation 2, second term.
    """
    require_floating("logits", logits, min_dims=2)
    require_flags("mask", mask, require_tensor("tokens", tokens))
    log_probs = token_log_probs(logits, tokens.masked_fill(~mask, 0))
    terms = trained("logits", log_probs, mask)
    loss = -reduced(terms, mask, "token_mean")
    refuse_nan_behind(loss, mask, logits=log_probs.detach())
    return loss, {"perplexity": loss.detach().exp()}
