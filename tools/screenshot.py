"""Takes the README's picture, chapter 02 in JupyterLab: `python -m tools.screenshot`.

Needs Chromium or Chrome on the PATH. Pixels depend on the machine's fonts, so the
picture is taken by hand when the page has changed, and no test compares it.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tools.browser import chromium, find_browser, jupyterlab, open_notebook, run_all

ROOT = Path(__file__).resolve().parents[1]
PICTURE = "figures/jupyterlab.png"
CHAPTER = "02_bellman.ipynb"
STEPS = 6  # of the first slider, so that the picture shows it in the middle


def main() -> int:
    """Take the picture and return the exit status."""
    browser_path = find_browser()
    if browser_path is None:
        print("no Chromium or Chrome on the PATH", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        work, scratch = Path(folder) / "work", Path(folder) / "scratch"
        work.mkdir()
        scratch.mkdir()
        shutil.copy(ROOT / "chapters" / CHAPTER, work)
        with chromium(browser_path) as browser, jupyterlab(work, scratch) as address:
            page = browser.new_page(viewport={"width": 1120, "height": 860})
            open_notebook(page, address, CHAPTER)
            run_all(page)
            scrub = page.locator(".course-scrub").first
            scrub.locator("input[type=range]").first.focus()
            for _ in range(STEPS):
                page.keyboard.press("ArrowRight")
            scrub.evaluate("node => node.scrollIntoView({ block: 'center' })")
            page.wait_for_timeout(2000)
            shot = page.screenshot()
    image = Image.open(io.BytesIO(shot)).convert("RGB").quantize(64)
    image.save(ROOT / PICTURE, optimize=True)
    print(f"{PICTURE}: {(ROOT / PICTURE).stat().st_size / 1000:.0f} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
