"""Fixtures that several test files share."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tools.browser import NAMES, chromium, find_browser, jupyterlab

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def one_thread():
    """As in a notebook: on tensors this small, threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def browser():
    """A headless browser; without one, skip, or fail where CI requires it."""
    found = find_browser()
    if found is None:
        reason = f"no browser on PATH (looked for {', '.join(NAMES)})"
        if os.environ.get("COURSE_FACES"):
            pytest.fail(reason)
        pytest.skip(reason)
    with chromium(found) as running:
        yield running


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """JupyterLab on copies of the notebooks: its `address` and its `folder`."""
    top = tmp_path_factory.mktemp("lab")
    for room in ("chapters", "exercises", "solutions"):
        shutil.copytree(ROOT / room, top / "work" / room)
    (top / "scratch").mkdir()
    with jupyterlab(top / "work", top / "scratch") as address:
        yield SimpleNamespace(address=address, folder=top / "work")
