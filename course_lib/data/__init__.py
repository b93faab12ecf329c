"""Results of long runs, each with the command, seeds, versions and date behind it."""
