"""The first cell of every notebook."""

import sys

import torch

import course_lib
from course_lib.notebook.words import word


def begin(version: str) -> None:
    """Prepare a notebook made for course `version`, and say so if the library differs.

    One thread makes the printed numbers the same on every machine of one kind, and the
    small tensors of this course are faster that way.
    """
    torch.set_num_threads(1)
    torch.set_printoptions(precision=4, sci_mode=False, linewidth=76)
    if version != course_lib.__version__:
        text = word("begin.mismatch", notebook=version, library=course_lib.__version__)
        print(text, file=sys.stderr)
