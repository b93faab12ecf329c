"""Builds notebooks, figures and quiz formulas: `python -m tools.build [NN ...]`.

Chapters are executed, but only when their master, the library or the version changed.
Exercises and solutions are cut from the solution masters. A build never writes a master
and never throws away an edit made in a notebook.
"""

import argparse
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from nbformat import NotebookNode

from tools import figures, quiz_maths
from tools.execute import run
from tools.files import BuildError, write_text
from tools.masters import MasterError, up_to_five
from tools.notebooks import (
    Page,
    differences,
    edited_by_hand,
    load,
    orphans,
    plan,
    seal,
)

ROOT = Path(__file__).resolve().parents[1]


def build(root: Path, only: tuple[str, ...] = (), *, force: bool = False) -> list[str]:
    """Bring everything built up to date and return the paths that were written.

    Args:
        root: the repository.
        only: beginnings of the masters to build, such as "02"; none means all.
        force: replace notebooks that were edited by hand.

    Raises:
        BuildError, MasterError: naming file and cell. Where a hand edit would be lost,
            nothing is written.
    """
    written = quiz_maths.write(root)  # before the library's digest is taken
    pages = plan(root, only)
    if not force:
        _refuse_lost_edits(root, pages)
    for page in pages:
        if up_to_date(root, page):
            continue
        write_text(root / page.path, render(root, page))
        written.append(page.path)
    return written + figures.write(root)


def up_to_date(root: Path, page: Page) -> bool:
    """Return whether the notebook in the tree is the one that the build would write."""
    try:
        built = load(root, page.path)
    except ValueError:
        return False
    if built is None:
        return False
    return not list(differences(page.path, built, page.compose(_stored_seconds(built))))


def render(root: Path, page: Page) -> str:
    """Return the notebook's text, after running it where it is a chapter."""
    try:
        built = load(root, page.path)
    except ValueError:
        built = None
    seconds = _stored_seconds(built)
    notebook = page.compose(seconds)
    if page.executed:
        measured = run(notebook, root, page.path)
        settled = _settled(measured, seconds) if page.tells_seconds else None
        told = page.compose(settled)  # again, as the kernel left its own metadata
        for new, ran in zip(told.cells, notebook.cells, strict=True):
            if new.cell_type == "code":
                new.outputs, new.execution_count = ran.outputs, ran.execution_count
        notebook = told
    return seal(notebook)


def _stored_seconds(built: NotebookNode | None) -> int | None:
    return built.metadata.get("course", {}).get("seconds") if built else None


def _settled(measured: float, told: int | None) -> int:
    """Keep the seconds that the page tells unless they are off by a factor of two."""
    new = up_to_five(measured)
    return told if told is not None and told / 2 <= new <= 2 * told else new


def _refuse_lost_edits(root: Path, pages: list[Page]) -> None:
    lost = []
    for page in pages:
        try:
            built = load(root, page.path)
        except ValueError as error:
            lost.append(str(error))
            continue
        if built is None:
            continue
        wanted = page.compose(_stored_seconds(built))
        for name in edited_by_hand(built, wanted):
            lost.append(f"{page.path}: cell {name}: was edited in the notebook")
    if lost:
        masters = sorted({page.master.path for page in pages})
        shown = masters[0] if len(masters) == 1 else "the master"
        lost.append(f"Nothing was built. Move this into {shown}, then build --force.")
        raise BuildError("\n".join(lost))


def check(root: Path, only: tuple[str, ...] = ()) -> list[str]:
    """Return every difference between the tree and what a build would write.

    Runs no notebook and writes nothing.
    """
    found = quiz_maths.check(root)
    pages = plan(root, only)
    for page in pages:
        found += _page_differences(root, page)
    if not only:
        found += [f"{path}: no master asks for it" for path in orphans(root, pages)]
        found += figures.check(root)
    return found


def _page_differences(root: Path, page: Page) -> Iterator[str]:
    try:
        built = load(root, page.path)
    except ValueError as error:
        yield str(error)
        return
    if built is None:
        yield f"{page.path}: is missing; {page.master.path} has not been built"
        return
    yield from differences(page.path, built, page.compose(_stored_seconds(built)))


def check_outputs(root: Path, only: tuple[str, ...] = ()) -> list[str]:
    """Run every chapter again and return those whose bytes differ from the tree's."""
    found = []
    for page in plan(root, only):
        file = root / page.path
        if page.executed and file.exists():
            stored = file.read_text(encoding="utf-8")
            if render(root, page) != stored:
                found.append(f"{page.path}: a new run gives other outputs")
    return found


def unlike_the_pinned_machine(root: Path) -> str:
    """Return why outputs cannot be compared here, or "" where they can.

    Matplotlib's fonts and the processor's instruction set change pixels and training
    runs, so that bytes agree only with the pinned versions on Linux x86-64.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"this is {sys.platform} on {platform.machine()}, not Linux on x86-64"
    pins = root / "constraints.txt"
    if not pins.exists():
        return "there is no constraints.txt"
    for name, pinned in re.findall(
        r"^([\w.-]+)==([^\s;#]+)", pins.read_text(encoding="utf-8"), re.M
    ):
        try:
            installed = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            continue  # a pin of an extra that is not installed
        if installed != pinned.split("+")[0]:
            return f"{name} is {installed} here, {pinned} in constraints.txt"
    return ""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="build", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="NN", help="chapters, such as 02")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument(
        "--outputs", action="store_true", help="with --check: run the chapters again"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace notebooks edited by hand"
    )
    options = parser.parse_args(arguments)
    only = tuple(options.only)
    if options.outputs and not options.check:
        parser.error("--outputs belongs to --check")
    try:
        if not options.check:
            written = build(root, only, force=options.force)
            print("\n".join(f"built {path}" for path in written) or "nothing to build")
            return 0
        found = check(root, only)
        if options.outputs:
            reason = unlike_the_pinned_machine(root)
            if reason:
                print(f"outputs are not compared: {reason}")
            else:
                found += check_outputs(root, only)
    except (BuildError, MasterError) as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(found) or "everything is up to date")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
