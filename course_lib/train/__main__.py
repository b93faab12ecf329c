"""`python -m course_lib.train`: see `--help`, and `PROGRAM --help`."""

from course_lib.train.program import main

if __name__ == "__main__":
    raise SystemExit(main())
