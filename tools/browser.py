"""A headless Chromium and a JupyterLab, for tests and for pictures of the course."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    sync_playwright,
)

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ANNOUNCEMENTS = "@jupyterlab/apputils-extension:announcements"
RUN_ALL = """async () => {
    const widget = window.jupyterapp.shell.currentWidget;
    await widget.sessionContext.ready;
    await widget.sessionContext.session.kernel.info;
    return window.jupyterapp.commands.execute("notebook:run-all-cells");
}"""


def find_browser() -> str | None:
    """Return the path of an installed Chromium or Chrome, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def chromium(path: str) -> Iterator[Browser]:
    """Start the browser at `path`, headless and without asking the network anything."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def jupyterlab(folder: Path, scratch: Path) -> Iterator[str]:
    """Serve `folder` in JupyterLab, its settings in `scratch`; yields the address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = scratch / "config" / "labconfig"
    config.mkdir(parents=True)
    # The announcements ask about news in a pop-up that lies over the page.
    (config / "page_config.json").write_text(
        json.dumps({"disabledExtensions": {ANNOUNCEMENTS: True}}),
        encoding="utf-8",
    )
    # Cells out of sight are otherwise not in the page, so that no test finds them.
    tracker = scratch / "settings" / "@jupyterlab" / "notebook-extension"
    tracker.mkdir(parents=True)
    (tracker / "tracker.jupyterlab-settings").write_text(
        '{"windowingMode": "none"}', encoding="utf-8"
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "PATH": path,  # the kernel is started as plain `python`
        "JUPYTERLAB_SETTINGS_DIR": str(scratch / "settings"),
        "JUPYTER_CONFIG_DIR": str(scratch / "config"),
        "JUPYTER_DATA_DIR": str(scratch / "data"),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "IPYTHONDIR": str(scratch / "ipython"),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}"]
    command += ["--ip=127.0.0.1", "--expose-app-in-browser", "--allow-root"]
    command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"]
    with open(scratch / "server.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        address = f"http://127.0.0.1:{port}"
        try:
            _wait_until_served(address, server, scratch / "server.log")
            yield address
        finally:
            server.terminate()
            server.wait(30)


def _wait_until_served(
    address: str, server: subprocess.Popen[bytes], log: Path
) -> None:
    for _ in range(240):
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{address}/lab", timeout=5).close()
            return
        time.sleep(0.25)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')}")


def open_notebook(page: Page, address: str, name: str) -> None:
    """Open a notebook and wait until its cells stand and its kernel answers."""
    page.goto(f"{address}/doc/tree/{name}?reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)


def run_all(page: Page) -> None:
    """Run all cells; a click on the menu item is lost in a third of the tries."""
    page.evaluate(RUN_ALL)


def set_source(page: Page, cell_id: str, source: str) -> None:
    """Write another source into a cell of the open notebook."""
    page.evaluate(
        """([id, source]) => {
          const { content } = window.jupyterapp.shell.currentWidget;
          const cell = content.widgets.find((one) => one.model.id === id);
          cell.model.sharedModel.setSource(source);
        }""",
        [cell_id, source],
    )


class Opened:
    """A notebook in the browser, and what its page complained about or asked for."""

    def __init__(self, browser: Browser, address: str, name: str) -> None:
        self.complaints: list[str] = []
        self.remote: list[str] = []
        self.page = browser.new_page(viewport={"width": 1200, "height": 1400})
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("request", self._asked)
        open_notebook(self.page, address, name)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)

    def _asked(self, request: Request) -> None:
        own = ("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:")
        if not request.url.startswith(own):
            self.remote.append(request.url)
