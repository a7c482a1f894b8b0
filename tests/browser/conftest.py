"""Debian's chromium, and what tests of pages share."""

from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import installed, missing

CHROMIUM = Path("/usr/bin/chromium")
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
#: More than a busy computer needs for anything that a page does.
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM.exists():
        missing(f"{CHROMIUM} isn't there; on Debian: apt-get install chromium")
    playwright_api = installed("playwright.sync_api")
    playwright_api.expect.set_options(timeout=PATIENCE_MS)
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox"], timeout=3 * PATIENCE_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def open_address(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open addresses; at the end check that no page complained, or asked for anything outside of ``within``."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_one(address: str, viewport: dict[str, int] = WIDE, *, within: str = "", **options: Any) -> Any:
        own = (within or address, "data:", "blob:")
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(own) or complaints.append(f"asks for {request.url}"))
        page.goto(address)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


def serious_faults(page: Any, within: str = "html") -> list[tuple[str, str, str]]:
    """Return the serious faults of accessibility that axe finds in a part of a page; it collects nothing else."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Path(str(resources.files("axe_core_python") / "axe.min.js")).read_text("utf-8"))
    return [
        (item["id"], item["nodes"][0]["html"][:200], item["nodes"][0].get("failureSummary", "")[:300])
        for item in page.evaluate(
            "part => axe.run(part, { resultTypes: ['violations'] }).then(result => result.violations)", within
        )
        if item["impact"] in ("serious", "critical")
    ]
