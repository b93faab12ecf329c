"""What only a notebook needs: scrubbable pictures, quizzes, checks and plots.

A chapter's first cell is `from course_lib.notebook import *` and `begin(version)`; with
that, each interactive cell stands alone.
"""

from course_lib.notebook import plots
from course_lib.notebook.begin import begin
from course_lib.notebook.checks import check
from course_lib.notebook.picture import picture
from course_lib.notebook.quiz import quiz
from course_lib.notebook.scrub import scrub

__all__ = ["begin", "check", "picture", "plots", "quiz", "scrub"]
