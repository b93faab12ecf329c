"""Training programs: `python -m course_lib.train PROGRAM --config FILE --a.b VALUE`.

The algorithms are the same functions that chapters call. What is added here is what a
run on a machine needs besides: settings in layers, a log, checkpoints.
"""
