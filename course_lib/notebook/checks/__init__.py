"""`check`: is my function right, and if not, which mistake is it?

A task is one module in this package with a `TASK`; its diagnoses stand in
`diagnoses.yaml`. `core` runs a function on the task's inputs and finds the words.
"""

from course_lib.notebook.checks.core import CheckFailed, check, load_task, tasks

__all__ = ["CheckFailed", "check", "load_task", "tasks"]
