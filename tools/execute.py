"""Runs a notebook and makes its outputs the same at every run, on every machine."""

import base64
import os
import re
import struct
import subprocess
import tempfile
import warnings
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import (
    CellExecutionError,
    CellTimeoutError,
    DeadKernelError,
)
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from traitlets.config import Config

from tools.files import BuildError

TIMEOUT_S = 600
MAX_PICTURE_BYTES = 60_000

# Encrypted, because each kernel warns on stderr when it is not.
QUIET = Config({"KernelManager": {"transport_encryption": "auto"}})
_WIDGET = "application/vnd.jupyter.widget-view+json"
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_NOTES = {b"tEXt", b"zTXt", b"iTXt", b"tIME"}  # they hold dates and versions
# Counts the kernel's whole life with its children, imports included.
_CPU_SECONDS = "import os; print(sum(os.times()[:4]))"


def run(notebook: NotebookNode, root: Path, where: str, **environment: str) -> float:
    """Execute `notebook` in place, in an empty folder, and clean its outputs.

    Args:
        notebook: cells with ids; outputs and execution counts are replaced.
        root: the repository whose `course_lib` the notebook imports.
        where: the notebook's path, for messages.
        environment: variables set for the kernel.

    Returns:
        The CPU seconds that the kernel took, on all threads.

    Raises:
        BuildError: a cell failed, ran too long, wrote to stderr, or shows what cannot
            be stored (see `clean`).
    """
    started: list[int] = []
    probe = new_code_cell(_CPU_SECONDS)
    cells = notebook.cells
    notebook.cells = [*cells, probe]
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as settings,
    ):
        client = NotebookClient(
            notebook,
            timeout=TIMEOUT_S,
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            config=QUIET,
            resources={"metadata": {"path": folder}},
            on_cell_start=lambda cell, cell_index: started.append(cell_index),
        )
        try:
            with warnings.catch_warnings():
                # Windows' event loop lacks what zmq needs; tornado works around it.
                warnings.filterwarnings("ignore", message="Proactor event loop")
                client.execute(
                    env=_kernel_environment(root, settings, environment),
                    # Its log only; what cells write comes through the messages.
                    stderr=subprocess.DEVNULL,
                )
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            name = notebook.cells[started[-1]].id if started else "(kernel start)"
            raise BuildError(f"{where}: cell {name}: {_told(error)}") from error
        finally:
            notebook.cells = cells
    notebook.metadata.pop("widgets", None)
    for number, cell in enumerate((c for c in cells if c.cell_type == "code"), start=1):
        cell.execution_count = number
        cell.outputs = clean(cell, f"{where}: cell {cell.id}")
    return float(probe.outputs[0].text)


def _told(error: Exception) -> str:
    if isinstance(error, CellExecutionError):
        return f"{error.ename}: {error.evalue}"
    return str(error).strip().split("\n")[0]


def _kernel_environment(
    root: Path, settings: str, more: dict[str, str]
) -> dict[str, str]:
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "COURSE_BUILD": "1",
        "IPYTHONDIR": settings,  # no start-up files of whoever builds
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUTF8": "1",
        **more,
    }


def clean(cell: NotebookNode, where: str) -> list[NotebookNode]:
    """Return a code cell's outputs as they are stored.

    Stream pieces are joined; progress bars and widgets go, while a widget's picture or
    text stays; pictures lose their notes; a traceback, which would hold this machine's
    paths, becomes one line.

    Raises:
        BuildError: stderr other than a progress bar, a memory address, or a picture
            above `MAX_PICTURE_BYTES`.
    """
    kept: list[NotebookNode] = []
    stderr = ""
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stderr":
            stderr += output.text
        elif output.output_type == "stream":
            _refuse_address(output.text, where)
            if kept and kept[-1].output_type == "stream":
                kept[-1].text += output.text
            else:
                kept.append(new_output("stream", name="stdout", text=output.text))
        elif output.output_type == "error":
            line = f"{output.ename}: {output.evalue}"
            kept.append(
                new_output(
                    "error",
                    ename=output.ename,
                    evalue=output.evalue,
                    traceback=[line],
                )
            )
        else:
            output = _clean_display(output, where)
            if output.data:
                kept.append(output)
    left = [line for line in stderr.split("\n") if line.strip() and "\r" not in line]
    if left:
        raise BuildError(f"{where}: wrote to stderr: {left[-1].strip()}")
    for output in kept:
        if output.output_type == "execute_result":
            output.execution_count = cell.execution_count
    return kept


def _clean_display(output: NotebookNode, where: str) -> NotebookNode:
    data = output.data
    if data.pop(_WIDGET, None) is not None and set(data) <= {"text/plain"}:
        data.clear()  # only the widget's own name was left
    output.metadata.pop(_WIDGET, None)
    if {"image/png", "text/markdown"} & set(data):
        data.pop("text/html", None)  # the same once more, for a live page
    for kind, content in data.items():
        if kind == "text/plain":
            _refuse_address(content, where)
        elif kind.startswith("image/") and kind != "image/svg+xml":
            picture = base64.b64decode(content)
            if kind == "image/png":
                picture = _without_notes(picture)
                data[kind] = base64.b64encode(picture).decode("ascii")
            _refuse_large(len(picture), where)
        elif kind == "image/svg+xml":
            _refuse_large(len(content.encode("utf-8")), where)
    return output


def _refuse_address(text: str, where: str) -> None:
    found = _ADDRESS.search(text)
    if found:
        raise BuildError(
            f"{where}: shows a memory address ({found[0]}), which differs at every "
            "run; print what it stands for"
        )


def _refuse_large(size: int, where: str) -> None:
    if size > MAX_PICTURE_BYTES:
        raise BuildError(
            f"{where}: a picture of {size / 1000:.0f} KB; at most "
            f"{MAX_PICTURE_BYTES / 1000:.0f} KB are stored. Draw less, or smaller"
        )


def _without_notes(png: bytes) -> bytes:
    """Return a PNG without the chunks that hold text and times."""
    if not png.startswith(_PNG_SIGNATURE):
        return png
    kept, at = [_PNG_SIGNATURE], len(_PNG_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        end = at + 12 + length  # length, kind, content, checksum
        if png[at + 4 : at + 8] not in _PNG_NOTES:
            kept.append(png[at:end])
        at = end
    return b"".join(kept)
