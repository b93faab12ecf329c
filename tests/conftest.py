"""Fixtures that several test files share."""

import os

import pytest

from tools.browser import NAMES, chromium, find_browser


@pytest.fixture(scope="module")
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
