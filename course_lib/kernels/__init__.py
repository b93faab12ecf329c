"""Pure functions of tensors, time on the last axis; they import nothing of ours.

`__all__` is what chapters and algorithms may use. A new kernel gets its own file
in this room and its public name here.
"""

from course_lib.kernels.returns import discounted_returns
from course_lib.kernels.scan import Engine, NaNInputError, reverse_scan, scan_engine

__all__ = [
    "Engine",
    "NaNInputError",
    "discounted_returns",
    "reverse_scan",
    "scan_engine",
]
