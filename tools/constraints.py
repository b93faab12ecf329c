"""Write constraints.txt: the versions with which the course was tested.

    python -m tools.constraints

reads the environment of the interpreter that runs it, which must hold the course
with all its extras, and pins what they pull in, nothing else that happens to be
there. The same environment gives the same bytes.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# What the course was tested with; `course.py` installs under these constraints.
# Written by `python -m tools.constraints`, on Linux x86-64 with Python {python}.
# Not edited by hand. What only another system needs stays free.
"""
# CUDA's parts follow from torch's own pin, and only on a machine that has a GPU.
FREE = ("nvidia-", "cuda-", "triton")

Find = Callable[[str], metadata.Distribution]


def pins_of(project: dict[str, Any], find: Find = metadata.distribution) -> list[str]:
    """The pins of all that a project requires, its extras included.

    Args:
        project: the `[project]` table of pyproject.toml.
        find: gives the installed distribution of a name.

    Returns:
        Sorted lines `name==version` in canonical names, without local version
        labels such as `+cpu`, so that one pin serves every build of a version.

    Raises:
        ValueError: a requirement that applies here is not installed.
    """
    own = canonicalize_name(project["name"])
    extras = project.get("optional-dependencies", {})
    waiting = _applying(project.get("dependencies", []), [""])
    waiting += _applying([line for lines in extras.values() for line in lines], [""])
    seen: set[tuple[str, str]] = set()
    pins: dict[str, str] = {}
    missing: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        # A name counts once for itself and once for each extra asked of it.
        wanted = {(name, extra) for extra in ("", *requirement.extras)} - seen
        if name == own or name.startswith(FREE) or not wanted:
            continue
        seen |= wanted
        try:
            found = find(name)
        except metadata.PackageNotFoundError:
            missing.add(name)
            continue
        pins[name] = Version(found.version).public
        waiting += _applying(found.requires or [], [extra for _, extra in wanted])
    if missing:
        raise ValueError(
            f"project: {', '.join(sorted(missing))} not installed in {sys.prefix}; "
            f"first run: python -m pip install -e .[{','.join(sorted(extras))}]"
        )
    return [f"{name}=={pins[name]}" for name in sorted(pins)]


def _applying(lines: Iterable[str], extras: list[str]) -> list[Requirement]:
    """The requirements whose marker holds here under one of the extras."""
    every = [Requirement(line) for line in lines]
    return [
        one
        for one in every
        if one.marker is None
        or any(one.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def main() -> int:
    with open(ROOT / "pyproject.toml", "rb") as stream:
        project = tomllib.load(stream)["project"]
    try:
        pins = pins_of(project)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    python = ".".join(map(str, sys.version_info[:2]))
    text = HEADER.format(python=python) + "\n".join(pins) + "\n"
    (ROOT / "constraints.txt").write_text(text, encoding="utf-8", newline="\n")
    print(f"constraints.txt: {len(pins)} pins")
    return 0


if __name__ == "__main__":
    sys.exit(main())
