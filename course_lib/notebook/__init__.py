"""What only a notebook needs: scrubbable pictures, quizzes, checks and plots.

A chapter's first cell is `from course_lib.notebook import *` and `begin(version)`; with
that, each interactive cell stands alone. Where a package is missing or broken, the
import fails with the words of `setup_check`, which say what to do.
"""

from course_lib.notebook.setup import setup_check

try:
    from course_lib.notebook import plots
    from course_lib.notebook.begin import begin
    from course_lib.notebook.checks import check
    from course_lib.notebook.mended import mended
    from course_lib.notebook.picture import picture
    from course_lib.notebook.quiz import quiz
    from course_lib.notebook.scrub import scrub
except (ImportError, OSError) as error:  # OSError: a library of torch does not load
    _found = setup_check()
    if _found.ok:
        raise
    raise ImportError(f"{error}\n\n{_found}") from error

__all__ = [
    "begin",
    "check",
    "mended",
    "picture",
    "plots",
    "quiz",
    "scrub",
    "setup_check",
]
