"""The quiz bank: one YAML file per chapter, described in `course_lib.notebook.bank`."""
