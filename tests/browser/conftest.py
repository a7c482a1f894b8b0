"""Debian's chromium, and what tests of pages share."""

from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import installed, missing

CHROMIUM = Path("/usr/bin/chromium")
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
#: No process of its own that plays a graphics card.
DRAWS_ITSELF = ("--disable-gpu", "--disable-gpu-compositing", "--in-process-gpu")
#: The rules of accessibility that a page's colours may break.
OF_COLOURS = ("color-contrast", "link-in-text-block")
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
            executable_path=str(CHROMIUM), args=["--no-sandbox", *DRAWS_ITSELF], timeout=3 * PATIENCE_MS
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def plain_contexts(browser: Any) -> dict[str, Any]:
    """Viewport -> a context for all pages of it without options: what one has compiled, the next one needn't."""
    return {}


@pytest.fixture
def open_address(browser: Any, plain_contexts: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    """Open addresses; at the end check that no page complained, or asked for anything outside of ``within``.

    A page with options has a browser's memory of its own, which a test needs that leaves something in it.
    """
    pages: list[Any] = []
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_one(address: str, viewport: dict[str, int] = WIDE, *, within: str = "", **options: Any) -> Any:
        own = (within or address, "data:", "blob:")
        context = None if options else plain_contexts.get(str(viewport))
        if context is None:
            context = browser.new_context(viewport=viewport, **options)
            if options:
                contexts.append(context)
            else:
                plain_contexts[str(viewport)] = context
        page = context.new_page()
        pages.append(page)
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url.startswith(own) or complaints.append(f"asks for {request.url}"))
        page.goto(address)
        return page

    yield open_one
    for opened in (*pages, *contexts):
        opened.close()
    assert complaints == []


def serious_faults(page: Any, within: str = "html", only: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """Return the serious faults of accessibility, or those of some rules, that axe finds in a part of a page."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Path(str(resources.files("axe_core_python") / "axe.min.js")).read_text("utf-8"))
    # It collects nothing else, and reads no style sheets again: none of its rules that apply here needs them.
    options = {"resultTypes": ["violations"], "preload": False} | ({"runOnly": [*only]} if only else {})
    found = page.evaluate(
        "([part, options]) => axe.run(part, options).then(found => found.violations)", [within, options]
    )
    return [
        (item["id"], item["nodes"][0]["html"][:200], item["nodes"][0].get("failureSummary", "")[:300])
        for item in found
        if item["impact"] in ("serious", "critical")
    ]
