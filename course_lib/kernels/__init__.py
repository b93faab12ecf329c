"""Pure functions of tensors, time on the last axis; they import nothing of ours.

`__all__` is what chapters and algorithms may use. A new kernel gets its own file
in this room and its public name here.
"""

from course_lib.kernels.advantages import gae, shift_values, td_errors
from course_lib.kernels.engines import Engine, NaNInputError, scan_engine
from course_lib.kernels.group_advantages import (
    group_relative_advantages,
    leave_one_out_advantages,
)
from course_lib.kernels.importance import effective_sample_size, importance_weights
from course_lib.kernels.kl import kl_estimates, kl_shaped_rewards
from course_lib.kernels.log_probs import categorical_kl, entropy, token_log_probs
from course_lib.kernels.masked import masked_mean, masked_sum, masked_var, whiten
from course_lib.kernels.model_losses import (
    bradley_terry_loss,
    entropy_bonus,
    pretraining_loss,
)
from course_lib.kernels.n_step import n_step_advantages
from course_lib.kernels.policy_losses import (
    clipped_policy_loss,
    kl_penalty_policy_loss,
    policy_gradient_loss,
)
from course_lib.kernels.reduction import Reduction, reduce_steps
from course_lib.kernels.returns import discounted_returns
from course_lib.kernels.scan import reverse_scan
from course_lib.kernels.value_losses import clipped_value_loss, value_loss
from course_lib.kernels.vtrace import vtrace

__all__ = [
    "Engine",
    "NaNInputError",
    "Reduction",
    "bradley_terry_loss",
    "categorical_kl",
    "clipped_policy_loss",
    "clipped_value_loss",
    "discounted_returns",
    "effective_sample_size",
    "entropy",
    "entropy_bonus",
    "gae",
    "group_relative_advantages",
    "importance_weights",
    "kl_estimates",
    "kl_penalty_policy_loss",
    "kl_shaped_rewards",
    "leave_one_out_advantages",
    "masked_mean",
    "masked_sum",
    "masked_var",
    "n_step_advantages",
    "policy_gradient_loss",
    "pretraining_loss",
    "reduce_steps",
    "reverse_scan",
    "scan_engine",
    "shift_values",
    "td_errors",
    "token_log_probs",
    "value_loss",
    "vtrace",
    "whiten",
]
