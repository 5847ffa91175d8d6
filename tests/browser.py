"""A browser, as people have one. A test is skipped, and says why, where there is none."""

import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# As root in a container a sandbox cannot be made; and nothing is to be looked up in a network
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@contextmanager
def opened(**options):
    """A page of a browser, with the lists of what it complained about and of what it asked a network for."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)}; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=path, args=ARGUMENTS)
        try:
            page = browser.new_context(**options).new_page()
            page.set_default_timeout(20_000)
            page.complaints, page.requests = [], []
            page.on("console", lambda said: page.complaints.append(said.text) if said.type == "error" else None)
            page.on("pageerror", lambda error: page.complaints.append(str(error)))
            page.on("request", lambda request: page.requests.append(request.url))
            yield page
        finally:
            browser.close()
