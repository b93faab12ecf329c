"""Pure functions of tensors, time on the last axis; they import nothing of ours.

`__all__` is what chapters and algorithms may use. A new kernel gets its own file
in this room and its public name here.
"""

from course_lib.kernels.advantages import gae, shift_values, td_errors
from course_lib.kernels.engines import Engine, NaNInputError, scan_engine
from course_lib.kernels.n_step import n_step_advantages
from course_lib.kernels.returns import discounted_returns
from course_lib.kernels.scan import reverse_scan
from course_lib.kernels.vtrace import vtrace

__all__ = [
    "Engine",
    "NaNInputError",
    "discounted_returns",
    "gae",
    "n_step_advantages",
    "reverse_scan",
    "scan_engine",
    "shift_values",
    "td_errors",
    "vtrace",
]
